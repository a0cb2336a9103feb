package report_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/bench/report"
)

const docs = "../../docs"

// TestPageIsRendered renders the page, the plots and the sentences of other pages from the data and
// compares them with the files. With RENDER=1 it writes them.
func TestPageIsRendered(t *testing.T) {
	d, err := report.Read(filepath.Join(docs, "performance.json"))
	require.NoError(t, err)
	files := map[string]string{}
	for name, content := range d.Render() {
		files[filepath.Join(docs, name)] = content
	}
	for quoting, want := range map[string][]string{
		"../../README.md":               {"takeover", "release", "push", "first"},
		filepath.Join(docs, "start.md"): {"release", "push", "crash"},
		filepath.Join(docs, "decide.md"): {
			"leasehold_takeover",
			"release",
			"push",
			"first",
			"leasehold_crowd",
			"clientgo_takeover",
			"clientgo_crowd",
			"etcd_takeover",
			"etcd_release",
			"etcd_crowd",
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
		require.Empty(t, regexp.MustCompile(`.*(\bNaN\b|[+-]Inf\b|%!).*`).FindString(content), name)
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
	plots, err := filepath.Glob(docs + "/img/*.svg")
	require.NoError(t, err)
	for _, name := range plots {
		require.Contains(t, files, name, "nothing renders this plot")
	}
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
