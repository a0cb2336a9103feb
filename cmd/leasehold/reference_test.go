package main_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReference holds docs/cli-reference.md to the help of each command and topic. RENDER=1 writes
// the page.
func TestReference(t *testing.T) {
	t.Parallel()
	const path = "../../docs/cli-reference.md"
	help := func(args ...string) string {
		r := offline(t, append([]string{"help"}, args...)...)
		r.succeeds(t)
		return strings.TrimSpace(r.out)
	}
	all := help()
	var tables, sections strings.Builder
	add := func(heading, text string) {
		require.NotContains(t, text, "```")
		fmt.Fprintf(&sections, "\n## %s\n\n```text\n%s\n```\n", heading, text)
	}
	add("leasehold", all)
	for _, list := range []struct{ title, column, command string }{
		{"Available Commands:\n", "command", "leasehold "},
		{"Additional help topics:\n", "topic", "leasehold help "},
	} {
		_, text, found := strings.Cut(all, list.title)
		require.True(t, found, list.title)
		text, _, _ = strings.Cut(text, "\n\n")
		fmt.Fprintf(&tables, "\n| %s | |\n| --- | --- |\n", list.column)
		rows := regexp.MustCompile(`(?m)^  (?:leasehold )?([a-z-]+) +(\S.*)$`).FindAllStringSubmatch(text, -1)
		require.Len(t, rows, strings.Count(text, "\n")+1)
		for _, row := range rows {
			heading := list.command + row[1]
			fmt.Fprintf(&tables, "| [%s](#%s) | %s |\n", row[1], strings.ReplaceAll(heading, " ", "-"), row[2])
			add(heading, help(row[1]))
		}
	}
	page := "# Command reference\n\n" +
		"The help of `leasehold`, as this version prints it. [The command](cli.md) is the guide.\n" +
		tables.String() + sections.String()
	if os.Getenv("RENDER") != "" {
		require.NoError(t, os.WriteFile(path, []byte(page), 0o644))
	}
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, page, string(written), "render it: RENDER=1 go test -run TestReference . in cmd/leasehold")
}
