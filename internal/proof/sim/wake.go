package sim

import "time"

// wake wakes a process, if it runs.
func (p *process) wake() {
	if frozen := p.clock.isFrozen(); p.crashed.Load() || frozen {
		p.w.markIf(frozen, "a message to a frozen machine")
		return
	}
	p.happened(&p.wakes)
	p.lock.Wake()
}

// checkWake wants that a wake-up makes whoever waits read at once, or soon if there were many
// before. The leader's own Lock does not wait.
func (w *world) checkWake(leader *process) {
	for _, p := range append(w.onNodes(), w.reader) {
		if p == nil || p == leader || p.running.Err() != nil {
			continue
		}
		began, patience := time.Now(), 150*time.Millisecond // a read that is under way, and the next one
		period := p.looks(p.ttl)
		w.mu.Lock()
		many := within(p.wakes, began.Add(-2*period), began) >= wakeBurst
		w.mu.Unlock()
		if many {
			patience += time.Duration(float64(period) / wakeBurst / p.clock.rate)
		}
		p.wake()
		time.Sleep(patience)
		if p.client.since(began) == 0 {
			w.violate("%s was woken, but did not read", p.name)
		}
	}
}
