package fenced

// Backend returns what the store writes with.
func (s *Store) Backend() Backend { return s.backend }
