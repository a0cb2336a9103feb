// Command mutate makes small changes to the root package, one at a time, and runs the simulation and the short tests on each: other
// operators, negated conditions, statements left out, flipped booleans. A mutant that survives shows a gap in the checks or code that
// has no effect: a person must look. All mutants are compiled into one program, in a copy of the work tree.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
)

var (
	sample  = flag.Int("sample", 0, "try this number of mutants; 0 for all")
	seed    = flag.Uint64("seed", 1, "of the order in which mutants are tried, and so of the sample")
	only    = flag.Int("only", 0, "try only the mutant with this number, and show the output of what killed it")
	workers = flag.Int("p", runtime.GOMAXPROCS(0), "mutants tried at the same time")
	strict  = flag.Bool("strict", false, "fail if a mutant survives")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := copyCode(dir); err != nil {
		return err
	}
	all, dropped, err := plant(dir)
	if err != nil {
		return err
	}
	fmt.Printf("%d mutants, and %d that do not compile\n", len(all), dropped)
	mutants := choose(all)
	if len(mutants) == 0 {
		return errors.New("there is no such mutant")
	}
	stages, err := prepare(ctx, dir)
	if err != nil {
		return err
	}
	counts, survivors := tryAll(ctx, stages, mutants)
	fmt.Printf("\n%d killed, %d timed out, %d survived\n", counts[killed], counts[timedOut], counts[survived])
	slices.SortFunc(survivors, func(a, b *mutant) int { return a.n - b.n })
	for _, m := range survivors {
		fmt.Printf("%v\n\t%s\n", m, m.line)
	}
	if *strict && len(survivors) > 0 {
		return errors.New("mutants survived")
	}
	return ctx.Err()
}

// choose puts the mutants into the order of the seed, so that a run that is interrupted has tried a fair sample.
func choose(all []*mutant) (chosen []*mutant) {
	for _, i := range rand.New(rand.NewPCG(*seed, 0)).Perm(len(all)) {
		if (*only == 0 || all[i].n == *only) && (*sample == 0 || len(chosen) < *sample) {
			chosen = append(chosen, all[i])
		}
	}
	return chosen
}

// tryAll tries the mutants, several at the same time, until the context ends.
func tryAll(ctx context.Context, stages []*stage, mutants []*mutant) (counts map[outcome]int, survivors []*mutant) {
	queue := make(chan *mutant, len(mutants))
	for _, m := range mutants {
		queue <- m
	}
	close(queue)
	counts = make(map[outcome]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	done := 0
	for range *workers {
		wg.Go(func() {
			for m := range queue {
				result, where, out := try(ctx, stages, m.n)
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				done++
				counts[result]++
				if result == survived {
					survivors = append(survivors, m)
				}
				fmt.Printf("%d/%d %-9s %-15s %v\n", done, len(mutants), result, where, m)
				if *only != 0 {
					fmt.Printf("%s", out)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return counts, survivors
}

// copyCode copies the work tree without what begins with a dot.
func copyCode(to string) error {
	entries, err := os.ReadDir(".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case strings.HasPrefix(name, "."):
		case e.IsDir():
			err = os.CopyFS(filepath.Join(to, name), os.DirFS(name))
		default:
			var body []byte
			if body, err = os.ReadFile(name); err == nil {
				err = os.WriteFile(filepath.Join(to, name), body, 0o644)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
