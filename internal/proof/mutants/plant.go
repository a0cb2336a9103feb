package main

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"path"
	"slices"
)

// edit replaces one piece of code, which must occur exactly once. In Go it is found by its tokens,
// so that neither the code nor the row must be laid out like the other, or break a line where it
// does.
type edit struct{ file, old, new string }

// plant returns the file with the piece replaced.
func (e edit) plant(body []byte) ([]byte, error) {
	switch n := bytes.Count(body, []byte(e.old)); {
	case n == 1:
		return bytes.Replace(body, []byte(e.old), []byte(e.new), 1), nil
	case n > 1 || path.Ext(e.file) != ".go":
		return nil, fmt.Errorf("%s: the code to replace occurs %d times, not once:\n%s", e.file, n, e.old)
	}
	code, old := tokens(body), tokens([]byte(e.old))
	at, n := 0, 0
	for i := range max(len(code)-len(old)+1, 0) {
		if len(old) > 0 && slices.EqualFunc(code[i:i+len(old)], old, func(a, b word) bool { return a.text == b.text }) {
			at, n = i, n+1
		}
	}
	if n != 1 {
		return nil, fmt.Errorf("%s: the code to replace occurs %d times, not once:\n%s", e.file, n, e.old)
	}
	from, to := code[at].from, code[at+len(old)-1].to
	return slices.Concat(body[:from], []byte(e.new), body[to:]), nil
}

// word is a token, with the bytes where it stands.
type word struct {
	text     string
	from, to int
}

// tokens reads Go without what its layout adds: comments, semicolons, and the comma after the last
// element of a list that has a line for each. The code may be cut anywhere between two tokens.
func tokens(code []byte) (words []word) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(code))
	s.Init(file, code, func(token.Position, string) {}, 0)
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			return words
		}
		if kind == token.SEMICOLON {
			continue
		}
		if text == "" || kind.IsOperator() {
			text = kind.String()
		}
		closes := kind == token.RPAREN || kind == token.RBRACK || kind == token.RBRACE
		if last := len(words) - 1; closes && last >= 0 && words[last].text == "," {
			words = words[:last]
		}
		from := file.Offset(pos)
		words = append(words, word{text, from, from + len(text)})
	}
}
