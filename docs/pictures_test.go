package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A picture has a size, and a title and a description for screen readers. Its dark variant differs
// in the colours of its style block. Pages show both, and the timeline shows the takeover that was
// measured.
func TestPictures(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(text)
	}
	style, colour := regexp.MustCompile(`(?s)<style>.*</style>`), regexp.MustCompile(`#[0-9a-f]{3,6}\b`)
	paths, err := filepath.Glob("*/*.svg") // img has what bench/report renders
	require.NoError(t, err)
	shown := make(map[string]bool)
	for page, prefix := range map[string]string{
		"../README.md": "docs/", "concepts.md": "", "performance.md": "", "evidence/performance-tables.md": "../",
	} {
		picture := regexp.MustCompile(`<picture><source media="\(prefers-color-scheme: dark\)" ` +
			`srcset="(.*)-dark\.svg">\n<img src="(.*)\.svg" alt="[^"]+"></picture>`)
		for _, m := range picture.FindAllStringSubmatch(read(page), -1) {
			require.Equal(t, m[1], m[2], page)
			light := strings.TrimPrefix(m[2], prefix)
			shown[light+".svg"], shown[light+"-dark.svg"] = true, true
		}
	}
	require.Len(t, paths, len(shown), "each picture is on a page, and each page's picture is here")
	for _, path := range paths {
		require.True(t, shown[path], path)
		light, dark := read(strings.Replace(path, "-dark.svg", ".svg", 1)), read(path)
		for _, pattern := range []string{
			` viewBox="0 0 \d+ \d+" role="img" aria-labelledby="t d">`, `<title id="t">[^<]+</title>`,
			`<desc id="d">[^<]+</desc>`,
		} {
			require.Regexp(t, pattern, dark, path)
		}
		require.Equal(t, strings.HasSuffix(path, "-dark.svg"), style.FindString(light) != style.FindString(dark), path)
		require.Equal(t, style.ReplaceAllString(light, ""), style.ReplaceAllString(dark, ""), path)
		require.Equal(t, colour.ReplaceAllString(light, ""), colour.ReplaceAllString(dark, ""), path)
	}
	measured := regexp.MustCompile(`<!-- bench:takeover -->(\S+ s) after`).FindStringSubmatch(read("../README.md"))
	require.NotNil(t, measured)
	require.Contains(t, read("pictures/timeline.svg"), ">"+measured[1]+"</text>")
}
