package sim

import "time"

// notifyLocked sends every process a message that the object has changed. Some messages are lost,
// repeated, or late by up to two TTLs. The caller holds w.mu.
func (w *world) notifyLocked() {
	for _, p := range append(w.nodes[:len(w.nodes):len(w.nodes)], w.reader) {
		if p == nil {
			continue
		}
		delay := time.Duration(1+w.messages.Int64N(100)) * time.Millisecond
		late := time.Duration(w.messages.Int64N(int64(2 * w.cfg.TTL)))
		switch w.messages.IntN(10) {
		case 0: // lost
			continue
		case 1:
			delay = late
		case 2:
			time.AfterFunc(late, p.wake)
		}
		time.AfterFunc(delay, p.wake)
	}
}

// forge wakes a process a thousand times within a TTL, for no reason.
func (w *world) forge(p *process) {
	for range 1000 {
		time.Sleep(15013 * time.Microsecond)
		p.wake()
	}
}

// wake wakes a process, if it runs.
func (p *process) wake() {
	if frozen := p.clock.isFrozen(); p.crashed.Load() || frozen {
		p.w.markIf(frozen, messageToFrozen)
		return
	}
	p.happened(&p.wakes)
	p.lock.Wake()
}

// checkWake wants that a wake-up makes whoever waits read at once, or soon if there were many
// before. The leader's own Lock does not wait.
func (w *world) checkWake(leader *process) {
	w.mu.Lock()
	nodes := append(w.nodes[:len(w.nodes):len(w.nodes)], w.reader)
	w.mu.Unlock()
	for _, p := range nodes {
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
