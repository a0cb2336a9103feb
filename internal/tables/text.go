package tables

import "fmt"

// Counts returns the numbers of members, of requests that hold, and of those that wait.
func (t *Table) Counts() (members, held, waiting int) {
	for range t.Waiting() {
		waiting++
	}
	return len(t.members), len(t.requests) - waiting, waiting
}

// String names the claim for people: "name", "name (shared)" or "name (2 of 8)".
func (c Claim) String() string {
	switch {
	case c.Shared:
		return c.Name + " (shared)"
	case c.Of > 0:
		return fmt.Sprintf("%s (%d of %d)", c.Name, c.Slots, c.Of)
	}
	return c.Name
}

// semaphore reports whether the claim is of slots.
func (c Claim) semaphore() bool { return c.Of > 0 }

// kind is what a lock is, for people.
func kind(semaphore bool) string {
	if semaphore {
		return "a semaphore"
	}
	return "a lock"
}
