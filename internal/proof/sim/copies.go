package sim

// drawCopies draws whether all machines are copies of one, whose snapshot was taken when its
// process had made its Lock. So they share a name, and whatever the Lock had drawn.
func (c *Config) drawCopies() { c.Copies = c.rng("copies").IntN(8) == 0 }

// copyOf makes p, which has not started, a copy of the first process there was.
func (p *process) copyOf(first *process) {
	p.identity, p.process, p.reclaims, p.timing = first.identity, first.process, first.reclaims, first.timing
	p.w.trace.starts(p)
}
