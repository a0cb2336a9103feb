package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// chart is a picture of bars, one for each system, with their figures at their ends.
type chart struct {
	Title    string // the question that it answers
	Unit     string // what the figures are
	Digits   int    // of a figure, after the point
	From, To float64
	Step     float64 // from one tick of the axis to the next
	Mark     float64 // that the bars are compared with; 0 for none
	MarkName string
	Lines    []line
}

// line is a bar, or the heading of the bars that follow. A thin line continues the bar to p99.
type line struct {
	Heading    string
	Name       string
	Class      string // of the style: what the colour says
	Value, P99 float64
}

const (
	ours    = "ours"
	others  = "others"
	notSafe = "Not safe: may lead before a slow clock has ended the old lease"
)

// risky are the systems that make no allowance for clocks.
var risky = []string{Plain, Litestream}

// bar colours the bar of a system.
func bar(peer, name string, value, p99 float64) line {
	class := others
	switch {
	case strings.HasPrefix(peer, Leasehold):
		class = ours
	case slices.Contains(risky, peer):
		class = "risky"
	}
	return line{Name: name, Class: class, Value: value, P99: p99}
}

// add adds bars below a heading, the lowest first.
func (c *chart) add(heading string, bars []line) {
	if heading != "" && len(bars) > 0 {
		c.Lines = append(c.Lines, line{Heading: heading})
	}
	slices.SortStableFunc(bars, func(a, b line) int { return cmp.Compare(a.Value, b.Value) })
	c.Lines = append(c.Lines, bars...)
	for _, b := range bars {
		c.To = max(c.To, b.Value, b.P99)
	}
}

// The pixels of a chart. The figure of the longest bar is right of the axis.
const (
	axisLeft, axisRight = 196, 700
	firstLine, lineStep = 76, 26
)

// X and Y are where a value and a line are.
func (c chart) X(v float64) int {
	return axisLeft + int(math.Round((axisRight-axisLeft)*(v-c.From)/(c.To-c.From)))
}
func (c chart) Y(line int) int { return firstLine + line*lineStep }

// End is where the bar, its line and the mark have ended, so that the figure has room.
func (c chart) End(l line) int { return c.X(max(l.Value, l.P99, c.Mark)) }

// Bottom is the height of the axis.
func (c chart) Bottom() int { return c.Y(len(c.Lines)) - lineStep/2 }

// Height is that of the picture.
func (c chart) Height() int { return c.Bottom() + 28 }

// Ticks are the values that the axis names.
func (c chart) Ticks() (list []float64) {
	for v := c.From; v <= c.To; v += c.Step {
		list = append(list, v)
	}
	return list
}

// darker turns the colours for light pages into those for dark ones.
var darker = strings.NewReplacer("#1f2328", "#e6edf3", "#59636e", "#9198a1", "#8c959f", "#656c76",
	"#0969da", "#58a6ff")

// charts are the pictures, by their names.
func (v view) charts() map[string]chart {
	list := map[string]chart{"takeover": v.afterCrash(), "crowd": v.amongEight()}
	for _, trip := range v.RoundTrips() {
		list["handover-"+inMillis(trip)] = v.afterRelease(trip)
	}
	return list
}

// inMillis is a round trip in the name of a file.
func inMillis(roundTrip float64) string { return fmt.Sprintf("%.0fms", 1000*roundTrip) }

func (v view) afterCrash() chart {
	ttl := v.Crash().TTL
	c := chart{
		Title: "How long does no process lead after a crash?",
		Unit: fmt.Sprintf("Median, in seconds since the last renewal, at a TTL of %v s. The axis starts at %[1]v s.",
			ttl),
		Digits: 1, From: ttl, Step: 1,
		Mark: 1.02 * ttl, MarkName: fmt.Sprintf("%.1f s: a clock that is 2 %% slow has counted a TTL", 1.02*ttl),
	}
	for _, group := range []struct {
		heading, where string
		systems        []string
	}{
		{"The candidates' clocks decide (in virtual time)", Virtual, []string{Leasehold, SafePlain, ClientGo}},
		{"The server's clock decides (in real time)", v.Places[0].Name, []string{Election, Mutex, Redislock}},
		{notSafe, Virtual, risky},
	} {
		var bars []line
		for _, t := range v.Takeovers {
			if t.Where == group.where && t.Case == Crash && t.Watched == 2 && t.TTL == ttl &&
				slices.Contains(group.systems, t.Peer) {
				bars = append(bars, bar(t.Peer, t.Peer, ttl*t.Time.P50.Value, ttl*t.Time.P99.Value))
			}
		}
		c.add(group.heading, bars)
	}
	return c
}

// afterRelease compares the four ways of leasehold with four others. All round trips have the same
// axis.
func (v view) afterRelease(roundTrip float64) chart {
	c := chart{
		Title: fmt.Sprintf("How long does no process lead after a release, at a round trip of %s?", ms(0, roundTrip)),
		Unit: fmt.Sprintf("Median, in milliseconds from the call of Release (leaderhttp: from the end of Run's "+
			"context). Polls: every %d s.", handoverPoll),
		Step: 200,
	}
	names := map[string]string{
		Leasehold: "leasehold, polls", Pushed: "leasehold, notification", Followed: Followed, Together: Together,
		Redislock: Redislock + ", polls", ClientGo: ClientGo + ", polls", Election: Election, Advisory: Advisory,
	}
	var bars []line
	for _, h := range v.Handovers {
		name, p50, p99 := names[h.Peer], 1000*h.FromCall.P50.Value, 1000*h.FromCall.P99.Value
		if name == "" || h.Way != usualWay(h.Peer) {
			continue
		}
		c.To = max(c.To, p99)
		if h.RoundTrip == roundTrip {
			bars = append(bars, bar(h.Peer, name, p50, p99))
		}
	}
	c.add("", bars)
	return c
}

func (v view) amongEight() chart {
	c := chart{
		Title: "How often does a lock with eight candidates change hands?",
		Unit: fmt.Sprintf("Hand-overs a second on %s. Candidates poll every %s. etcd watches, and the table gets "+
			"notifications.", v.Places[0].Name, ms(0, v.CrowdPoll)),
		Step: 10,
	}
	crowds := v.Turns(v.Places[0].Name)
	if v.Tables != nil {
		crowds = append(crowds, only(v.Tables.Crowds, func(t Crowd) bool { return t.Peer == TabledPushed })...)
	}
	var safe, unsafe []line
	for _, crowd := range crowds {
		if crowd.Candidates != 8 {
			continue
		}
		b := bar(crowd.Peer, strings.TrimSuffix(crowd.Peer, ", push"), crowd.Handovers.Value, 0)
		if slices.Contains(risky, crowd.Peer) {
			unsafe = append(unsafe, b)
		} else {
			safe = append(safe, b)
		}
	}
	c.add("", safe)
	c.add(notSafe, unsafe)
	return c
}
