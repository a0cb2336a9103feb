package storeapi

// FencedOptions are the options of a fenced.Store. They are here so that the tests of other
// packages can set PartSize.
type FencedOptions struct {
	Adopt    bool
	PartSize int64 // S3: larger bodies go in parts of at least this size, in bytes
}
