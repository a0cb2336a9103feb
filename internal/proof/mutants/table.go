package main

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mutants are the mistakes that are planted. They stand in files of text, by the part of the code
// that they change. A row begins with the name of the mutant. "promise" is the number of the
// promise in docs/evidence/README.md that it would break. Without one it costs time, or is of a
// part of which no promise speaks. "by" is a check that must catch it alone: the name of a check,
// or a package and a pattern of tests. After the arrow stands what it found last; -record writes
// that. "in" is a file, the lines with a minus are its code, and those with a plus take their
// place.
var mutants, badRow = embedded()

//go:embed rows/*.txt
var rowFiles embed.FS

func embedded() (all []mutant, err error) {
	names, err := fs.Glob(rowFiles, "rows/*.txt")
	for _, name := range names {
		text, _ := rowFiles.ReadFile(name)
		some, bad := parse(string(text))
		if err = cmp.Or(err, bad); bad != nil {
			err = fmt.Errorf("%s: %w", name, bad)
		}
		for i := range some {
			some[i].file = path.Base(name)
		}
		all = append(all, some...)
	}
	return all, err
}

// mutant is a mistake.
type mutant struct {
	name    string
	promise int // 0 if none speaks of it
	by      []check
	edits   []edit
	file    string // the file of rows that has it
}

// check is a check that must catch a mutant, and what it found when it last ran.
type check struct{ name, found string }

const arrow = " => "

// parse reads a file of rows.
func parse(text string) (all []mutant, err error) {
	bad := func(m mutant, line string) error {
		return fmt.Errorf("mutant %q: no line of a row: %q", m.name, line)
	}
	for row := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n\n") {
		name, rest, ok := strings.Cut(strings.TrimPrefix(row, "## "), "\n")
		m := mutant{name: name}
		if !ok || !strings.HasPrefix(row, "## ") {
			return nil, bad(m, row)
		}
		var old, planted []string
		end := func() {
			if len(m.edits) > 0 {
				e := &m.edits[len(m.edits)-1]
				e.old, e.new = strings.Join(old, "\n"), strings.Join(planted, "\n")
			}
			old, planted = nil, nil
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(rest, "\n"), "\n") {
			word, says, _ := strings.Cut(line, " ")
			switch {
			case strings.HasPrefix(line, "-") && len(m.edits) > 0 && planted == nil:
				old = append(old, line[1:])
			case strings.HasPrefix(line, "+") && len(m.edits) > 0:
				planted = append(planted, line[1:])
			case word == "in":
				end()
				m.edits = append(m.edits, edit{file: says})
			case word == "by" && len(m.edits) == 0:
				name, found, _ := strings.Cut(says, arrow)
				m.by = append(m.by, check{name, found})
			case word == "promise" && len(m.by) == 0:
				if m.promise, err = strconv.Atoi(says); err != nil {
					return nil, bad(m, line)
				}
			default:
				return nil, bad(m, line)
			}
		}
		end()
		all = append(all, m)
	}
	return all, nil
}

// row is the text of a mutant in its file.
func (m mutant) row() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n", m.name)
	if m.promise > 0 {
		fmt.Fprintf(&b, "promise %d\n", m.promise)
	}
	for _, c := range m.by {
		b.WriteString(strings.TrimSuffix("by "+c.name+arrow+c.found, arrow) + "\n")
	}
	for _, e := range m.edits {
		fmt.Fprintf(&b, "in %s\n-%s\n", e.file, strings.ReplaceAll(e.old, "\n", "\n-"))
		if e.new != "" {
			fmt.Fprintf(&b, "+%s\n", strings.ReplaceAll(e.new, "\n", "\n+"))
		}
	}
	return b.String()
}

// cells are what the checks of each column found when they last ran.
func (m mutant) cells() (cells [len(columns)]string) {
	for _, c := range m.by {
		i := slices.Index(columns[:], column(c.name))
		cells[i] = strings.TrimPrefix(cells[i]+", "+cmp.Or(c.found, "not run"), ", ")
	}
	return cells
}

//go:embed page.md
var pageText string

// page is docs/evidence/mutants.md: its text, with the table in it.
func page(of []mutant) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| mutant | promise | %s |\n|%s\n", strings.Join(columns[:], " | "),
		strings.Repeat(" --- |", 2+len(columns)))
	for _, m := range of {
		cells := m.cells()
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.name, strings.TrimPrefix(strconv.Itoa(m.promise), "0"),
			strings.Join(cells[:], " | "))
	}
	return strings.Replace(pageText, "<!-- rows -->\n", b.String(), 1)
}

// write writes the files of rows and the page.
func write(of []mutant) error {
	texts := make(map[string][]string)
	for _, m := range of {
		texts[m.file] = append(texts[m.file], m.row())
	}
	for name, rows := range texts {
		err := os.WriteFile(filepath.Join("internal/proof/mutants/rows", name), []byte(strings.Join(rows, "\n")), 0o644)
		if err != nil {
			return err
		}
	}
	return os.WriteFile("docs/evidence/mutants.md", []byte(page(of)), 0o644)
}

// Checks that are not just tests of a package.
const (
	worlds       = "simulation"
	fencedWorlds = "simulation of fenced writes"
	search       = "search"
)

// columns of the page, in which docs/evidence/README.md shows the checks.
var columns = [...]string{"simulation", "search", "real servers", "tests"}

// column is the column of a check.
func column(check string) string {
	switch {
	case check == worlds, check == fencedWorlds:
		return columns[0]
	case check == search:
		return columns[1]
	case strings.HasPrefix(check, "./itest "):
		return columns[2]
	}
	return columns[3]
}

// testsThatCatch are the package of a check's tests, and the pattern of their names. There is none
// for a check that is not just tests of a package.
func testsThatCatch(check string) (pkg string, names *regexp.Regexp) {
	pkg, pattern, ok := strings.Cut(check, " -run ")
	if !ok {
		return "", nil
	}
	pattern, _, _ = strings.Cut(pattern, "/") // what follows are names within a test
	return pkg, regexp.MustCompile(pattern)
}
