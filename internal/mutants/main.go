// Command mutants plants the classic mistakes of distributed locks into a copy of the code, one at a time, and shows
// which check catches each: the simulation, and after how many worlds, the exhaustive search, or the unit tests. A survivor
// is a hole in the checks, and fails the run.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// edit replaces one piece of code, which must be there exactly once.
type edit struct{ file, old, new string }

type mutant struct {
	name  string
	edits []edit
}

var mutants = []mutant{
	{"no nonce", []edit{{"lock.go", `return l.id + strconv.FormatUint(l.seq.Add(1), 36)`, `return strconv.FormatUint(0, 36)`}}},
	{"validity of an acquisition counted from the reply", []edit{{"lock.go", `written := &version{`, `sent = l.o.clock.Now()
	written := &version{`}}},
	{"validity of a renewal counted from the reply", []edit{{"lease.go", `	if err == nil {
		t.landed(etag, write{rec, sent})`, `	if err == nil {
		t.landed(etag, write{rec, l.o.clock.Now()})`}}},
	{"412 on a renewal taken as lost at once", []edit{{"lease.go", `	// Refused: by a write of ours`, `	if errors.Is(err, ErrPreconditionFailed) {
		return t.lose(err)
	}
	// Refused: by a write of ours`}}},
	{"any error on a renewal taken as lost at once", []edit{{"lease.go", `		return err // nothing is known yet`, `		return t.lose(err) // nothing is known yet`}}},
	{"404 on a renewal taken as lost at once", []edit{{"lease.go", `	// Refused: by a write of ours`, `	if errors.Is(err, ErrNotExist) {
		return t.lose(err)
	}
	// Refused: by a write of ours`}}},
	{"412 on an acquisition taken as held by another", []edit{{"lock.go", `case now.exists && now.rec.Nonce == rec.Nonce:
			etag = now.etag
`, `case now.exists && now.rec.Nonce == rec.Nonce && !errors.Is(err, ErrPreconditionFailed):
			etag = now.etag
`}, {"lock.go", `own: l.wrote(v.rec),`, `own: false,`}}},
	{"release by DELETE", []edit{{"lease.go", `		err := t.put(ctx, func(r *Record) { r.ExpiresAt = time.Time{} })`, `		err := t.lock.store.DeleteIfMatch(ctx, t.lock.key, t.at.etag)`}}},
	{"wall clock in the takeover rule", []edit{{"record.go", `if wait := o.withDrift(r.TTL) - s.age; wait > 0 {`, `if wait := r.ExpiresAt.Sub(s.wall); wait > 0 {`}}},
	{"token reset at release", []edit{{"lease.go", `func(r *Record) { r.ExpiresAt = time.Time{} }`, `func(r *Record) { r.ExpiresAt, r.Token = time.Time{}, 0 }`}}},
	{"token not raised at a takeover", []edit{{"lock.go", `token := max(v.rec.Token, l.highest) + 1`, `token := max(v.rec.Token, l.highest, 1)`}}},
	{"the SDK's retryer left on", []edit{{"s3store.go", `		o.Retryer = aws.NopRetryer{}
`, `		_ = aws.NopRetryer{}
`}}},
	{"takeover without drift allowance", []edit{{"record.go", `return time.Duration(float64(ttl) * (1 + o.drift))`, `return ttl`}}},
	{"no safety margin", []edit{{"lease.go", `return t.lock.o.ttl - t.lock.o.margin - t.lock`, `return t.lock.o.ttl - t.lock`}}},
	{"released while the callback runs", []edit{{"elector.go", `	term.callback.Wait()
`, ``}}},
	{"renewals stop when the callback is told to", []edit{{"lease.go", `t.until = t.lock.o.clock.Now().Mono + t.lock.o.ttl`, `t.until = t.lock.o.clock.Now().Mono`}}},
	{"renewals go on for as long as the callback takes", []edit{{"lease.go", `t.state != held || t.lock.o.clock.Now().Mono >= t.until`, `t.state != held`}}},
	{"BOOTTIME ignored", []edit{{"internal/clock/clock.go", ` + max(r.Boot-start.Boot-d, 0)`, ``}}},
	{"wall clock of the holder ignored", []edit{{"internal/clock/clock.go", ` + max(r.Wall-start.Wall-d, 0)`, ``}}},
	{"only the clock that has counted most believed", []edit{{"internal/clock/clock.go", `d + max(r.Wall-start.Wall-d, 0) + max(r.Boot-start.Boot-d, 0)`,
		`max(d, r.Wall-start.Wall, r.Boot-start.Boot)`}}},
	{"age of one version counted for the next", []edit{{"lock.go", `if l.last != nil && v.exists && v.same(l.last) {`, `if l.last != nil && v.exists && l.last.exists {`}}},
	{"age counted from before the read", []edit{{"lock.go", `asked: asked, seen: l.o.clock.Now().Mono}`, `asked: asked, seen: l.o.clock.Now().Mono - l.o.ttl/10}`}}},
	{"a lost lease comes back with a late renewal", []edit{{"lease.go", `		_ = t.lose(errRanOut)
	}
	return ok && !ranOut`, `		ok = false
	}
	return ok && !ranOut`}, {"lease.go", `	if ranOut {
		_ = t.lose(errRanOut)
	}
	if overran`, `	if overran`}}},
	{"one's own leftover waited out", []edit{{"lock.go", `own: l.wrote(v.rec),`, `own: false,`}}},
	{"ownership judged by name", []edit{{"lease.go", `return w.rec.Nonce == v.rec.Nonce })`, `return w.rec.Holder == v.rec.Holder })`}}},
	{"reclaim by every namesake", []edit{{"record.go", `case s.named && o.reclaim:`, `case s.named:`}}},
	{"a reply lost on release forgotten", []edit{{"lease.go", `		case permanent(err), t.lock.o.clock`, `		case err != nil, t.lock.o.clock`}}},
	{"a record of no TTL trusted to the second", []edit{{"record.go", `r.ExpiresAt.Add(o.skew).Sub(s.wall)`, `r.ExpiresAt.Sub(s.wall)`}}},
	{"a corrupt record taken for free", []edit{{"lock.go", `			l.forget()
			return nil, fmt.Errorf("lock %q: %w (a person`, `			v.exists, v.etag = true, obj.ETag
			return v, nil
			return nil, fmt.Errorf("lock %q: %w (a person`}}},
	{"an empty record taken for free", []edit{{"record.go", `	if expires == nil {
		return corrupt("no expires_at")
	}`, `	if expires == nil {
		expires = new(seconds)
	}`}}},

	// fenced writes
	{"fenced: a higher token overwritten", []edit{{"fencedstore.go", `case v.token > w.token:`, `case v.token > w.token && false:`}}},
	{"fenced: written without a condition", []edit{{"fencedstore.go", `		return &v.etag, nil
	}
	return nil, aws.String("*")`, `		return nil, nil
	}
	return nil, nil`}}},
	{"fenced: created without a condition", []edit{{"fencedstore.go", `	return nil, aws.String("*")
}`, `	return nil, nil
}`}}},
	{"fenced: no padding", []edit{{"fencedstore.go", `if s.versions == PaddedBodies || w.meta`, `if w.meta`}}},
	{"fenced: all tombstones alike", []edit{{"fencedstore.go", `if s.versions == PaddedBodies || w.meta[metaGone] != "" {`, `if s.versions == PaddedBodies {`}}},
	{"fenced: seals only what exists", []edit{{"fencedstore.go", `if v.exists && v.token == token {`, `if !v.exists || v.token == token {`}}},
	{"fenced: seals what it read, not what it looked at", []edit{{"fencedstore.go", `if aws.ToString(out.ETag) != v.etag {
			return errConflict
		}`, `v.etag = aws.ToString(out.ETag)`}}},
	{"fenced: seal keeps the old token", []edit{{"fencedstore.go", `		again.meta = o.Metadata
`, `		again.meta = o.Metadata
		again.token = max(o.Token, 1)
`}}},
	{"fenced: a refusal taken as done", []edit{{"fencedstore.go", `		if permanent(err) || ctx.Err() != nil`, `		if errors.Is(err, ErrPreconditionFailed) {
			return nil
		}
		if permanent(err) || ctx.Err() != nil`}}},
	{"fenced: own landed write not recognised", []edit{{"fencedstore.go", `case v.exists && v.nonce == w.nonce:`, `case false:`}}},
	{"fenced: padding shown to readers", []edit{{"fencedstore.go", `size := aws.ToInt64(out.ContentLength) - pad`, `size := aws.ToInt64(out.ContentLength) - pad*0`}}},
}

// fenced reports whether the mutant is one of FencedStore, which has a simulation of its own.
func (m mutant) fenced() bool { return m.edits[0].file == "fencedstore.go" }

func main() {
	seeds := flag.Int("seeds", 4000, "worlds that a mutant must survive before the unit tests are asked")
	all := flag.Bool("all", false, "run every check, not just up to the first that catches the mutant")
	only := flag.String("only", "", "run only mutants whose name contains this")
	flag.Parse()
	root, err := os.Getwd()
	check(err)
	dir, err := os.MkdirTemp("", "mutants")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	check(os.CopyFS(filepath.Join(dir, "internal"), os.DirFS(filepath.Join(root, "internal"))))
	check(os.CopyFS(filepath.Join(dir, "storetest"), os.DirFS(filepath.Join(root, "storetest"))))
	files, err := filepath.Glob(filepath.Join(root, "*.go"))
	check(err)
	for _, f := range append(files, filepath.Join(root, "go.mod"), filepath.Join(root, "go.sum")) {
		if name := filepath.Base(f); name != "readme_test.go" && name != "example_test.go" {
			body, err := os.ReadFile(f)
			check(err)
			check(os.WriteFile(filepath.Join(dir, name), body, 0o644))
		}
	}
	for _, m := range mutants {
		for _, e := range m.edits {
			body, err := os.ReadFile(filepath.Join(dir, e.file))
			check(err)
			if n := bytes.Count(body, []byte(e.old)); n != 1 {
				check(fmt.Errorf("mutant %q: %s has %d places to change, not 1", m.name, e.file, n))
			}
		}
	}
	survivors := 0
	fmt.Printf("| mutant | simulation: after how many worlds | exhaustive search | unit tests |\n| --- | --- | --- | --- |\n")
	for _, m := range mutants {
		if !strings.Contains(m.name, *only) {
			continue
		}
		by := m.try(dir, *seeds, *all)
		if by == [3]string{} {
			by[0] = "**NOTHING**"
			survivors++
		}
		fmt.Printf("| %s | %s | %s | %s |\n", m.name, by[0], by[1], by[2])
	}
	if survivors > 0 {
		fmt.Fprintf(os.Stderr, "%d mutants survived\n", survivors)
		_ = os.RemoveAll(dir)
		os.Exit(1)
	}
}

// try plants the mutant, runs the checks, and puts the code back. It returns what each check has found, if anything.
func (m mutant) try(dir string, seeds int, all bool) (by [3]string) {
	for _, e := range m.edits {
		path := filepath.Join(dir, e.file)
		body, err := os.ReadFile(path)
		check(err)
		check(os.WriteFile(path, bytes.Replace(body, []byte(e.old), []byte(e.new), 1), 0o644))
		defer func() { check(os.WriteFile(path, body, 0o644)) }()
	}
	worlds, test := []string{"SEEDS=" + fmt.Sprint(seeds)}, "TestSeeds"
	if m.fenced() {
		worlds, test = []string{"FENCED=" + fmt.Sprint(seeds/4)}, "TestFencedSeeds"
	}
	if out, ok := run(dir, worlds, "./internal/sim", "-run", test); !ok {
		if found := after.FindStringSubmatch(out); found != nil {
			by[0] = "after " + found[1] + ": " + firstViolation(out)
		} else {
			by[0] = summary(out)
		}
		if !all {
			return by
		}
	}
	if !m.fenced() { // the search runs no fenced writes
		if out, ok := run(dir, nil, "./internal/explore", "-run", "TestAll/(no_faults|a_suspend|a_fault)$"); !ok {
			by[1] = firstExplored(out)
			if !all {
				return by
			}
		}
	}
	if out, ok := run(dir, nil, "-short", "."); !ok {
		by[2] = summary(out)
	}
	return by
}

var (
	explored = regexp.MustCompile(`explore_test.go:\d+: ([a-zA-Z].*)`)
	after    = regexp.MustCompile(`after (\d+) worlds`)
	failed   = regexp.MustCompile(`--- FAIL: (\w+)`)
)

func firstViolation(out string) string {
	_, rest, _ := strings.Cut(out, "violations:\n")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

func firstExplored(out string) string {
	if found := explored.FindStringSubmatch(out); found != nil {
		return found[1]
	}
	return summary(out)
}

func summary(out string) string {
	if found := failed.FindAllStringSubmatch(out, -1); found != nil {
		names := found[0][1]
		if len(found) > 1 {
			names += fmt.Sprintf(" and %d more", len(found)-1)
		}
		return names
	}
	if strings.Contains(out, "build failed") || strings.Contains(out, "setup failed") {
		check(fmt.Errorf("the mutant does not build:\n%s", out))
	}
	if strings.Contains(out, "test timed out") || strings.Contains(out, "deadlock") {
		return "tests hang"
	}
	line, _, _ := strings.Cut(out, "\n")
	return line
}

func run(dir string, env []string, args ...string) (out string, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-vet=off", "-count=1", "-timeout=90s"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "GOWORK=off"), env...)
	body, err := cmd.CombinedOutput()
	return string(body), err == nil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}
