package docs_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page names what the files of the proof have: their actions, the parts of their invariants,
// and the parties that answer for guards.
func TestWhyItIsSafeNamesWhatTheProofHas(t *testing.T) {
	page, err := os.ReadFile("why-it-is-safe.md")
	require.NoError(t, err)
	quoted := regexp.MustCompile("`([A-Za-z]+)`")
	known, marks := map[string]bool{"TestVariants": true, "TestEachGuardIsNeeded": true, "WithReclaim": true,
		"Resume": true, "Break": true, "Lock": true, "decide": true, "TestDecideFollowsTheProof": true},
		make(map[string]bool)
	for _, file := range []string{"lease.spec", "tables.spec"} {
		text, err := os.ReadFile("../internal/proof/invariant/" + file)
		require.NoError(t, err)
		code := regexp.MustCompile(`;.*`).ReplaceAllString(string(text), "")
		actions := regexp.MustCompile(`(?m)^\(action (\w+)`).FindAllStringSubmatch(code, -1)
		parts := make(map[string]bool)
		for _, m := range regexp.MustCompile(`(?m)^\(invariant (\w+)`).FindAllStringSubmatch(code, -1) {
			parts[m[1]] = true
		}
		for _, row := range cells(t, "why-it-is-safe.md", "| part of "+file+" | theorem |") {
			for _, name := range quoted.FindAllStringSubmatch(row[0], -1) {
				require.True(t, parts[name[1]], "%s has no part %s", file, name[1])
			}
		}
		for _, m := range actions {
			known[m[1]] = true
			if file == "lease.spec" && regexp.MustCompile(`^(acq|res|ren|rel|br|cop|lan|lea|see)`).MatchString(m[1]) {
				require.Contains(t, string(page), "`"+m[1]+"`")
			}
		}
		if file == "lease.spec" {
			require.Contains(t, string(page), fmt.Sprintf("%d actions", len(actions)))
			require.Contains(t, string(page), fmt.Sprintf("%d lines", strings.Count(string(text), "\n")/10*10))
		}
		for part := range parts {
			known[part] = true
		}
		guard := regexp.MustCompile(`\((code|store|clock|user|knows|root) \(`)
		for _, m := range guard.FindAllStringSubmatch(code, -1) {
			marks[m[1]] = true
		}
	}
	rows := cells(t, "why-it-is-safe.md", "| guard | who answers | what it says |")
	require.Len(t, rows, len(marks))
	for _, row := range rows {
		require.True(t, marks[strings.Trim(row[0], "`")], row[0])
		known[strings.Trim(row[0], "`")] = true
	}
	for _, name := range quoted.FindAllStringSubmatch(string(page), -1) {
		require.True(t, known[name[1]], "neither file has %s", name[1])
	}
}
