package wire

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"
)

// seconds is a JSON number.
type seconds float64

// UnmarshalJSON refuses a number that only rounds to zero: 1e-400 does not say "released".
func (s *seconds) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return fmt.Errorf("%s is not a number", text)
	}
	*s = seconds(f)
	mantissa, _, _ := bytes.Cut(bytes.ToLower(text), []byte("e"))
	if *s == 0 && bytes.ContainsAny(mantissa, "123456789") {
		return fmt.Errorf("%s is too small", text)
	}
	return nil
}

// duration is s to the nanosecond. It is 0 only if s is.
func (s seconds) duration() time.Duration {
	whole, fraction := math.Modf(float64(s))
	d := time.Duration(whole)*time.Second + time.Duration(math.Round(fraction*1e9))
	if s > 0 {
		d = max(d, 1)
	}
	return d
}

// epoch is t in seconds since the Unix epoch, to the microsecond, as the protocol writes them. It
// is 0 only for the zero Time, however wrong the clock was that t came from.
func epoch(t time.Time) seconds {
	if t.IsZero() {
		return 0
	}
	sec := float64(t.Unix()) + float64(t.Nanosecond()/1000)/1e6
	return seconds(min(max(sec, 1e-6), math.Nextafter(MaxSeconds, 0)))
}

// fromEpoch is the inverse of epoch. Only an exact 0 is the zero Time: a positive instant, however
// small, is not "released".
func fromEpoch(sec seconds) time.Time {
	if sec == 0 {
		return time.Time{}
	}
	whole, fraction := math.Modf(float64(sec)) // separately, to lose no digits in far years
	t := time.Unix(int64(whole), int64(math.Round(fraction*1e6))*1000)
	if first := time.UnixMicro(1); t.Before(first) {
		return first
	}
	return t
}
