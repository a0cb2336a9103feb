package tables

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/storeapi"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// Decode reads a table. It allows white space and any order of members. Anything else that Encode
// would not write is an error that matches leasehold.ErrCorruptRecord, unknown members too: the
// next write would lose them. If it is no table at all, the error says what it is. It does not ask
// that all is granted that could be, because the next Finish does that.
func Decode(body []byte) (*Table, error) {
	d := decoder{rest: string(body), size: len(body), t: New()} // names are parts of one string: no allocation for each
	if !utf8.Valid(body) {
		d.fail("not UTF-8")
	}
	d.table()
	if d.err == nil {
		return d.t, nil
	}
	var later struct {
		Table float64 `json:"table"`
	}
	if json.Unmarshal(body, &later) == nil && later.Table > version {
		d.err = fmt.Errorf("a table of version %v: only a later release can read it", later.Table)
	}
	return nil, cmp.Or(wire.Misplaced(wire.Table, body), error(&storeapi.Error{
		Kind: leasehold.ErrCorruptRecord, Cause: fmt.Errorf("corrupt table: %w", d.err),
		Hint: "inspect the object, then repair it by hand",
	}))
}

// maxTTL is far above any that a lock can have, and a time.Duration holds it.
const maxTTL = 100 * 365 * 24 * time.Hour

// decoder reads JSON of one shape. After an error there is no rest, so nothing more is read.
type decoder struct {
	rest string
	size int // of the whole
	err  error
	t    *Table
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("at byte %d: "+format, append([]any{d.size - len(d.rest)}, args...)...)
		d.rest = ""
	}
}

func (d *decoder) table() {
	terms := map[Term]string{}
	var requests [2][]*Request // that hold, that wait
	d.members("table", map[string]func(){
		"table":    func() { d.number(version, version) },
		"revision": func() { d.t.Revision = d.number(0, leasehold.MaxToken) },
		"nonce":    func() { d.t.Nonce = d.text() },
		"members": func() {
			for number := range d.object() {
				m := d.member()
				if other, ok := terms[m.Term]; ok {
					d.fail("the members %s and %s have one term", other, number)
				}
				terms[m.Term] = number
				d.t.members[d.integer(number, 1, leasehold.MaxToken)] = m
			}
		},
		"held":    func() { requests[0] = d.requests(true) },
		"waiting": func() { requests[1] = d.requests(false) },
	})
	if d.take(""); d.rest != "" {
		d.fail("more than a table")
	}
	all := slices.Concat(requests[:]...)
	d.t.requests, d.t.locks = make(map[ID]*Request, len(all)), make(map[string]*lock, len(all))
	for _, r := range all { // now that the members are known
		if d.err == nil {
			d.err = d.add(r)
		}
	}
}

func (d *decoder) member() (m Member) {
	d.members("member", map[string]func(){
		"name":  func() { m.Name = d.text() },
		"key":   func() { m.Key = d.text() },
		"id":    func() { m.ObjectID = d.text() },
		"term":  func() { m.TermID = d.text() },
		"token": func() { m.Token = d.number(1, leasehold.MaxToken) },
		"ttl":   func() { m.TTL = d.seconds() },
		"metadata": func() {
			m.Metadata = map[string]string{}
			for name := range d.object() {
				m.Metadata[name] = d.text()
			}
		},
	})
	if m.Key == "" || m.ObjectID == "" || m.TermID == "" {
		d.fail("a key, an id or a term is empty")
	}
	return m
}

// requests reads what appendRequests writes.
func (d *decoder) requests(held bool) (list []*Request) {
	for d.need("["); d.err == nil && !d.take("]"); {
		if list != nil {
			d.need(",")
		}
		r := &Request{}
		d.need("[")
		r.Member = d.number(1, leasehold.MaxToken)
		d.need(",")
		r.Number = d.number(0, leasehold.MaxToken)
		if held {
			d.need(",")
			r.Token = d.number(1, leasehold.MaxToken)
		}
		for d.take(",") {
			r.Claims = append(r.Claims, d.claim())
		}
		d.need("]")
		list = append(list, r)
	}
	return list
}

func (d *decoder) claim() (c Claim) {
	if !d.take("[") {
		c.Name = d.text()
		return c
	}
	c.Name = d.text()
	d.need(",")
	if c.Shared = d.take(`"s"`); !c.Shared {
		c.Slots = int(d.number(1, maxCapacity))
		d.need(",")
		c.Of = int(d.number(1, maxCapacity))
	}
	d.need("]")
	return c
}

func (d *decoder) add(r *Request) error {
	slices.SortFunc(r.Claims, Claim.byName)
	if err := d.t.admit(r); err != nil {
		return err
	}
	if r.Token > d.t.Revision {
		return fmt.Errorf("the token %d is above the revision %d", r.Token, d.t.Revision)
	}
	// Held requests are in the order of their grants, and each was granted by its own capacity.
	for _, c := range r.Claims {
		if l := d.t.locks[c.Name]; r.Token != 0 && l != nil && !(front{}).lets(c, l.held) {
			return fmt.Errorf("lock %.80q is held by requests that exclude one another", c.Name)
		}
	}
	d.t.add(r)
	return nil
}

// take skips white space, and then what is given if it is there.
func (d *decoder) take(what string) (ok bool) {
	for d.rest != "" && (d.rest[0] == ' ' || d.rest[0] == '\n' || d.rest[0] == '\r' || d.rest[0] == '\t') {
		d.rest = d.rest[1:]
	}
	d.rest, ok = strings.CutPrefix(d.rest, what)
	return ok
}

func (d *decoder) need(what string) {
	if !d.take(what) {
		d.fail("no %s", what)
	}
}

// object reads the frame of an object whose values the body of the loop reads. A name that is there
// twice is an error, because readers differ in which of the values they take.
func (d *decoder) object() iter.Seq[string] {
	return func(yield func(string) bool) {
		seen := map[string]bool{}
		for d.need("{"); d.err == nil && !d.take("}"); {
			if len(seen) > 0 {
				d.need(",")
			}
			name := d.text()
			if seen[name] {
				d.fail("%.80q is there twice", name)
			}
			seen[name] = true
			d.need(":")
			if d.err != nil || !yield(name) {
				return
			}
		}
	}
}

// members reads an object that has these members, all but metadata.
func (d *decoder) members(of string, read map[string]func()) {
	for name := range d.object() {
		if read[name] == nil {
			d.fail("a %s has no member %.80q", of, name)
			return
		}
		read[name]()
		delete(read, name)
	}
	delete(read, "metadata")
	for name := range read {
		d.fail("the member %q of a %s is missing", name, of)
	}
}

func (d *decoder) text() (s string) {
	d.take("")
	end := 1
	for end < len(d.rest) && d.rest[end] != '"' {
		if d.rest[end] == '\\' {
			end++ // of a pair, the second ends nothing
		}
		end++
	}
	if end >= len(d.rest) || d.rest[0] != '"' {
		d.fail("no text")
		return ""
	}
	raw := d.rest[:end+1]
	d.rest = d.rest[end+1:]
	if s = raw[1:end]; strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == '\\' }) {
		d.unmarshal(raw, &s)
	}
	return s
}

func (d *decoder) unmarshal(text string, into any) {
	if err := json.Unmarshal([]byte(text), into); err != nil {
		d.fail("%.80q: %w", text, err)
	}
}

// word reads what may be a number.
func (d *decoder) word() (word string) {
	d.take("")
	end := 0
	for end < len(d.rest) && strings.IndexByte("0123456789+-.eE", d.rest[end]) >= 0 {
		end++
	}
	word, d.rest = d.rest[:end], d.rest[end:]
	return word
}

func (d *decoder) number(least, most uint64) uint64 { return d.integer(d.word(), least, most) }

func (d *decoder) integer(word string, least, most uint64) uint64 {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil || n < least || n > most || len(word) > 1 && word[0] == '0' {
		d.fail("%.40q is not an integer between %d and %d", word, least, most)
	}
	return n
}

func (d *decoder) seconds() time.Duration {
	var seconds float64
	if d.unmarshal(d.word(), &seconds); !(seconds >= 1e-9 && seconds <= maxTTL.Seconds()) {
		d.fail("a TTL of %v is not between 0 and %.0f seconds", seconds, maxTTL.Seconds())
	}
	whole, fraction := math.Modf(seconds)
	return time.Duration(whole)*time.Second + time.Duration(math.Round(fraction*1e9))
}
