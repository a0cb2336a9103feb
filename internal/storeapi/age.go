package storeapi

import "time"

// maxAge is more than any age that matters: a lock whose version is older is waited out like one of
// unknown age.
const maxAge = 10 * 365 * 24 * time.Hour

// CredibleAge returns 0 for an age that cannot be, which then is unknown. That includes the ends of
// the range, where the difference of two times stops: an hour subtracted from the lowest one would
// give the highest.
func CredibleAge(age time.Duration) time.Duration {
	if age < 0 || age > maxAge {
		return 0
	}
	return age
}
