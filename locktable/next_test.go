package locktable

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each row of the policy, in its order: what is different from a member at rest.
func TestNext(t *testing.T) {
	const now = 100 * time.Second
	at := func(seconds int) time.Duration { return time.Duration(seconds) * time.Second }
	for _, c := range []struct {
		when string
		is   func(s *snapshot)
		want action
	}{
		{"lost, a function runs", func(s *snapshot) { s.valid, s.busy = false, true }, action{rest, forever}},
		{"lost", func(s *snapshot) { s.valid, s.mustWrite = false, true }, action{do: end}},
		{"leaves, never joined", func(s *snapshot) {
			s.leaving, s.joined, s.current = true, false, false
		}, action{do: end}},
		{"leaves, refused for good", func(s *snapshot) {
			s.leaving, s.refused, s.differs = true, true, true
		}, action{do: end}},
		{"leaves, out of time", func(s *snapshot) {
			s.leaving, s.leaveBy, s.differs = true, now, true
		}, action{do: end}},
		{"leaves, out of time, a function runs", func(s *snapshot) {
			s.leaving, s.busy, s.parted, s.leaveBy, s.differs = true, true, true, now, true
		}, action{do: write}},
		{"pauses", func(s *snapshot) {
			s.pauseTill, s.mustWrite, s.current = at(101), true, false
		}, action{rest, at(101)}},
		{"pauses as it leaves", func(s *snapshot) { s.pauseTill, s.leaving = at(200), true }, action{rest, at(105)}},
		{"an old version", func(s *snapshot) { s.current, s.differs = false, true }, action{do: read}},
		{"leaves, a look before", func(s *snapshot) { s.leaving, s.differs = true, true }, action{do: read}},
		{"the poll is due", func(s *snapshot) { s.readAt, s.differs = now, true }, action{do: read}},
		{"no poll as it leaves", func(s *snapshot) {
			s.leaving, s.parted, s.readAt, s.differs = true, true, now, true
		}, action{do: write}},
		{"a write must follow", func(s *snapshot) { s.mustWrite, s.yieldTill = true, at(101) }, action{do: write}},
		{"differs", func(s *snapshot) { s.differs = true }, action{do: write}},
		{"differs, lets others write", func(s *snapshot) {
			s.differs, s.yieldTill = true, at(101)
		}, action{rest, at(101)}},
		{"differs, lets others write, a poll is due before", func(s *snapshot) {
			s.differs, s.yieldTill = true, at(110)
		}, action{rest, at(103)}},
		{"a try needs a newer version", func(s *snapshot) {
			s.outdated, s.differs, s.yieldTill = true, true, at(101)
		}, action{do: read}},
		{"a try needs a newer version, which a write is too", func(s *snapshot) {
			s.outdated, s.differs = true, true
		}, action{do: write}},
		{"hands over", func(s *snapshot) {
			s.differs, s.handsOver, s.yieldTill = true, true, at(101)
		}, action{do: write}},
		{"leaves, lets nobody write", func(s *snapshot) {
			s.leaving, s.busy, s.parted, s.differs, s.yieldTill = true, true, true, true, at(101)
		}, action{do: write}},
		{"is handed over", func(s *snapshot) { s.detaching = true }, action{do: detach}},
		{"is handed over, a write must follow", func(s *snapshot) {
			s.detaching, s.mustWrite = true, true
		}, action{do: write}},
		{"is handed over, differs", func(s *snapshot) { s.detaching, s.differs = true, true }, action{do: write}},
		{"is handed over, but leaves", func(s *snapshot) {
			s.detaching, s.leaving, s.parted = true, true, true
		}, action{do: end}},
		{"has left", func(s *snapshot) { s.leaving, s.parted = true, true }, action{do: end}},
		{"leaves, functions run", func(s *snapshot) {
			s.leaving, s.parted, s.busy = true, true, true
		}, action{rest, forever}},
		{"rests until the poll", func(*snapshot) {}, action{rest, at(103)}},
		{"rests until a look", func(s *snapshot) { s.lookAt = at(102) }, action{rest, at(102)}},
	} {
		t.Run(c.when, func(t *testing.T) {
			s := snapshot{
				valid: true, joined: true, current: true,
				leaveBy: at(105), readAt: at(103), lookAt: at(104), yieldTill: at(90),
			}
			c.is(&s)
			require.Equal(t, c.want, next(s, now))
		})
	}
}

// Whatever the snapshot is, the committer writes nothing that it must not, and does not spin.
func TestNextInEverySituation(t *testing.T) {
	const now = 100 * time.Second
	times := []time.Duration{never, now - 1, now, now + 1}
	for bits := range 1 << 12 {
		is := func(i int) bool { return bits>>i&1 == 1 }
		for i := range 1 << 10 {
			s := snapshot{
				is(0), is(1), is(2), is(3), is(4), is(5), is(6), is(7), is(8), is(9), is(10), is(11),
				times[i%4], times[i/4%4], times[i/16%4], times[i/64%4], times[i/256%4],
			}
			a := next(s, now)
			wrong := ""
			switch {
			case a.do == write && (!s.valid || !s.current || !s.differs && !s.mustWrite):
				wrong = "it must not write"
			case a.do == detach && (!s.valid || s.leaving || !s.current || s.differs || s.mustWrite || !s.detaching):
				wrong = "it must not be handed over"
			case a.do == end && (s.busy || s.valid && !s.leaving):
				wrong = "it must not end"
			case a.do == read && !s.valid:
				wrong = "it must not read"
			case a.do == rest && a.until <= now && (s.leaving || s.lookAt > now):
				wrong = "it would spin" // looks that are due begin before
			}
			if wrong != "" {
				t.Fatalf("%s: %+v", wrong, s)
			}
		}
	}
}
