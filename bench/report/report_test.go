package report_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/bench/report"
)

const docs = "../../docs"

// noFigure is a line with what stands where a figure is missing.
var noFigure = regexp.MustCompile(`.*(\bNaN\b|[+-]Inf\b|%!|<nil>|<no value>).*`)

// TestPageIsRendered renders the pages, the charts and the sentences of other pages from the data,
// and compares them with the files. With RENDER=1 it writes them.
func TestPageIsRendered(t *testing.T) {
	d, err := report.Read(filepath.Join(docs, "performance.json"))
	require.NoError(t, err)
	files := map[string]string{}
	for name, content := range d.Render() {
		files[filepath.Join(docs, name)] = content
	}
	for quoting, want := range map[string][]string{
		"../../README.md":               {"takeover", "release", "push", "first", "leaderhttp"},
		filepath.Join(docs, "start.md"): {"release", "push", "crash"},
		filepath.Join(docs, "choose.md"): {
			"leasehold_takeover",
			"release",
			"push",
			"first",
			"leaderhttp",
			"leasehold_crowd",
			"tables_release",
			"tables_crowd",
			"clientgo_takeover",
			"clientgo_crowd",
			"etcd_takeover",
			"etcd_release",
			"etcd_crowd",
			"redislock_takeover",
			"redislock_release",
			"postgres_takeover",
			"postgres_release",
			"place",
			"renewal",
			"electors",
		},
	} {
		page, err := os.ReadFile(quoting)
		require.NoError(t, err)
		filled, names := d.Fill(string(page))
		require.ElementsMatch(t, want, names, quoting)
		files[quoting] = filled
	}
	for name, content := range files {
		require.Empty(t, noFigure.FindString(content), name)
		if os.Getenv("RENDER") != "" {
			require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
			require.NoError(t, os.WriteFile(name, []byte(content), 0o644))
			continue
		}
		found, err := os.ReadFile(name)
		require.NoError(t, err)
		if string(found) != content {
			t.Errorf("%s is not what make bench-render makes of performance.json", strings.TrimPrefix(name, "../../"))
		}
	}
	charts, err := filepath.Glob(docs + "/img/*.svg")
	require.NoError(t, err)
	for _, name := range charts {
		require.Contains(t, files, name, "nothing renders this chart")
	}
}

// Servers that were missing are named as not run, and else their figures stand beside the others.
func TestFiguresOfOtherServers(t *testing.T) {
	d, err := report.Read(filepath.Join(docs, "performance.json"))
	require.NoError(t, err)
	where := d.Places[0].Name
	d.Takeovers = slices.DeleteFunc(d.Takeovers, func(v report.Takeover) bool {
		return v.Where == where && v.TTL > 2 || v.Peer == report.Redislock || v.Peer == report.Advisory
	})
	d.Handovers = slices.DeleteFunc(d.Handovers, func(h report.Handover) bool {
		return h.Peer == report.Redislock || h.Peer == report.Advisory
	})
	quoted := func(name string) string {
		filled, _ := d.Fill("<!-- bench:" + name + " --><!-- / -->")
		return strings.TrimSuffix(strings.TrimPrefix(filled, "<!-- bench:"+name+" -->"), "<!-- / -->")
	}
	for _, name := range []string{"redislock_takeover", "redislock_release", "postgres_takeover", "postgres_release"} {
		require.Equal(t, "not run here", quoted(name), name)
	}
	require.False(t, strings.Contains(d.Render()["evidence/performance-tables.md"], "redislock"))

	sample := func(v float64) report.Sample { return report.NewSample([]float64{v}) }
	for _, v := range []report.Takeover{
		{Peer: report.Redislock, TTL: 2, Time: sample(1.1)},
		{Peer: report.Advisory, TTL: 2, Time: sample(0.001)},
		{Peer: report.Redislock, TTL: 15, Time: sample(1.2)},
	} {
		v.Where, v.Case = where, report.Crash
		d.Takeovers = append(d.Takeovers, v)
	}
	for _, peer := range []string{report.Redislock, report.Advisory} {
		d.Handovers = append(d.Handovers, report.Handover{
			RoundTrip: 0.1, Peer: peer, Way: report.Release, Trip: sample(0.125),
			FromCall: sample(0.5), FromReturn: sample(-0.01),
		})
	}
	require.Equal(t, "measured: median 1.10 TTL, p99 1.10; with a TTL of 15 s median 1.20 TTL, p99 1.20",
		quoted("redislock_takeover"))
	require.Equal(t, "measured: median 0.50 poll intervals", quoted("redislock_release"))
	require.Equal(t, "measured: median 2.0 ms, p99 2.0 ms", quoted("postgres_takeover"))
	require.Equal(t, "measured: 4.0 round trips from its call", quoted("postgres_release"))
	require.Contains(t, quoted("place"), "one etcd member, one Redis and one PostgreSQL")
	tables := d.Render()["evidence/performance-tables.md"]
	require.True(t, strings.Contains(tables, "| redislock | Redis | 15 s | 1 | 1.20 |"))
	require.False(t, strings.Contains(tables, "| PostgreSQL advisory lock | PostgreSQL |"), "it has no TTL")
}

// The page says when it is of a run in miniature or of changed files, and which sections were
// measured by themselves. The section about the command is there when that was measured.
func TestRemarks(t *testing.T) {
	d, err := report.Read(filepath.Join(docs, "performance.json"))
	require.NoError(t, err)
	alone := map[string]string{
		report.AloneElectors:  "The section about many electors was measured by itself",
		report.AloneHandovers: "The hand-overs were measured by themselves",
		report.AloneCommand:   "The section about the command was measured by itself",
		report.AloneTakeovers: "The takeovers on real servers were measured by themselves",
		report.AloneTables:    "The section about tables was measured by itself",
	}
	want := []string{
		"\n\n**This page is of a run in miniature. ", " at commit abc, with changes, in ", "\n\n## How long no command",
	}
	d.Size, d.Commit, d.Dirty, d.Alone = "full", "abc", false, nil
	endings := d.Endings
	d.Endings = nil
	page := d.Render()["performance.md"]
	for _, text := range slices.Concat(want, slices.Collect(maps.Values(alone))) {
		require.False(t, strings.Contains(page, text), text)
	}
	d.Size, d.Dirty, d.Endings, d.Alone = "small", true, endings, map[string]report.Since{}
	for section, text := range alone {
		d.Alone[section] = report.Since{Date: "the day of " + section, Commit: "def", Remark: ", while busy"}
		want = append(want, "\n\n"+text+", on the day of "+section+" at commit def, while busy.\n\n")
	}
	page = d.Render()["performance.md"]
	for _, text := range want {
		require.True(t, strings.Contains(page, text), text)
	}
	require.False(t, strings.Contains(page, "\n\n\n"), "conditions leave no empty lines behind")
}

// The section about tables is there when they were measured, and says which goals were missed.
func TestTables(t *testing.T) {
	d, err := report.Read(filepath.Join(docs, "performance.json"))
	require.NoError(t, err)
	d.Tables = nil
	const title = "## Many locks in one table"
	require.NotContains(t, d.Render()["performance.md"], title)
	sample := func(v float64) report.Sample { return report.NewSample([]float64{v}) }
	many := func(peer, what string, seconds float64, r *report.Requests) report.Many {
		return report.Many{Peer: peer, Case: what, Time: sample(seconds), Requests: r}
	}
	crowd := func(peer string, candidates int, cycles, requests float64) report.Crowd {
		return report.Crowd{
			Place: "minio", Peer: peer, Candidates: candidates, Requests: requests, Jain: 0.995,
			Cycles: report.Figure{Value: cycles}, Handovers: report.Figure{Value: cycles},
			Share: report.Figure{Value: 1}, Turns: 100,
			Work: &report.TableWork{Reads: 200, Writes: 100, Refused: 50, WriteTime: 0.3, RefusedTime: 1},
		}
	}
	d.Tables = &report.Tables{
		Place: "minio", Locks: 10_000, TTL: 15, Poll: 3, CrowdPoll: 0.1, Bare: sample(0.002), Puts: 400,
		Many: []report.Many{
			many(report.Tabled, report.AtOnce, 0.1, &report.Requests{Gets: 2, Puts: 4, TableGets: 1, TablePuts: 2}),
			many(report.Mutex, report.AtOnce, 5, nil),
			many(report.Tabled, report.AllKilled, 16, nil),
			many(report.Mutex, report.AllKilled, 15.5, nil),
			many(report.Tabled, report.AllEnded, 1.5, &report.Requests{Gets: 1, Puts: 3, Deletes: 1, TablePuts: 1}),
			many(report.TabledPushed, report.AllEnded, 0.4, &report.Requests{Puts: 2, Deletes: 1, TablePuts: 1}),
			many(report.Mutex, report.AllEnded, 0.5, nil),
		},
		Handovers: []report.Handover{{RoundTrip: 0.1, Peer: report.TabledPushed, Way: report.Release, Trip: sample(0.1),
			FromCall: sample(0.2), FromReturn: sample(0.105)}},
		Crowds: []report.Crowd{
			crowd(report.TabledPushed, 8, 240, 3), crowd(report.Meanwhile, 8, 240, 3),
			{
				Peer: report.Mutex, Candidates: 8, Jain: 1,
				Cycles: report.Figure{Value: 300}, Share: report.Figure{Value: 1},
			},
		},
		Each: []report.Crowd{crowd(report.Meanwhile, 64, 200, 6)},
	}
	filled, _ := d.Fill("<!-- bench:tables_crowd --><!-- / --> and <!-- bench:tables_release --><!-- / -->")
	require.Equal(t, "<!-- bench:tables_crowd -->measured, with wake-ups: 240<!-- / --> and "+
		"<!-- bench:tables_release -->measured: 1.0 round trips from the return of the release<!-- / -->", filled)
	page := d.Render()["performance.md"]
	_, section, found := strings.Cut(page, title)
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range []string{
		"| acquired at once | leasehold table | 1 | 100 ms | 100 ms | 1 GET, 2 PUT | 2 GET, 4 PUT, 0 DELETE |",
		"| acquired at once | etcd Mutex | 1 | 5 s | 5 s |  |  |",
		"| one lock | 8 | leasehold table, push | 240 | 0.60 | 100 % | 0.99 |",
		"| one lock | 8 | etcd Mutex | 300 |  | 100 % | 1.00 |",
		"| one lock | 8 | leasehold table, push | 3.0 | 2.00 | 1.00 | 0.50 | 3 ms | 20 ms |",
		"| all locks acquired at once: requests of the table | ≤ 2 GET, 2 PUT | 1 GET, 2 PUT | met |",
		"| killed: all locks are led again, median | ≤ 1.1 TTL + 10 bare requests (16.5 s) | 16 s | met |",
		"| the same, beside etcd | ≤ 1.1 times | 1.03 times | met |",
		"| ended: requests of the process | ≤ 2 PUT, 1 DELETE | 3 PUT, 1 DELETE | **missed** |",
		"| ended, with push, beside etcd: median | ≤ 1.5 times | 0.80 times | met |",
		"| 8 candidates for one lock: acquisitions a second, by bare PUTs | ≥ 0.55 | 0.60 | met |",
		"| 64 members with a lock each: acquisitions a second, by bare PUTs | ≥ 0.55 | 0.50 | **missed** |",
		"| 64 members with a lock each: requests for each | ≤ 5.0 | 6.0 | **missed** |",
	} {
		require.Contains(t, section, row)
	}
	require.Contains(t, section, "of `Release`: median | ≤ 1.1 round trips | 1.05 | met |")
	require.Empty(t, noFigure.FindString(section))
}

func TestSample(t *testing.T) {
	values := make([]float64, 1000)
	for i := range values {
		values[i] = float64(i + 1)
	}
	rand.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
	s := report.NewSample(values)
	require.Equal(t, s, report.NewSample(values), "the seed is fixed")
	require.Equal(t, 1000, s.N)
	require.Equal(t, 500., s.P50.Value)
	require.Equal(t, 990., s.P99.Value)
	require.EqualValues(t, 1000, s.Longest)
	require.InDelta(t, 500-31, s.P50.Low, 6, "the standard error of this median is 15.8")
	require.InDelta(t, 500+31, s.P50.High, 6)
	body, err := json.Marshal(s)
	require.NoError(t, err)
	var read report.Sample
	require.NoError(t, json.Unmarshal(body, &read))
	require.Equal(t, s, read)
}

func TestRatio(t *testing.T) {
	var a, b []float64
	for range 300 {
		x := 1 + rand.Float64()
		a, b = append(a, 3*x), append(b, x)
	}
	f := report.Ratio(a, b)
	require.InDelta(t, 3, f.Value, 1e-9)
	require.InDelta(t, 3, f.Low, 1e-9, "the series were measured in the same rounds")
	require.InDelta(t, 3, f.High, 1e-9)
}
