package report

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
)

// Figure is a value with the interval that holds it with a probability of 95 %, by bootstrap: the
// same figure of 1000 samples that are drawn from the measured one, with replacement.
type Figure struct{ Value, Low, High float64 }

// MarshalJSON writes three numbers of four digits.
func (f Figure) MarshalJSON() ([]byte, error) {
	return json.Marshal([3]short{short(f.Value), short(f.Low), short(f.High)})
}

// UnmarshalJSON reads three numbers.
func (f *Figure) UnmarshalJSON(body []byte) error {
	var a [3]float64
	err := json.Unmarshal(body, &a)
	*f = Figure{a[0], a[1], a[2]}
	return err
}

// short is a number that is written with four digits.
type short float64

func (s short) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(s), 'g', 4, 64), nil
}

// Sample is a distribution.
type Sample struct {
	N       int    `json:"n"`
	Least   short  `json:"least"`
	P10     short  `json:"p10"`
	P50     Figure `json:"p50"`
	P90     Figure `json:"p90"`
	P99     Figure `json:"p99"`
	Longest short  `json:"longest"`
}

const resamples = 1000

// newRand has a fixed seed, so that the same values give the same intervals.
func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// rank is the index of the q-quantile among n sorted values.
func rank(n int, q float64) int { return max(min(int(math.Ceil(q*float64(n)))-1, n-1), 0) }

// Quantile returns the q-quantile of values, the smallest one that at least this share of them does
// not exceed.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(values))[rank(len(values), q)]
}

// NewSample describes values.
func NewSample(values []float64) Sample {
	n := len(values)
	if n == 0 {
		return Sample{}
	}
	sorted := slices.Sorted(slices.Values(values))
	quantiles := [...]float64{0.5, 0.9, 0.99}
	var found [len(quantiles)][]float64
	random, count := newRand(), make([]int, n)
	for range resamples {
		clear(count)
		for range n {
			count[random.IntN(n)]++
		}
		seen, next := 0, 0
		for i, c := range count {
			for seen += c; next < len(quantiles) && seen > rank(n, quantiles[next]); next++ {
				found[next] = append(found[next], sorted[i])
			}
		}
	}
	s := Sample{N: n, Least: short(sorted[0]), P10: short(sorted[rank(n, 0.1)]), Longest: short(sorted[n-1])}
	for i, f := range [...]*Figure{&s.P50, &s.P90, &s.P99} {
		*f = interval(sorted[rank(n, quantiles[i])], found[i])
	}
	return s
}

// interval is value with the middle 95 % of what resampling has found.
func interval(value float64, found []float64) Figure {
	slices.Sort(found)
	return Figure{value, found[rank(len(found), 0.025)], found[rank(len(found), 0.975)]}
}

// Bootstrap returns a figure of n measurements: of takes their indices, drawn with replacement.
func Bootstrap(n int, of func(drawn []int) float64) Figure {
	drawn := make([]int, n)
	for i := range drawn {
		drawn[i] = i
	}
	value := of(drawn)
	if n == 0 {
		return Figure{value, value, value}
	}
	random, found := newRand(), make([]float64, 0, resamples)
	for range resamples {
		for i := range drawn {
			drawn[i] = random.IntN(n)
		}
		found = append(found, of(drawn))
	}
	return interval(value, found)
}

// Ratio compares two series that were measured in the same rounds, by their medians.
func Ratio(a, b []float64) Figure {
	pick := func(values []float64, drawn []int) float64 {
		picked := make([]float64, len(drawn))
		for i, at := range drawn {
			picked[i] = values[at]
		}
		return Quantile(picked, 0.5)
	}
	return Bootstrap(len(a), func(drawn []int) float64 { return pick(a, drawn) / pick(b, drawn) })
}
