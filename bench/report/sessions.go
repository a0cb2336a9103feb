package report

import (
	"fmt"
	"slices"
	"strings"
)

// when says when a part was measured, and of what code.
func (r *Run) when() string {
	changed := ""
	if r.Dirty {
		changed = ", with changes"
	}
	return fmt.Sprintf("Measured on %s at commit %s%s, in %.0f minutes", r.Date, r.Commit, changed, r.Minutes)
}

func (m Machine) goVersion() string { return strings.Replace(m.Go, "go", "Go ", 1) }

// where says when and where a part was measured.
func (r *Run) where() string {
	return fmt.Sprintf("%s: %d cores of %s with %.0f GiB, which the servers and etcd share; %s on %s, kernel %s.",
		r.when(), r.Machine.Cores, r.Machine.CPU, r.Machine.GiB, r.Machine.goVersion(), r.Machine.OS, r.Machine.Kernel)
}

// dollars returns the cost of a month of 730 hours, by S3's list prices of November 2026.
func (r Requests) dollars() float64 { return 730 * (r.PutHour*0.005 + r.GetHour*0.0004) / 1000 }

// under returns what a process sends for the locks of so many sessions.
func under(list []Requests, sessions int) Requests {
	return list[slices.IndexFunc(list, func(r Requests) bool { return r.Sessions == sessions })]
}

// weight is that of one state of a lock.
func (s *Sessions) weight(state string) Memory {
	return s.Weights[slices.IndexFunc(s.Weights, func(m Memory) bool { return m.State == state })]
}

// end returns the trials of a peer, in the order of their times.
func (s *Sessions) end(peer, way string) End {
	e := s.Ends[slices.IndexFunc(s.Ends, func(e End) bool { return e.Peer == peer && e.Way == way })]
	e.Trials = slices.Clone(e.Trials)
	slices.SortFunc(e.Trials, func(a, b EndTrial) int {
		switch {
		case a.All < b.All:
			return -1
		case a.All > b.All:
			return 1
		}
		return 0
	})
	return e
}

func (e End) median() EndTrial { return e.Trials[(len(e.Trials)-1)/2] }

// allowed is the time in which all locks of a process that dies are to be led again.
func (e End) allowed(trial EndTrial) float64 { return 1.1*e.TTL + trial.Bare }

// tightest is the trial that came closest to its limit, or missed it by most.
func (e End) tightest() EndTrial {
	return slices.MaxFunc(e.Trials, func(a, b EndTrial) int {
		if a.All-e.allowed(a) < b.All-e.allowed(b) {
			return -1
		}
		return 1
	})
}

// looked is the share of the locks that are looked at in a TTL.
func (s *Sessions) looked(r Requests) float64 {
	return r.LockGetHour / 3600 * defaultTTL / float64(s.Locks)
}

// defaultTTL is in seconds.
const defaultTTL = 15

func kib(bytes float64) string { return fmt.Sprintf("%.2f KiB", bytes/1024) }

// sessions is the section of many locks under one session.
func (d *Data) sessions(say sayer, put putter) {
	s := &d.Sessions
	if s.Locks == 0 { // not measured yet
		return
	}
	locks := thousands(s.Locks)
	say("## Sessions")
	say("A process has %s locks that lean on one session. `make bench-sessions` measures this section alone. %s In the minute before, %.1f processes wanted a core.", locks, s.where(), s.Load)
	v := newVerdicts()
	check := v.check
	hold := under(s.Holding, 1)
	check("PUTs in a renew interval of a process that holds all locks: median", "1", fmt.Sprintf("%.0f, and %d to other objects than the session", hold.Puts.P50.Value, hold.OtherPuts),
		hold.Puts.P50.Value <= 1 && hold.OtherPuts == 0, "the session is written more often than once an interval.")
	for _, w := range s.Waiting {
		if w.Sessions > 0 {
			check(fmt.Sprintf("GETs in a poll interval of a process that waits for the locks of %s, without those of the locks: median", plural(w.Sessions, "session")),
				fmt.Sprintf("≤ %d", w.Sessions+1), fmt.Sprintf("%.0f", w.SessionGets.P50.Value), w.SessionGets.P50.Value <= float64(w.Sessions)+1,
				"the sessions are read more often than once a poll interval.")
			check(fmt.Sprintf("locks of %s that a waiting process looks at", plural(w.Sessions, "session")), "1 % a TTL", fmt.Sprintf("%.2f %% a TTL", 100*s.looked(w)), s.looked(w) <= 0.0105,
				"locks are looked at more often than every 100 TTLs.")
		}
	}
	lease := s.weight(LeaseHeld)
	check("memory of a held lease, beside its lock", "≤ 1 KiB", kib(lease.Bytes()), lease.Bytes() <= 1024,
		"the largest of its objects are the term, the version of the record that it has written, two channels and a context.")
	check("goroutines of a held lease", "0", fmt.Sprintf("%.1f", lease.Goroutines), lease.Goroutines < 0.05, "goroutines were left when they were counted.")
	loss := s.Loss
	ms := func(seconds float64) string { return fmt.Sprintf("%.1f ms", 1000*seconds) }
	check(fmt.Sprintf("loss: from the end of the session to that of the last of %s contexts, the longest of %d", locks, loss.Last.N), "≤ 50 ms", ms(float64(loss.Last.Longest)),
		loss.Last.Longest <= 0.05, fmt.Sprintf("the contexts are ended one after the other, and each starts a goroutine that notes the time. Other programs wanted the cores too: %.1f in the minute before the measurements.", s.Load))
	check("contexts that ended after another process sealed the session", "0", fmt.Sprintf("%d; the last one ended %s before it, at least", loss.Late, ms(float64(loss.Ahead.Least))), loss.Late == 0,
		"the process did not run for longer than the safety margin.")
	if len(s.Ends) > 0 {
		dies := s.end(Leasehold, Dies)
		tight := dies.tightest()
		check("a process dies: all locks are led again by two others, in each trial", fmt.Sprintf("≤ 1.1 TTL + %s bare requests", thousands(2*s.Locks)),
			fmt.Sprintf("%.1f s; allowed %.1f s", tight.All, dies.allowed(tight)), tight.All <= dies.allowed(tight), fmt.Sprintf(
				"both survivors try to take every lock, so they send %s requests instead of %s. The cores that send them are those that answer them.", thousands(tight.Requests), thousands(2*s.Locks)))
		graceful := s.end(Leasehold, EndsGracefully)
		own := slices.MaxFunc(graceful.Trials, func(a, b EndTrial) int { return a.Own - b.Own }).Own
		check("graceful end of a process that holds all locks", "1 PUT", plural(own, "PUT"), own == 1, "a renewal came while the functions returned.")
	}
	v.write(put)

	say("### Requests of a process with %s locks", locks)
	say("At the HTTP level, with default settings, in virtual time and over the SDK. Renewals come up to a twentieth of their interval early, so a few intervals have two. " +
		"A process looks at each lock every 100 TTLs. Of the locks without a session, one in ten was observed, and counts ten times.")
	var t table
	t.head("", "interval", "intervals", "PUT: median", "most", "GET of sessions: median", "p99", "most", "GET of locks: median", "p99", "most", "PUT an hour", "GET an hour", "dollars a month")
	requests := func(what string, r Requests) {
		n := func(f float64) string { return thousands(int(f + 0.5)) }
		t.row(what, fmt.Sprintf("%.0f s", r.Interval), r.Intervals, n(r.Puts.P50.Value), n(float64(r.Puts.Longest)), n(r.SessionGets.P50.Value), n(r.SessionGets.P99.Value), n(float64(r.SessionGets.Longest)),
			n(r.LockGets.P50.Value), n(r.LockGets.P99.Value), n(float64(r.LockGets.Longest)), n(r.PutHour), n(r.GetHour), "$"+cents(r.dollars()))
	}
	for _, r := range s.Holding {
		if r.Sessions > 0 {
			requests("holds all, under one session", r)
		} else {
			requests("holds all, each renewed", r)
		}
	}
	for _, r := range s.Waiting {
		if r.Sessions > 0 {
			requests("waits for all, of "+plural(r.Sessions, "session"), r)
		} else {
			requests("waits for all, each polled", r)
		}
	}
	put(&t)
	say("Dollars are S3's list prices of November 2026. A process that waits pays for its own session too. All locks were waited for from the same moment on, so the looks at them come in bursts.")

	say("### Memory of a lease")
	t = table{}
	t.head("of each", "goroutines", "heap", "stacks", "together")
	for _, m := range s.Weights {
		t.row(m.State, fmt.Sprintf("%.1f", m.Goroutines), kib(m.Heap), kib(m.Stacks), kib(m.Bytes()))
	}
	put(&t)
	say("What the process has grown by, after a garbage collection, divided by the %s locks: first by `Session.Lock`, then by `Lock.Acquire` through the SDK. The keys, the server's memory and what the caller "+
		"runs under a lease are not counted. After the end, the lock remembers its last term.", locks)

	say("### Loss")
	say("A process is cut off from the store, with a TTL of %.0f s. The session ends by the clock, one safety margin before the TTL. Each context has a function that runs when it ends (`context.AfterFunc`) and notes "+
		"the time. Another process waits for one of the locks, and seals the session.", loss.TTL)
	t = table{}
	t.head("", "losses", "median", "least", "longest")
	for _, row := range []struct {
		what string
		s    Sample
	}{
		{"from the session's end to that of the last context", loss.Last}, {"from the first context to the last", loss.Spread}, {"from the last context to the seal", loss.Ahead},
	} {
		t.row(row.what, row.s.N, ms(row.s.P50.Value), ms(float64(row.s.Least)), ms(float64(row.s.Longest)))
	}
	put(&t)

	if len(s.Ends) == 0 {
		say("Not measured yet: how fast two other processes take over, side by side with etcd.")
		return
	}
	s.ends(say, put)
}

// ends is the section of processes that end.
func (s *Sessions) ends(say sayer, put putter) {
	locks, dies := thousands(s.Locks), s.end(Leasehold, Dies)
	say("### A process ends, and two others take over")
	say("The default TTL of %.0f s. The process dies at a random point between two renewals, or its session is ended as the guide tells. Two processes wait, with an elector for each lock and a session each, which acquires %d "+
		"locks at a time. The time counts from the last renewal, or from the call. Bare requests are a GET and a conditional PUT of each lock, with %d under way, in the same trial on the same server.", dies.TTL, s.InFlight, 2*s.InFlight)
	say("On etcd the %s keys belong to one lease. Two clients watch the keys and claim what is deleted, from both ends, in transactions of %d keys, with %d under way.", locks, 100, 8)
	var t table
	t.head("", "the process", "trials", "first lock led", "all led: median", "longest", "in TTL", "bare requests", "requests of both", "its own writes", "its functions had returned before the first was led")
	for _, e := range s.Ends {
		e = s.end(e.Peer, e.Way)
		m := e.median()
		bare, ahead, own := "", "", ""
		if e.Peer == Leasehold {
			bare, ahead = fmt.Sprintf("%.1f s", m.Bare), fmt.Sprintf("%.2f s", slices.MinFunc(e.Trials, func(a, b EndTrial) int {
				if a.Ahead < b.Ahead {
					return -1
				}
				return 1
			}).Ahead)
		}
		if e.Way == EndsGracefully {
			own = fmt.Sprint(m.Own)
		}
		t.row(e.Peer, e.Way, len(e.Trials), fmt.Sprintf("%.2f s", m.First), fmt.Sprintf("%.2f s", m.All), fmt.Sprintf("%.2f s", e.Trials[len(e.Trials)-1].All), fmt.Sprintf("%.2f", m.All/e.TTL), bare,
			thousands(m.Requests), own, ahead)
	}
	put(&t)
	say("Safety: leasehold's candidates allow 2 %% of drift, its leader stops TTL/5 earlier, and each lock has a token that survives its release. On etcd the server's clock decides, the key's revision is the token, and a "+
		"client that is paused does not notice that its lease is over. Durability: %s is one server on one drive, and etcd is one member that writes its log to disk before it answers, one write for each transaction of %d keys. "+
		"In production etcd has three members or five, and each transaction waits for two or three disks.", "minio", 100)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// cents is an amount of dollars with two decimals.
func cents(f float64) string {
	whole, rest, _ := strings.Cut(fmt.Sprintf("%.2f", f), ".")
	n := 0
	_, _ = fmt.Sscan(whole, &n)
	return thousands(n) + "." + rest
}
