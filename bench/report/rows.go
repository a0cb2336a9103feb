package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// order is that of the systems in tables.
var order = []string{
	Leasehold, Pushed, PushedNew, Followed, Together, Clocked, SafePlain, Plain, Litestream, ClientGo, Election, Mutex,
	Redislock, Advisory,
}

// system panics for a name that no system has, so that none is renamed without the templates.
func system(name string) string {
	if name != TabledPushed && !slices.Contains(order, name) {
		panic("no system is called " + name)
	}
	return name
}

// view is what templates see: the data, and the rows and figures that are made of it.
type view struct{ *Data }

// only returns the entries of a list that are wanted.
func only[T any](list []T, wanted func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(v T) bool { return !wanted(v) })
}

// shown are the rows of the tables on the page. The page of tables has all.
type shown struct {
	Crashes  []crash
	Releases []Handover
	Turns    []Crowd
	Electors []Electors
}

// shownTrip is the round trip of the hand-overs that are shown.
const shownTrip = 0.02

// Shown picks one round trip, one number of candidates and one of electors.
func (v view) Shown() shown {
	return shown{
		only(v.Crashes(), func(c crash) bool { return c.Case == Crash && c.Watched == 2 }),
		only(v.Handovers, func(h Handover) bool { return h.Way == usualWay(h.Peer) && h.RoundTrip == shownTrip }),
		only(v.Turns(v.Places[0].Name), func(c Crowd) bool { return c.Candidates == 8 }),
		only(v.Electors, func(e Electors) bool { return e.Electors == 10_000 }),
	}
}

func (d *Data) takeover(where, peer, name string, watched float64) *Takeover {
	for i, v := range d.Takeovers {
		if v.Where == where && v.Peer == peer && v.Case == name && v.Watched == watched {
			return &d.Takeovers[i]
		}
	}
	return nil
}

// longestTTL is a peer's takeover on a real server with the longest TTL that was measured.
func (d *Data) longestTTL(peer string) (longest *Takeover) {
	for i, v := range d.Takeovers {
		if v.Where == d.Places[0].Name && v.Peer == peer && (longest == nil || v.TTL > longest.TTL) {
			longest = &d.Takeovers[i]
		}
	}
	return longest
}

// Crash is leasehold's takeover that stands for all.
func (v view) Crash() *Takeover { return v.takeover(Virtual, Leasehold, Crash, 2) }

// crash is a takeover in virtual time, and how its median differs from that of leasehold.
type crash struct {
	Takeover
	Difference string
}

// Crashes are the takeovers in virtual time.
func (v view) Crashes() (list []crash) {
	for _, t := range only(v.Takeovers, func(t Takeover) bool { return t.Where == Virtual }) {
		difference := ""
		if ours := v.takeover(Virtual, Leasehold, t.Case, t.Watched); ours != nil && t.Peer != Leasehold {
			difference = fmt.Sprintf("%+.2f", t.Time.P50.Value-ours.Time.P50.Value)
		}
		list = append(list, crash{t, difference})
	}
	return list
}

// InRealTime are the takeovers on real servers, without those of PostgreSQL, which has no TTL.
func (v view) InRealTime() []Takeover {
	return only(v.Takeovers, func(t Takeover) bool { return t.Where != Virtual && t.Peer != Advisory })
}

// OnServer are the takeovers of a peer on the server that all are measured on.
func (v view) OnServer(peer string) []Takeover {
	return only(v.Takeovers, func(t Takeover) bool { return t.Where == v.Places[0].Name && t.Peer == system(peer) })
}

// EndOfConnection is the takeover of PostgreSQL's lock; nil if it was not measured.
func (v view) EndOfConnection() *Takeover { return v.longestTTL(Advisory) }

// availability is what one crash and ten releases a day add up to.
type availability struct {
	TTL, Gone float64 // seconds, and in a month
	Led       float64 // part of the time
}

// Availability is that of leasehold without a push channel, for some TTLs.
func (v view) Availability() (list []availability) {
	crash, release := v.Crash().Time.P50.Value, polls(v.Polled().FromCall.P50.Value)/5
	for _, ttl := range []float64{5, 15, 30, 60} {
		gone := 30 * (crash*ttl + 10*release*ttl)
		list = append(list, availability{ttl, gone, 1 - gone/(30*24*3600)})
	}
	return list
}

// usualWay is how a system hands over where one way stands for all.
func usualWay(peer string) string {
	if peer == Followed { // only electors have it
		return Stop
	}
	return Release
}

// handed are the hand-overs of a system in its usual way, from the shortest to the longest round
// trip; none if it was not measured, for its server may be missing.
func handed(list []Handover, peer string) []Handover {
	return only(list, func(h Handover) bool { return h.Peer == system(peer) && h.Way == usualWay(peer) })
}

// farthest is the last of handed; nil if there is none.
func farthest(list []Handover, peer string) *Handover {
	list = handed(list, peer)
	if len(list) == 0 {
		return nil
	}
	return &list[len(list)-1]
}

// RoundTrips are those that the hand-overs were measured with.
func (v view) RoundTrips() (list []float64) {
	for _, h := range handed(v.Handovers, Leasehold) {
		list = append(list, h.RoundTrip)
	}
	return list
}

// Polled is leasehold's hand-over by polling.
func (v view) Polled() Handover { return handed(v.Handovers, Leasehold)[0] }

// handoverPoll is the poll interval of the measured hand-overs, in seconds.
const handoverPoll = 1

// polls is a time of a hand-over in poll intervals.
func polls(seconds float64) float64 { return seconds / handoverPoll }

// trips is a hand-over in round trips.
func trips(f Figure, h Handover) Figure {
	trip := h.Trip.P50.Value
	return Figure{f.Value / trip, f.Low / trip, f.High / trip}
}

// Turns are the crowds on a server.
func (v view) Turns(place string) (list []Crowd) {
	for _, peer := range order {
		list = append(list, only(v.Crowds, func(c Crowd) bool { return c.Place == place && c.Peer == peer })...)
	}
	return list
}

// eight is a peer's crowd of eight; nil if it was not measured.
func eight(list []Crowd, peer string) *Crowd {
	i := slices.IndexFunc(list, func(c Crowd) bool { return c.Candidates == 8 && c.Peer == system(peer) })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// inOrder sorts runs that were made in a random order.
func inOrder(runs []Crowd) []Crowd {
	return slices.SortedStableFunc(slices.Values(runs), func(a, b Crowd) int {
		return cmp.Or(cmp.Compare(a.Candidates, b.Candidates), -cmp.Compare(a.Peer, b.Peer))
	})
}

// Extra is what a renewal takes over the bare PUT, in seconds, and ExtraAllocs are its allocations.
func (v view) Extra() float64       { return v.Own.Renew.P50.Value - v.Own.Put.P50.Value }
func (v view) ExtraAllocs() float64 { return v.Counts.RenewAllocs - v.Counts.PutAllocs }

// Lost are the leases that many electors have lost.
func (v view) Lost() (n int) {
	for _, e := range v.Electors {
		n += e.Lost
	}
	return n
}

// Worst is the kind of elector that takes the most memory, and WorstOfMost that among the largest
// crowds.
func (v view) Worst() Memory { return slices.MaxFunc(v.Memory, byBytes) }

func (v view) WorstOfMost() Memory {
	return slices.MaxFunc(v.Memory, func(a, b Memory) int {
		return cmp.Or(cmp.Compare(a.Electors, b.Electors), byBytes(a, b))
	})
}

func byBytes(a, b Memory) int { return cmp.Compare(a.Bytes(), b.Bytes()) }

// Servers are those that the bench has used.
func (v view) Servers() string {
	list, last := v.Places[0].Name, "one etcd member"
	for _, peer := range []string{Redislock, Advisory} {
		if farthest(v.Handovers, peer) != nil {
			list, last = list+", "+last, "one "+Server(peer)
		}
	}
	return list + " and " + last
}

// Go is the release of Go, and Resamples how often an interval has drawn a sample.
func (v view) Go() string   { return strings.Replace(v.Machine.Go, "go", "Go ", 1) }
func (view) Resamples() int { return resamples }
