package locktable

import (
	"sync"

	"github.com/leasehold-go/leasehold/internal/bell"
)

// siblings are the tables of this process that run, by their object.
var siblings = struct {
	mu sync.Mutex
	at map[bell.Place]map[*Table]bool
}{at: make(map[bell.Place]map[*Table]bool)}

// enlist makes t a sibling of others, until leave is called.
func (t *Table) enlist() (leave func()) {
	place := bell.PlaceOf(t.store, t.key)
	siblings.mu.Lock()
	defer siblings.mu.Unlock()
	if siblings.at[place] == nil {
		siblings.at[place] = make(map[*Table]bool)
	}
	siblings.at[place][t] = true
	return func() {
		siblings.mu.Lock()
		defer siblings.mu.Unlock()
		if delete(siblings.at[place], t); len(siblings.at[place]) == 0 {
			delete(siblings.at, place)
		}
	}
}

// wakeSiblings informs them that a write of t has handed a lock over. They treat it as a message
// from outside: see Table.Wake.
func (t *Table) wakeSiblings() {
	siblings.mu.Lock()
	defer siblings.mu.Unlock()
	for s := range siblings.at[bell.PlaceOf(t.store, t.key)] {
		if s != t {
			s.Wake()
		}
	}
}
