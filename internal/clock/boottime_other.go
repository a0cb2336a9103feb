//go:build !linux

package clock

import "time"

func boottime(mono time.Duration) time.Duration { return mono }
