package invariant

import (
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

// effort limits what z3 may do for one obligation, in its own count of steps, which no load of the
// machine changes. It is some ten times what the hardest needs, and less than five seconds. An
// obligation that needs more is a defect: split the part of the invariant, or add a lemma.
const effort = 1_000_000

// prove asks z3 for each obligation, in a process of its own, and returns what is open, with z3's
// answer: sat, or unknown if the effort was not enough.
func prove(t *testing.T, all []Obligation) (open map[Obligation]string) {
	t.Helper()
	z3 := testserver.Z3(t)
	var mu sync.Mutex
	var wg sync.WaitGroup
	work := make(chan Obligation)
	open = make(map[Obligation]string)
	most, hardest := 0, ""
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for o := range work {
				answers := strings.SplitN(ask(z3, o.SMT+"(get-info :rlimit)\n"), "\n", 2)
				used := 0
				_, err := fmt.Sscanf(answers[len(answers)-1], "(:rlimit %d)", &used)
				mu.Lock()
				if err != nil {
					t.Errorf("%s/%s: z3 says %q", o.Action, o.Part, answers)
				}
				if answers[0] != "unsat" {
					open[o] = answers[0]
				} else if used > most {
					most, hardest = used, o.Action+"/"+o.Part
				}
				mu.Unlock()
			}
		})
	}
	for _, o := range all {
		work <- o
	}
	close(work)
	wg.Wait()
	t.Logf("%d obligations, %d open, the hardest takes %d of %d steps: %s", len(all), len(open), most, effort, hardest)
	return open
}

// ask returns what z3 answers to a text.
func ask(z3, text string) string {
	c := exec.Command(z3, "-in", "-T:300", fmt.Sprint("rlimit=", effort))
	c.Stdin = strings.NewReader(text)
	out, _ := c.CombinedOutput() // z3 ends with 1 after an error, which stands in its output
	return string(out)
}

// Each step keeps each part of the invariant.
func TestInvariant(t *testing.T) {
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			for o, answer := range prove(t, Parse(text).Obligations(nil)) {
				t.Errorf("%s does not keep %s: z3 says %s", o.Action, o.Part, answer)
			}
		})
	}
}

var texts = map[string]string{"lease": LeaseText, "tables": TablesText}

// With another condition the proof falls, or holds, where it should.
func TestVariants(t *testing.T) {
	for _, v := range []struct {
		name     string
		old, now string
		falls    string // at this part, or holds
	}{
		{"no bound on clocks", "(<= (life w) (wait p w))", "true", "acquireExpired/pending"},
		{
			"the wait is by the candidate's own TTL",
			"(action acquireExpired|(>= age (wait p v))", "(>= age (wait p w))", "acquireExpired/pending",
		},
		{
			"the TTL of a term that a restore has lost is longer than any that the candidate knows",
			"(action acquireOld |(<= (life m) (waitOld p v))", "true", "acquireOld/pending",
		},
		{
			"a restored version has its old ETag, and a write over it is under way",
			"(action restore|(not (sent w)) (old w)", "(old w)", "restore/pending",
		},
		{
			"Resume after a TTL of one's own",
			"(action resume|(over v)", "(>= now (+ (sentR v) (life w)))", "resume/pending",
		},
		{"Resume only after the lease before has ended", "(action resume|(over v)", "(ended (of v))", "resume/"},
		{
			"the object of a member is removed while it holds its lock",
			"(action remove|(code (rel v))", "(code (landed v))", "remove/others",
		},
		{
			"a copy of a machine that holds a lease, or has sent what would begin one",
			"(action copy|(forall ((w W)) (=> (owns p w) (ended (of w))))", "true", "copy/owned",
		},
	} {
		t.Run(v.name, func(t *testing.T) {
			before, old := "", v.old
			if after, text, ok := strings.Cut(v.old, "|"); ok {
				head, _, _ := strings.Cut(LeaseText, after)
				before, old = head, text
			}
			rest := strings.TrimPrefix(LeaseText, before)
			require.True(t, strings.Contains(rest, old), "the file has no %s", old)
			action, part, _ := strings.Cut(v.falls, "/")
			var own []Obligation
			for _, o := range Parse(before + strings.Replace(rest, old, v.now, 1)).Obligations(nil) {
				if o.Action == action {
					own = append(own, o)
				}
			}
			var open []string
			for o := range prove(t, own) {
				open = append(open, o.Part)
			}
			if part == "" {
				require.Empty(t, open)
			} else {
				require.Contains(t, open, part)
			}
		})
	}
}

// Without a guard the proof of its action falls; the files say so of a guard of which that is not
// true.
func TestEachGuardIsNeeded(t *testing.T) {
	if !testsize.Full() {
		t.Skip("a quarter of an hour: at full size only")
	}
	for name, text := range texts {
		s := Parse(text)
		for _, a := range s.actions {
			for i, g := range a.guards {
				t.Run(fmt.Sprintf("%s/%s/%v", name, a.name, g.term), func(t *testing.T) {
					all := s.Obligations(func(action string, guard int) bool { return action == a.name && guard == i })
					all = slices.DeleteFunc(all, func(o Obligation) bool { return o.Action != a.name })
					open := prove(t, all)
					if g.spare {
						require.Empty(t, open)
					} else {
						require.NotEmpty(t, open)
					}
				})
			}
		}
	}
}
