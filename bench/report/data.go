// Package report turns the measurements of package bench into docs/performance.md and its charts.
// The prose and the tables are in pages, as templates. What is rendered is a function of
// docs/performance.json and of nothing else, so a test renders it again and compares byte for byte.
package report

import (
	"bytes"
	"encoding/json"
	"os"
)

// Data is what "make bench" has measured, when and where.
type Data struct {
	Size     string    `json:"size"` // "full", or "small" for a run in miniature
	Date     string    `json:"date"`
	Commit   string    `json:"commit"`
	Dirty    bool      `json:"dirty"` // files were changed since the commit
	Minutes  float64   `json:"minutes"`
	Machine  Machine   `json:"machine"`
	Versions []Version `json:"versions"`

	Places    []Place     `json:"places"`
	Own       Own         `json:"own"`
	Counts    Counts      `json:"counts"`
	Hours     []Hour      `json:"hours"`
	Adapters  []Adapter   `json:"adapters"`
	Crowds    []Crowd     `json:"crowds"`
	CrowdPoll float64     `json:"crowd_poll"` // seconds
	Takeovers []Takeover  `json:"takeovers"`
	Handovers []Handover  `json:"handovers"`
	Endings   []Ending    `json:"endings"`
	Endurance []Endurance `json:"endurance"`
	Electors  []Electors  `json:"electors"`
	Memory    []Memory    `json:"memory"`
	Tables    *Tables     `json:"tables,omitempty"` // nil if they were not measured

	Alone map[string]Since `json:"alone,omitempty"` // when sections were measured by themselves, by their names
}

// Machine is where it ran.
type Machine struct {
	CPU    string  `json:"cpu"`
	Cores  int     `json:"cores"`
	GiB    float64 `json:"gib"` // of RAM
	Go     string  `json:"go"`
	OS     string  `json:"os"`
	Kernel string  `json:"kernel"`
}

// Version is a peer or a server.
type Version struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Place is what operations take on one server.
type Place struct {
	Name  string      `json:"name"`
	Get   Sample      `json:"get"` // seconds, as all times
	Put   Sample      `json:"put"`
	Peers []Operation `json:"peers"`
}

// Operation is what the operations of one peer take. Ratios compare with the bare requests that an
// operation consists of.
type Operation struct {
	Peer         string  `json:"peer"`
	Etcd         bool    `json:"etcd,omitempty"`
	Acquire      Sample  `json:"acquire"`
	Renew        Sample  `json:"renew"`
	Release      Sample  `json:"release"`
	Requests     [3]int  `json:"requests"` // of an acquisition from cold, a renewal and a release
	AcquireRatio Figure  `json:"acquire_ratio"`
	RenewRatio   Figure  `json:"renew_ratio"`
	ReleaseRatio Figure  `json:"release_ratio"`
	Cycles       float64 `json:"cycles"` // a second, uncontended
}

// Own is what a renewal takes against a server in the process, beside the bare PUT of the SDK.
type Own struct {
	Renew Sample `json:"renew"`
	Put   Sample `json:"put"`
}

// Counts is what can be counted without a clock, against a server in the process. A test counts it
// again.
type Counts struct {
	First       int     `json:"first"`   // requests of the first acquisition of a process
	Acquire     int     `json:"acquire"` // requests of an acquisition that knows nothing of the lock
	Warm        int     `json:"warm"`    // of one that knows its last version
	Renew       int     `json:"renew"`
	Release     int     `json:"release"`
	Poll        int     `json:"poll"`
	Trial       int     `json:"trial"`        // of one who waits, once in a process
	RenewAllocs float64 `json:"renew_allocs"` // allocations of a renewal
	PutAllocs   float64 `json:"put_allocs"`   // and of the bare PUT of the SDK
}

// Hour is what an hour costs with default settings, in requests.
type Hour struct {
	Peer    string  `json:"peer"`
	TTL     float64 `json:"ttl"`
	LeadPut float64 `json:"lead_put"`
	LeadGet float64 `json:"lead_get"`
	WaitGet float64 `json:"wait_get"`
}

// Dollars returns the cost of a month of 730 hours, by S3's list prices of November 2026.
func (h Hour) Dollars(waiting int) float64 {
	return 730 * (h.LeadPut*0.005 + (h.LeadGet+float64(waiting)*h.WaitGet)*0.0004) / 1000
}

// Adapter is what one operation of an adapter takes.
type Adapter struct {
	Adapter   string  `json:"adapter"`
	On        string  `json:"on"`
	Operation string  `json:"operation"`
	Time      Sample  `json:"time"`
	Requests  float64 `json:"requests"`
}

// Crowd is many candidates for one lock. Each acquires it, releases it at once and wants it again.
type Crowd struct {
	Place      string  `json:"place"`
	Peer       string  `json:"peer"`
	Candidates int     `json:"candidates"`
	Cycles     Figure  `json:"cycles"`    // acquisitions a second
	Handovers  Figure  `json:"handovers"` // changes of holder a second
	Share      Figure  `json:"share"`     // of the acquisitions that change the holder
	Requests   float64 `json:"requests"`  // per acquisition; 0 if they are not counted
	Jain       float64 `json:"jain"`      // 1 if all got the same number of turns, 1/n if one got them all
	Wait       Sample  `json:"wait"`      // of an acquisition, with the ones that were still waiting at the end
	Idle       float64 `json:"idle"`      // share of the time in which nobody had the lock

	Turns int        `json:"turns,omitempty"` // acquisitions
	Work  *TableWork `json:"work,omitempty"`  // of all candidates, if they use a table
}

// TableWork is what processes have done with a table's object.
type TableWork struct {
	Reads       float64 `json:"reads"`
	Writes      float64 `json:"writes"`
	Refused     float64 `json:"refused"`      // writes that others have outrun
	WriteTime   float64 `json:"write_time"`   // seconds of all writes
	RefusedTime float64 `json:"refused_time"` // and of those that were refused
}

// Add adds other, times sign.
func (w *TableWork) Add(other TableWork, sign float64) {
	w.Reads += sign * other.Reads
	w.Writes += sign * other.Writes
	w.Refused += sign * other.Refused
	w.WriteTime += sign * other.WriteTime
	w.RefusedTime += sign * other.RefusedTime
}

// Takeover is how long nobody leads after a crash, in TTLs since the last renewal.
type Takeover struct {
	Where   string  `json:"where"`
	Peer    string  `json:"peer"`
	Case    string  `json:"case"`
	TTL     float64 `json:"ttl"`
	Watched float64 `json:"watched"` // TTLs that the candidate had watched
	Lost    int     `json:"lost"`    // leaders that lost their lease before the crash
	Time    Sample  `json:"time"`
}

// Handover is how long nobody leads after a release.
type Handover struct {
	RoundTrip  float64 `json:"round_trip"` // added by the proxy
	Trip       Sample  `json:"trip"`       // of a bare request through the proxy
	Peer       string  `json:"peer"`
	Way        string  `json:"way"`
	FromCall   Sample  `json:"from_call"`
	FromReturn Sample  `json:"from_return"`
}

// Ending is for how long no command runs when processes of the command end.
type Ending struct {
	RoundTrip float64 `json:"round_trip"` // added by the proxies
	TTL       float64 `json:"ttl"`
	Case      string  `json:"case"`
	With      string  `json:"with"`
	Time      Sample  `json:"time"`
}

// Endurance is leaders that lead for a long time while requests fail.
type Endurance struct {
	Case     string  `json:"case"`
	Hours    float64 `json:"hours"`
	Renewals int     `json:"renewals"`
	Failed   int     `json:"failed"` // requests
	Lost     int     `json:"lost"`
}

// Since says when a section was measured by itself, and on which commit.
type Since struct {
	Date   string `json:"date"`
	Commit string `json:"commit"`
	Remark string `json:"remark,omitempty"` // what else must be said, such as that the machine was busy
}

// Electors is many electors in one process that lead, each its own lock.
type Electors struct {
	Store    string  `json:"store"`
	Electors int     `json:"electors"`
	Startup  float64 `json:"startup"` // seconds until all lead
	Burst    int     `json:"burst"`   // requests in the busiest tenth of a second of the start
	CPU      float64 `json:"cpu"`     // seconds a second, each
	Renewals int     `json:"renewals"`
	Begun    Sample  `json:"begun"`  // how long after it was due a renewal began
	Landed   Sample  `json:"landed"` // and how long after it was due it had succeeded
	Lost     int     `json:"lost"`
}

// Memory is what an elector occupies.
type Memory struct {
	Store      string  `json:"store"`
	Electors   int     `json:"electors"`
	State      string  `json:"state"`
	Goroutines float64 `json:"goroutines"` // each
	Heap       float64 `json:"heap"`       // bytes each
	Stacks     float64 `json:"stacks"`     // bytes each
}

// Bytes is what an elector occupies in all.
func (m Memory) Bytes() float64 { return m.Heap + m.Stacks }

// Tables is what many locks in one table take.
type Tables struct {
	Place     string     `json:"place"`
	Locks     int        `json:"locks"` // of one process
	TTL       float64    `json:"ttl"`
	Poll      float64    `json:"poll"`
	CrowdPoll float64    `json:"crowd_poll"`
	Bare      Sample     `json:"bare"` // half of a bare GET and a bare PUT
	Puts      float64    `json:"puts"` // bare conditional PUTs a second, in a row
	Many      []Many     `json:"many"`
	Handovers []Handover `json:"handovers"`
	Crowds    []Crowd    `json:"crowds"`
	Each      []Crowd    `json:"each"`   // members that have a lock each
	Memory    []Memory   `json:"memory"` // of a request; their number stands for that of electors
	Told      Sample     `json:"told"`   // how long after the first the context of a lease ended, when all were lost
}

// Many is what happens to all locks of one process: how long it takes, and what the process sends
// for it.
type Many struct {
	Peer     string    `json:"peer"`
	Case     string    `json:"case"`
	Time     Sample    `json:"time"`
	Requests *Requests `json:"requests,omitempty"` // of the trial with the most; nil if not counted
}

// Requests are those of one process.
type Requests struct {
	Gets      int64 `json:"gets"`
	Puts      int64 `json:"puts"`
	Deletes   int64 `json:"deletes"`
	TableGets int64 `json:"table_gets"` // of the table's object alone
	TablePuts int64 `json:"table_puts"`
}

// Since is what was sent since before.
func (r Requests) Since(before Requests) Requests {
	return Requests{
		r.Gets - before.Gets, r.Puts - before.Puts, r.Deletes - before.Deletes,
		r.TableGets - before.TableGets, r.TablePuts - before.TablePuts,
	}
}

// Most is the most of each kind in two trials.
func (r Requests) Most(other Requests) Requests {
	return Requests{
		max(r.Gets, other.Gets), max(r.Puts, other.Puts), max(r.Deletes, other.Deletes),
		max(r.TableGets, other.TableGets), max(r.TablePuts, other.TablePuts),
	}
}

// Read reads a file that Write has written.
func Read(name string) (*Data, error) {
	body, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	d := new(Data)
	return d, decoder.Decode(d)
}

// Write writes d to a file, one line for each entry of a list.
func (d *Data) Write(name string) error {
	body, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(body, '\n'), 0o644)
}
