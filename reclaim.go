package leasehold

// mayReclaim reports whether no other Lock of this process holds, or is about to take, what this one would reclaim. The user of
// WithReclaim guarantees that no two live candidates share an identity. Two Locks of one process that do would hold two valid
// leases, so none of them reclaims from another.
func (l *Lock) mayReclaim() bool {
	if !l.reclaim {
		return false
	}
	for _, other := range l.siblings() {
		if other != l && other.identity == l.identity && (other.busy.Load() || other.heldByUs() != nil) {
			return false
		}
	}
	return true
}
