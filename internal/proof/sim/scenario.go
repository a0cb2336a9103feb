package sim

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"
)

// Config describes one world before its run. NewConfig draws one from a seed.
type Config struct {
	Seed          uint64
	Nodes         int
	TTL           time.Duration
	Margin        time.Duration // the locks' safety margin
	Drift         float64       // the locks' clock drift allowance
	RateSpread    float64       // clock rates lie within 1 ± RateSpread
	Skew          time.Duration // wall clocks start within ± Skew of true time
	RequestFaults float64       // share of requests that go wrong
	Slow          bool          // every reply takes up to 3 seconds
	Ages          AgeSource
	BareETags     bool // the server of the real S3Store wants ETags without quotes
	TornReads     bool // some reads return a body with the ETag of the version before it
	Siblings      bool // several goroutines and electors of each process share one Lock
	// a client that knows only expires_at and token takes part, and time daemons keep wall clocks
	// within Skew
	Foreign bool
	Readers bool // a process watches and inspects the lock, and a third of its requests go wrong
	Pages   bool // some answers are 200 with a proxy's page
	// messages wake the processes when the object changes: some of them late, lost or repeated, and
	// some are forged
	Wakes bool
	// holders abandon some leases, half of the processes reclaim, and half of the electors run term
	// by term
	Abandons        bool
	Visitors        bool // processes that ask for the lock once take part, also when all others are gone
	TTLs            bool // each process has a TTL, a margin and a poll interval of its own
	Long            bool // the TTL is an hour or a day
	OneWriteASecond bool // more are refused
	// a create may take up to a TTL, or break off; meanwhile others are refused, and reads find
	// nothing
	SlowCreates bool
	HashETags   bool // the ETag is a hash of the body, so a restored version comes back with its own
	Tried       bool // locks do not know that the store enforces conditions
	Copies      bool // all machines are copies of one
	CreateOnly  bool // objects can only be created, and package createonly makes a store of them
	Handles     bool // holders give the handles of some terms to other processes, which resume them
	Offers      bool // holders offer the lock to others before they release it
	Chaos       time.Duration
	Actions     []Action // in order of time
}

// AgeSource says where Object.Age comes from, and whether it is true.
type AgeSource string

// The sources of Object.Age.
const (
	NoAges AgeSource = "no ages"
	// true in the first reply that shows a version, hours too high in all others
	ReportedAges AgeSource = "ages reported"
	// always hours too high: leases may overlap, but only within a bound
	WrongAges AgeSource = "wrong ages reported"
	// by a clock of the store that is stepped now and then, so also negative: as above
	SteppedAges AgeSource = "stepped ages"
	// the real S3Store, on a store whose clock is off and stepped, or behind a wrong proxy
	IgnoredDates AgeSource = "wrong dates, ignored"
	TrustedDates AgeSource = "dates trusted" // the real S3Store, with dates that give ReportedAges
)

// real reports whether the real S3Store is used.
func (a AgeSource) real() bool { return a == IgnoredDates || a == TrustedDates }

// wrong reports whether the ages that the locks believe may be wrong, so that leases may overlap.
func (a AgeSource) wrong() bool { return a == WrongAges || a == SteppedAges }

// Action is one thing that happens to a node.
type Action struct {
	At   time.Duration // since the start of the run
	Node int
	Kind string
	For  time.Duration // until it is undone
	Step time.Duration // of the wall clock, if Kind steps it
}

func (a Action) String() string {
	return fmt.Sprintf("%v node%d %s for %v (%v)", a.At.Round(time.Millisecond), a.Node, a.Kind,
		a.For.Round(time.Millisecond), a.Step.Round(time.Millisecond))
}

// The more frequent kinds are listed twice.
var actionKinds = []string{
	"partition", "partition", "suspend", "suspend, wall clock set back", "pause",
	"pause, wall clock set right", "crash and restart",
	"crash and restart", "crash and reclaim", "resign", "break", "step wall clock", "stop and start",
	"outage", "forged wake-ups",
}

// NewConfig draws the world of a seed.
func NewConfig(seed uint64) *Config {
	r := rand.New(rand.NewPCG(seed, 0))
	c := &Config{
		Seed:          seed,
		Nodes:         2 + r.IntN(3),
		TTL:           15 * time.Second,
		Ages:          []AgeSource{NoAges, ReportedAges}[r.IntN(2)],
		RequestFaults: []float64{0, 0.05, 0.2}[r.IntN(3)],
	}
	c.Foreign, c.Slow = r.IntN(6) == 0, r.IntN(4) == 0
	c.Skew = []time.Duration{0, time.Minute, 2 * time.Hour}[r.IntN(3)]
	if c.Foreign {
		c.Skew = foreignSkew
	}
	c.drawClockBounds(r)
	c.Chaos = 10 * c.TTL
	c.drawActions(r)
	if r.IntN(40) == 0 { // rarely, because the real S3 client is slow
		c.Ages = []AgeSource{IgnoredDates, TrustedDates}[r.IntN(2)]
		c.BareETags = seed%2 == 0
	} else if r.IntN(10) == 0 {
		c.Ages = []AgeSource{WrongAges, SteppedAges}[r.IntN(2)]
	}
	c.Siblings = r.IntN(3) == 0
	c.TornReads = c.Ages == NoAges && r.IntN(3) == 0
	c.Readers, c.Pages = r.IntN(4) == 0, r.IntN(5) == 0
	c.Wakes = r.IntN(4) == 0
	c.drawAbandons()
	c.drawStores()
	c.drawCopies()
	c.drawRestores()
	c.drawHandles()
	c.drawOffers()
	c.TTLs = c.rng("TTLs").IntN(4) == 0
	c.drawVisitors()
	c.drawLongTTL()
	return c
}

// Force adds what the name says to a drawn world: a field of Config that is true or false, such as
// SlowCreates, or a kind of action, such as "forged wake-ups", twice within the first two TTLs.
func (c *Config) Force(name string) error {
	if slices.Contains(actionKinds, name) {
		r := c.rng("forced", name)
		for range 2 {
			c.add(Action{At: below(r, 2*c.TTL), Node: r.IntN(c.Nodes), Kind: name, For: below(r, 2*c.TTL)})
		}
		return nil
	}
	field := reflect.ValueOf(c).Elem().FieldByName(name)
	if !field.IsValid() || field.Kind() != reflect.Bool {
		return fmt.Errorf("%q is neither a field of Config that is true or false nor a kind of action: %q",
			name, actionKinds)
	}
	field.SetBool(true)
	return nil
}

// drawClockBounds draws options and clock rates with which leases cannot overlap:
// (1-margin/TTL)(1+spread)/(1-spread) is at most 1+drift, because of the drift allowance, the
// margin, or both.
func (c *Config) drawClockBounds(r *rand.Rand) {
	switch r.IntN(4) {
	case 0:
		c.Margin, c.Drift, c.RateSpread = c.TTL/100, 0.02, 0.0099
	case 1:
		c.Margin, c.Drift, c.RateSpread = c.TTL/100, 0.1, 0.047
	case 2:
		c.Margin, c.Drift, c.RateSpread = c.TTL/5, 0.02, 0.01
	case 3:
		c.Margin, c.Drift, c.RateSpread = c.TTL/5, 0.02, 0.1
	}
}

func (c *Config) drawActions(r *rand.Rand) {
	steady := r.IntN(2) == 0 // no wall clock is stepped, so that wall clocks reveal a pause
	for range r.IntN(8) {
		a := c.anything(r, actionKinds, 2*c.TTL)
		switch {
		case a.Kind == "step wall clock" && (c.Foreign || steady):
			a.Kind = "partition"
		case a.Kind == "pause" && c.Foreign:
			a.Kind = "pause, wall clock set right"
		case a.Kind == "suspend, wall clock set back" && c.Foreign:
			a.Kind = "suspend"
		case a.Kind == "pause, wall clock set right" && !steady && !c.Foreign:
			a.Kind = "pause"
		}
		c.add(a)
	}
}

// below draws a duration below d.
func below(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// sometime draws when something happens, and to which node.
func (c *Config) sometime(r *rand.Rand, kind string) Action {
	return Action{At: below(r, c.Chaos*7/10), Node: r.IntN(c.Nodes), Kind: kind}
}

// anything draws something of these kinds that lasts less than most.
func (c *Config) anything(r *rand.Rand, kinds []string, most time.Duration) Action {
	a := c.sometime(r, "")
	a.Kind, a.For, a.Step = kinds[r.IntN(len(kinds))], below(r, most), below(r, 4*time.Hour)-2*time.Hour
	return a
}

// allCrash draws a crash of all nodes within a short time. They stay away for longer than a TTL.
func (c *Config) allCrash(r *rand.Rand, most time.Duration) {
	from := below(r, c.Chaos/3)
	for node := range c.Nodes {
		at := from + below(r, c.TTL/5)
		c.add(Action{At: at, Node: node, Kind: "crash and restart", For: 2*c.longest() + below(r, most)})
	}
}

func (c *Config) add(a Action) {
	c.Actions = append(c.Actions, a)
	slices.SortFunc(c.Actions, func(a, b Action) int { return int(a.At - b.At) })
}
