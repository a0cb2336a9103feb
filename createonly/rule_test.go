package createonly_test

import (
	"fmt"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

// rules are when a read and a write count, by what a LIST shows after them.
type rules struct {
	keep  int
	read  func(w world, n int) bool // of version n
	write func(w world, n int) bool // of version n
}

func right(keep int) rules {
	below := func(w world, n int) bool { return w.highest() < n+keep }
	return rules{keep, below, below}
}

const (
	maxWriters = 3
	removers   = 2
)

// A writer lists, reads version n, lists again, creates n+1 and lists a last time. All of it may
// come late, or never.
const (
	idle = iota
	toRead
	toListAfterRead
	toCreate
	toListAfterCreate
)

// world is the bucket, with version 1 in bit 0, and what all are doing.
type world struct {
	objects, genuine uint8 // genuine versions were created over the highest
	writers          [maxWriters]struct {
		phase, n uint8
		genuine  bool // what it has read, or created
	}
	doomed [removers]uint8 // a version that is to be deleted, or 0
}

func (w world) highest() int                    { return bits.Len8(w.objects) }
func (w world) has(n int) bool                  { return w.objects>>(n-1)&1 == 1 }
func (w world) isGenuine(n int) bool            { return w.genuine>>(n-1)&1 == 1 }
func (w world) deletable(n int, r rules) bool   { return w.has(n) && n <= w.highest()-r.keep }
func (w *world) next(i int, phase uint8, n int) { w.writers[i].phase, w.writers[i].n = phase, uint8(n) }

// step carries out the next step of writer i. It returns what is wrong if a read or a write counts
// that must not, and false if there is no step. The last version is the highest that is written.
func (w *world) step(i, versions int, r rules) (wrong string, ok bool) {
	me := &w.writers[i]
	n := int(me.n)
	switch me.phase {
	case idle:
		w.next(i, toRead, w.highest())
	case toRead:
		me.genuine = w.isGenuine(n)
		w.next(i, toListAfterRead, n)
		if !w.has(n) {
			w.next(i, idle, 0)
		}
	case toListAfterRead:
		counts := r.read(*w, n)
		if counts && !me.genuine {
			return fmt.Sprintf("writer %d takes version %d for another", i, n), true
		}
		w.next(i, toCreate, n)
		if !counts {
			w.next(i, idle, 0)
		}
	case toCreate:
		switch {
		case n == versions:
			return "", false
		case w.has(n + 1):
			w.next(i, idle, 0)
			return "", true
		}
		me.genuine = w.highest() == n
		w.objects |= 1 << n
		w.genuine &^= 1 << n
		if me.genuine {
			w.genuine |= 1 << n
		}
		w.next(i, toListAfterCreate, n+1)
	case toListAfterCreate:
		if r.write(*w, n) && !me.genuine {
			return fmt.Sprintf("the write of version %d by writer %d counts, and it was too late", n, i), true
		}
		w.next(i, idle, 0)
	}
	if me.phase == idle {
		me.genuine = false
	}
	return "", true
}

// search goes through all schedules. It returns the number of worlds, and what is wrong in one.
func search(r rules, writers, versions int) (worlds int, wrong string) {
	start := world{objects: 1, genuine: 1}
	seen, queue := map[world]bool{start: true}, []world{start}
	add := func(w world) {
		if !seen[w] {
			seen[w] = true
			queue = append(queue, w)
		}
	}
	for len(queue) > 0 {
		w := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for i := range writers {
			after := w
			wrong, ok := after.step(i, versions, r)
			if wrong != "" {
				return len(seen), wrong
			}
			if ok {
				add(after)
			}
		}
		for j, doomed := range w.doomed {
			if doomed != 0 {
				after := w
				after.doomed[j] = 0
				after.objects &^= 1 << (doomed - 1)
				add(after)
				continue
			}
			for n := range versions {
				if w.deletable(n+1, r) {
					after := w
					after.doomed[j] = uint8(n + 1)
					add(after)
				}
			}
		}
	}
	return len(seen), ""
}

// TestTheRule goes through all schedules of writers that are late by any time, and of two deletes
// that are.
func TestTheRule(t *testing.T) {
	for _, c := range testsize.Pick([][3]int{{1, 2, 5}, {2, 2, 6}}, [][3]int{{1, 3, 5}, {2, 3, 6}, {3, 2, 8}}) {
		keep, writers, versions := c[0], c[1], c[2]
		worlds, wrong := search(right(keep), writers, versions)
		require.Empty(t, wrong)
		require.Greater(t, worlds, 10_000)
		t.Logf("%d worlds of %d writers that keep %d of %d versions", worlds, writers, keep, versions)
	}
}

func TestRulesThatLookRight(t *testing.T) {
	for name, change := range map[string]func(r *rules){
		"a write counts if it could be created": func(r *rules) { r.write = func(world, int) bool { return true } },
		"a write counts while its base is there": func(r *rules) {
			r.write = func(w world, n int) bool { return w.has(n - 1) }
		},
		"a write counts one version longer": func(r *rules) {
			r.write = func(w world, n int) bool { return w.highest() <= n+r.keep }
		},
		"a read counts if it finds the version": func(r *rules) { r.read = func(world, int) bool { return true } },
		"a read counts while its version is there": func(r *rules) {
			r.read = func(w world, n int) bool { return w.has(n) }
		},
		"a read counts one version longer": func(r *rules) {
			r.read = func(w world, n int) bool { return w.highest() <= n+r.keep }
		},
	} {
		for keep := 1; keep <= testsize.Pick(1, 2); keep++ {
			r := right(keep)
			change(&r)
			_, wrong := search(r, maxWriters, keep+4)
			require.NotEmpty(t, wrong, "%s, %d kept", name, keep)
		}
	}
}
