package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold-go/leasehold/internal/tables"
	"github.com/leasehold-go/leasehold/locktable"
)

// memberHandle is the handle of a member of the table at this place.
func memberHandle(at place.Location, text string) (handle, error) {
	of, err := tables.ParseHandle(text)
	if err != nil || of.Key != at.Key {
		return handle{}, exit.Errorf(exit.Usage, "the handle of the table %q is not complete (pass what acquire has "+
			"printed)", at.Key)
	}
	return handle{at, text, &of}, nil
}

// own is the handle of the lock that has to be renewed: for a member of a table, the member's lock.
func (h handle) own() handle {
	if h.table != nil {
		h.at.Key, h.term, h.table = h.table.Member.Key, h.table.Term.String(), nil
	}
	return h
}

// token is the fencing token of the lease: in a table, not the token of the member's lock.
func (h handle) token(own leasehold.Record) uint64 {
	if h.table != nil {
		for row := range h.table.Table.Held() {
			return row.Token
		}
	}
	return own.Token
}

// goesOn reports whether the handle is of a member that has not ended.
func (h handle) goesOn(ctx context.Context, store *place.Store) bool {
	if h.table == nil {
		return false // if the lock has a holder now, its term is a later one
	}
	own := h.own()
	lock, err := newLock(store, own.at.Key, nil)
	if err != nil {
		return true
	}
	rec, err := lock.Inspect(ctx)
	switch {
	case errors.Is(err, leasehold.ErrNotExist):
		return false
	case err != nil:
		return true
	}
	return rec.TermID == h.table.Member.TermID && !rec.Released() && time.Now().Before(rec.ExpiresAt)
}

// inTable reports whether the table still names the member.
func (h handle) inTable(ctx context.Context, store *place.Store) bool {
	o, err := store.Get(ctx, h.at.Key)
	if errors.Is(err, leasehold.ErrNotExist) {
		return false
	}
	t, wrong := tables.Decode(o.Body)
	if err != nil || wrong != nil {
		return true
	}
	_, named := t.Find(h.table.Member.Term)
	return named
}

// leave releases what the member holds, and then the member's lock. If hold renews that lock in
// between, leave begins again, because otherwise the lock would never be released.
func (h handle) leave(ctx context.Context, store *place.Store) error {
	for released := false; ; {
		err := h.leaveOnce(ctx, store)
		switch {
		case released && (errors.Is(err, leasehold.ErrLost) || errors.Is(err, leasehold.ErrReleased)):
			return nil
		case err != nil && !errors.Is(err, leasehold.ErrReleased):
			return err
		case !h.goesOn(ctx, store):
			return nil
		}
		released = true
	}
}

// leaveOnce continues the member's term, and ends it.
func (h handle) leaveOnce(ctx context.Context, store *place.Store) error {
	table, err := locktable.Resume(store, h.term, locktable.WithPollInterval(min(h.table.Member.TTL/5, maxPoll)),
		locktable.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ran := make(chan error, 1)
	go func() { ran <- table.Run(running) }()
	leases, err := table.Leases(ctx)
	stop() // one write releases all
	err = cmp.Or(err, <-ran)
	for _, lease := range leases {
		err = cmp.Or(err, lease.Release(ctx)) // says whether it was
	}
	return err
}
