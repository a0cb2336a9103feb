package sim

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// journal is what a run tells: its violations, its counts and, if asked for, its trace.
type journal struct {
	began  time.Time
	traced bool
	occurred

	mu         sync.Mutex // guards what follows
	trace      []string
	violations []string
	stats      Stats
}

func newJournal(trace bool) journal {
	return journal{began: time.Now(), traced: trace, stats: Stats{Runs: 1, Events: make(map[string]int)}}
}

// counts changes the counts.
func (j *journal) counts(change func(s *Stats)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&j.stats)
}

func (j *journal) log(who, format string, args ...any) {
	if !j.traced {
		return
	}
	line := j.line(who, fmt.Sprintf(format, args...))
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trace = append(j.trace, line)
}

func (j *journal) line(who, text string) string {
	return fmt.Sprintf("%14.6f  %-8s %s", time.Since(j.began).Seconds(), who, text)
}

func (j *journal) violate(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.violateLocked(format, args...)
}

func (j *journal) violateLocked(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	j.violations = append(j.violations, text)
	if j.traced {
		j.trace = append(j.trace, j.line("!!!!", text))
	}
}

// outcome is the result of the run, which is over.
func (j *journal) outcome() Outcome {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stats.Virtual, j.stats.Situations = time.Since(j.began), j.reached()
	slices.Sort(j.trace) // the lines of one instant arrive in any order
	return Outcome{Violations: j.violations, Trace: j.trace, Stats: j.stats}
}
