package main_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every flag of every command refuses what it cannot use before anything is sent, in one line that
// names the flag.
func TestFlagsThatCannotWork(t *testing.T) {
	p := newPlace(t)
	values := map[string]string{
		"nothing": "", "zero": "0", "negative": "-1", "too large": strings.Repeat("9", 9000),
		"a terminal's": "eve\n\x1b[2K", "a directory": p.dir,
	}
	free := "nothing zero negative too large a terminal's a directory" // any text will do
	takes := map[string]string{                                        // values with which the flag works
		"--wait":          "zero",
		"--held-code":     "zero",
		"--token":         "zero", // of a lock that was never taken
		"--lock":          "zero negative a directory",
		"--shared":        "zero",
		"--no-wait":       "zero",
		"--verbose":       "zero",
		"--yes":           "zero",
		"--policy":        "zero",
		"--if-held":       "zero",
		"--crash-drain":   "zero",
		"--exit-code":     "zero",
		"--holder":        "zero negative a terminal's a directory",
		"--handle-file":   "zero negative too large a terminal's", // as a name; the page has the codes of files
		"--on-new-leader": "zero negative too large a terminal's a directory",
		"--help":          free,
	}
	flag := regexp.MustCompile(`(?m)^ +(?:-[a-z], )?(--[a-z-]+)`)
	handle := p.url + "#term=1-ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	tried := map[string]bool{}
	for command, after := range map[string][]string{
		"run": {
			p.url,
			"--",
			"true",
		}, "elect": {p.url, "--", "true"}, "acquire": {p.url}, "renew": {handle}, "hold": {handle}, "release": {handle},
		"status": {p.url}, "list": {strings.TrimSuffix(p.url, "a")}, "watch": {p.url}, "break": {p.url},
		"doctor": {p.url}, "bench": {p.url},
	} {
		help := offline(t, command, "--help")
		help.succeeds(t)
		for _, found := range flag.FindAllStringSubmatch(help.out, -1) {
			name := found[1]
			tried[name] = true
			for kind, value := range values {
				if !strings.Contains(takes[name], kind) {
					refuses(t, p, command, name, kind, value, after)
				}
			}
		}
	}
	require.Greater(t, len(tried), 15)
	for name := range takes {
		require.True(t, tried[name], name)
	}
}

func refuses(t *testing.T, p place, command, name, kind, value string, after []string) {
	t.Run(strings.Join([]string{command, name, kind}, " "), func(t *testing.T) {
		t.Parallel()
		if name == "--handle-file" && command != "acquire" {
			after = nil
		}
		r := finish(t, p.command(append([]string{command, name + "=" + value}, after...)...))
		require.Equal(t, 64, r.code, "%s", r.stderr)
		require.Empty(t, r.out)
		plain(t, r.stderr, 1)
		if name == "--handle-file" && command != "acquire" && value == "" {
			require.Contains(t, r.stderr, "there is no handle")
			return
		}
		require.Contains(t, r.stderr, name)
	})
}
