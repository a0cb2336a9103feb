package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each mutant changes code that is there exactly once, into code again, and has checks that must catch it.
func TestMutantsCanBePlanted(t *testing.T) {
	names := make(map[string]bool)
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			require.False(t, names[m.name], "two mutants have this name")
			names[m.name] = true
			require.NotEmpty(t, m.by)
			changed := make(map[string][]byte)
			for _, e := range m.edits {
				body, ok := changed[e.file]
				if !ok {
					var err error
					body, err = os.ReadFile("../../" + e.file)
					require.NoError(t, err)
				}
				require.Equal(t, 1, bytes.Count(body, []byte(e.old)), "%s: %s", e.file, e.old)
				changed[e.file] = bytes.Replace(body, []byte(e.old), []byte(e.new), 1)
			}
			for file, body := range changed {
				if filepath.Ext(file) != ".go" {
					continue
				}
				_, err := parser.ParseFile(token.NewFileSet(), file, body, 0)
				require.NoError(t, err)
			}
		})
	}
}
