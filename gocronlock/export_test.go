package gocronlock

import "time"

// SetNow gives a locker another wall clock.
func (l *Locker) SetNow(now func() time.Time) { l.now = now }
