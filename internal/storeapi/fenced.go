package storeapi

// PartSize is a func(bytes int64) fenced.Option, which package fenced sets. Package testopt has it
// with its type.
var PartSize any
