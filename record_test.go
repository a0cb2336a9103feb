package leasehold_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/testkit/bubble"
	"github.com/leasehold-go/leasehold/internal/testkit/fakes3"
	"github.com/leasehold-go/leasehold/internal/testkit/testctx"
)

// The layout is a published protocol: other languages read it.
func TestRecordLayout(t *testing.T) {
	rec := leasehold.Record{
		ExpiresAt: time.UnixMicro(1740151473206179), Token: 7, Holder: "host-a/4711/k3v9",
		TTL: 15 * time.Second, Nonce: "n.1",
		AcquiredAt: time.UnixMicro(1740151440100000), RenewedAt: time.UnixMicro(1740151458200000),
		Metadata: map[string]string{"addr": "10.0.0.7:8080"}, Payload: []byte("state"),
		ObjectID: "o1", TermID: "t1",
	}
	body, err := json.Marshal(rec)
	require.NoError(t, err)
	require.Equal(t, `{"expires_at":1740151473.206179,"token":7,"holder":"host-a/4711/k3v9","ttl":15,"nonce":"n.1",`+
		`"acquired_at":1740151440.1,"renewed_at":1740151458.2,"metadata":{"addr":"10.0.0.7:8080"},`+
		`"payload":"c3RhdGU=","object_id":"o1","term_id":"t1"}`, string(body))

	released := leasehold.Record{Token: 7}
	body, err = json.Marshal(released)
	require.NoError(t, err)
	require.Equal(t, `{"expires_at":0,"token":7}`, string(body), "the two members of the protocol are always there")

	body, err = json.Marshal(leasehold.Record{})
	require.NoError(t, err)
	require.Equal(t, `{"expires_at":0,"token":0}`, string(body))
}

func TestRecordsThatAreRead(t *testing.T) {
	expires := time.UnixMicro(1740151473206179)
	for name, c := range map[string]struct {
		body string
		want leasehold.Record
	}{
		"a client that knows only the time": {`{"expires_at": 1740151473.206179}`,
			leasehold.Record{ExpiresAt: expires}},
		"one that knows tokens": {`{"expires_at": 1740151473.206179, "token": 41}`,
			leasehold.Record{ExpiresAt: expires, Token: 41}},
		"released by such a client":     {`{"expires_at": 0, "token": 41}`, leasehold.Record{Token: 41}},
		"released, in another spelling": {` {"token":41.0,"expires_at":0.0e5} ` + "\n", leasehold.Record{Token: 41}},
		"whole seconds": {`{"expires_at": 1740151473}`,
			leasehold.Record{ExpiresAt: time.Unix(1740151473, 0)}},
		"a token in exponents": {`{"expires_at": 0, "token": 9e15}`, leasehold.Record{Token: 9e15}},
		"the largest token": {`{"expires_at": 0, "token": 9007199254740991}`,
			leasehold.Record{Token: 1<<53 - 1}},
		"null for what it does not have": {
			`{"expires_at": 0, "token": 3, "holder": null, "ttl": null, "metadata": null}`, leasehold.Record{Token: 3}},
		"members of its own": {`{"expires_at": 0, "token": 3, "region": {"a": [1, "x"]}, "v": 2}`,
			leasehold.Record{Token: 3}},
		"members that differ by their case": {
			`{"expires_at": 0, "token": 3, "Token": 9, "TTL": "PT15S", "Holder": {"id": 1}}`,
			leasehold.Record{Token: 3},
		},
		"the last of two counts": {`{"expires_at": 0, "token": 3, "expires_at": 1740151473}`,
			leasehold.Record{Token: 3, ExpiresAt: time.Unix(1740151473, 0)}},
		"a TTL shorter than a nanosecond": {`{"expires_at": 1740151473, "ttl": 1e-300}`,
			leasehold.Record{ExpiresAt: time.Unix(1740151473, 0), TTL: 1}},
		"a TTL that is no binary fraction": {`{"expires_at": 1740151473, "ttl": 1.1}`,
			leasehold.Record{ExpiresAt: time.Unix(1740151473, 0), TTL: 1100 * time.Millisecond}},
		"a time just after the epoch": {`{"expires_at": 1e-9}`, leasehold.Record{ExpiresAt: time.UnixMicro(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			var got leasehold.Record
			require.NoError(t, json.Unmarshal([]byte(c.body), &got))
			require.Equal(t, c.want, got)
			require.Equal(t, c.want.ExpiresAt.IsZero(), got.Released())
		})
	}
}

// badRecords must never be taken for a lock that is free.
var badRecords = map[string]string{
	"nothing":                   ``,
	"white space":               ` `,
	"null":                      `null`,
	"an array":                  `[{"expires_at": 0, "token": 1}]`,
	"a number":                  `0`,
	"text":                      `"{}"`,
	"a page":                    `<html>`,
	"no member":                 `{}`,
	"no expires_at":             `{"token": 1}`,
	"expires_at in capitals":    `{"EXPIRES_AT": 0, "token": 1}`,
	"expires_at null":           `{"expires_at": null, "token": 1}`,
	"expires_at false":          `{"expires_at": false}`,
	"expires_at a text":         `{"expires_at": "0"}`,
	"expires_at a date":         `{"expires_at": "2026-01-01T00:00:00Z"}`,
	"expires_at an object":      `{"expires_at": {}}`,
	"expires_at negative":       `{"expires_at": -1}`,
	"expires_at NaN":            `{"expires_at": NaN}`,
	"expires_at Infinity":       `{"expires_at": Infinity}`,
	"expires_at overflows":      `{"expires_at": 1e400}`,
	"expires_at underflows":     `{"expires_at": 1e-400}`,
	"expires_at a tiny debt":    `{"expires_at": -1e-400}`,
	"expires_at in the future":  `{"expires_at": 253402300800}`,
	"expires_at in nanoseconds": `{"expires_at": 1740151473206179000}`,
	"token negative":            `{"expires_at": 0, "token": -1}`,
	"token a fraction":          `{"expires_at": 0, "token": 1.5}`,
	"token huge":                `{"expires_at": 0, "token": 9007199254740992}`,
	"token larger":              `{"expires_at": 0, "token": 18446744073709551616}`,
	"token overflows":           `{"expires_at": 0, "token": 1e400}`,
	"token a text":              `{"expires_at": 0, "token": "7"}`,
	"token an empty text":       `{"expires_at": 0, "token": ""}`,
	"token true":                `{"expires_at": 0, "token": true}`,
	"ttl negative":              `{"expires_at": 1, "ttl": -15}`,
	"ttl underflows":            `{"expires_at": 1, "ttl": 1e-400}`,
	"ttl overflows":             `{"expires_at": 1, "ttl": 1e400}`,
	"ttl of centuries":          `{"expires_at": 1, "ttl": 1e10}`,
	"ttl a text":                `{"expires_at": 1, "ttl": "15s"}`,
	"acquired_at negative":      `{"expires_at": 1, "acquired_at": -1}`,
	"renewed_at overflows":      `{"expires_at": 1, "renewed_at": 1e400}`,
	"holder a number":           `{"expires_at": 0, "holder": 1}`,
	"nonce a list":              `{"expires_at": 0, "nonce": []}`,
	"metadata a text":           `{"expires_at": 0, "metadata": "x"}`,
	"metadata of numbers":       `{"expires_at": 0, "metadata": {"a": 1}}`,
	"payload not base64":        `{"expires_at": 0, "payload": "?"}`,
	"payload too large":         `{"expires_at": 0, "payload": "` + strings.Repeat("AAAA", 11000) + `"}`,
	"more text":                 `{"expires_at": 0} x`,
	"two records":               `{"expires_at": 0}{"expires_at": 0}`,
	"cut off":                   `{"expires_at": 0`,
	"not UTF-8":                 "{\"expires_at\": 0, \"holder\": \"\xff\"}",
	"a byte order mark":         "\ufeff{\"expires_at\": 0}",
	"too large":                 `{"expires_at": 0}` + strings.Repeat(" ", 64<<10),
}

func TestBadRecordsAreNeverFree(t *testing.T) {
	for name, body := range badRecords {
		t.Run(name, func(t *testing.T) {
			var rec leasehold.Record
			require.ErrorIs(t, rec.UnmarshalJSON([]byte(body)), leasehold.ErrCorruptRecord)
			require.Zero(t, rec)

			server := &fakes3.Server{}
			server.Put(key, []byte(body))
			w := newWire(server)
			_, err := newLock(t, w.store).Acquire(t.Context())
			require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
			require.ErrorContains(t, err, key, "which object")
			require.Equal(t, []string{"GET"}, w.Methods(0), "and nothing is written over it")
			require.Equal(t, body, string(server.Body(key)))
		})
	}
}

// A machine whose clock is off by decades writes records that others can read, and that are not
// free.
func TestRecordOfAWrongClockIsStillARecord(t *testing.T) {
	for _, now := range []time.Time{
		time.Unix(-86400*365*30, 0), time.UnixMicro(-1), time.Unix(0, 0), time.UnixMicro(1),
		time.Unix(math.MaxInt32, 0), time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		body, err := json.Marshal(leasehold.Record{
			ExpiresAt:  now,
			Token:      1,
			TTL:        time.Second,
			AcquiredAt: now,
			RenewedAt:  now,
		})
		require.NoError(t, err)
		var rec leasehold.Record
		require.NoError(t, json.Unmarshal(body, &rec), "%s", body)
		require.False(t, rec.Released(), "%s", body)
	}
}

// A foreign client's record is honoured until its time plus the skew allowance has passed on this
// machine's clock.
func TestRecordsOfForeignClientsAreHonoured(t *testing.T) {
	for body, token := range map[string]uint64{
		`{"expires_at": 946684830.5}`:             1,
		`{"expires_at": 946684830.5, "token": 6}`: 7,
	} {
		synctest.Test(t, func(t *testing.T) { // begins at Unix time 946684800
			server := &fakes3.Server{}
			server.Put(key, []byte(body))
			lock := newLock(t, newWire(server).store)
			_, err := lock.TryAcquire(t.Context())
			require.ErrorIs(t, err, leasehold.ErrHeld)

			lease, err := lock.Acquire(t.Context())
			require.NoError(t, err)
			require.WithinRange(t, time.Now(), time.Unix(946684835, 5e8), time.Unix(946684836, 0))
			require.Equal(t, token, lease.Token())
			require.NoError(t, lease.Release(t.Context()))
			require.True(t, recordOf(t, server).Released(), "which the foreign client understands")
		})
	}
}

// Such as an operator's, to keep everybody out.
func TestRecordForEverIsPolledAsAnyOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakes3.Server{}
		server.Put(key, []byte(`{"expires_at": 253402300799}`))
		w := newWire(server)
		ctx := testctx.Within(t, time.Minute)
		_, err := newLock(t, w.store).Acquire(ctx)
		require.ErrorIs(t, err, leasehold.ErrHeld)
		require.InDelta(t, 20+4, w.Count(), 3, "four try the store, once")
	})
}

// FuzzRecord decodes anything.
func FuzzRecord(f *testing.F) {
	for _, body := range badRecords {
		if len(body) < 1000 { // large ones only slow the fuzzer down
			f.Add([]byte(body))
		}
	}
	for _, body := range []string{
		`{"expires_at": 0}`, `{"expires_at": -0}`, `{"expires_at": 0e9}`, `{"expires_at": 0.000}`,
		`{"expires_at": 1e-7}`, `{"expires_at": 4e-7}`, `{"expires_at": 5e-324}`,
		`{"expires_at": 1740151473.206179, "token": 7, "holder": "h", "ttl": 15.0, "nonce": "n", ` +
			`"acquired_at": 1740151440.1, "renewed_at": 1740151458.2, "metadata": {"a": "b"}}`,
		`{"expires_at": 253402300799.99}`, `{"expires_at": 253402300799.99999}`, `{"expires_at": 9007199254.7409925}`,
		`{"expires_at": 200000000000.00003}`, `{"expires_at": 1, "ttl": 3153599999.9999995}`,
		`{"expires_at": 1, "ttl": 1.1}`,
		`{"expires_at": 1, "ttl": 0.1000000001}`, `{"expires_at": 0, "token": 7.0}`,
		`{"expires_at": 0, "metadata": {}}`, `{"expires_at": 0, "payload": ""}`,
		`{"expires_at": 0, "holder": "\ud800 \u0000 <>&"}`,
		`{"expires_at": 1, "expires_at": 0}`, `{"expires_at": 1, "Expires_At": 0}`,
		`{"expires_at": 1, "e\u0078pires_at": 0}`, `{"expires_at": 1, "expires_at": null}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var rec leasehold.Record
		if err := rec.UnmarshalJSON(body); err != nil {
			require.True(t, errors.Is(err, leasehold.ErrCorruptRecord), "%v", err)
			require.Zero(t, rec)
			return
		}
		var members map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(body, &members))
		mantissa, _, _ := strings.Cut(strings.ToLower(string(members["expires_at"])), "e")
		require.NotEmpty(t, mantissa)
		require.Equal(t, strings.Trim(mantissa, "-0.") == "", rec.Released(), "released is expires_at zero, and "+
			"nothing else: %s", body)

		again, err := json.Marshal(rec)
		require.NoError(t, err)
		var same leasehold.Record
		require.NoError(t, same.UnmarshalJSON(again), "%s became %s", body, again)
		if len(rec.Metadata) == 0 { // absent and empty are written alike
			rec.Metadata, same.Metadata = nil, nil
		}
		if len(rec.Payload) == 0 {
			rec.Payload, same.Payload = nil, nil
		}
		require.Equal(t, rec, same, "%s became %s", body, again)
	})
}

func TestRecordsBelongToTheirCallers(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		metadata := map[string]string{"addr": "10.0.0.7"}
		lock := newLock(t, store, leasehold.WithMetadata(metadata))
		metadata["addr"] = "changed"
		lease := acquire(t, lock)
		require.NoError(t, lease.Commit(t.Context(), []byte("payload")))
		spoil := func(r leasehold.Record) {
			r.Metadata["addr"] = "spoilt"
			r.Payload[0] = 'X'
		}
		spoil(lease.Record())
		rec, err := lock.Inspect(t.Context())
		require.NoError(t, err)
		spoil(rec)
		other := newLock(t, store)
		_, err = other.TryAcquire(t.Context())
		var held *leasehold.HeldError
		require.ErrorAs(t, err, &held)
		spoil(held.Record)
		require.NoError(t, lease.Renew(t.Context()))
		require.NoError(t, lease.Release(t.Context()))
		rec, err = other.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]string{"addr": "10.0.0.7"}, rec.Metadata)
		next := acquire(t, other)
		rec = next.Record()
		require.Equal(t, "payload", string(rec.Payload))
		for status, err := range lock.Watch(t.Context()) {
			require.NoError(t, err)
			require.Equal(t, "payload", string(status.Record.Payload))
			status.Record.Payload[0] = 'X'
			break
		}
		rec, err = lock.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, "payload", string(rec.Payload))
	})
}

func TestTheLargestMetadataFitsBesideTheLargestPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newLock(t, leasehold.NewMemStore(), leasehold.WithHolder(strings.Repeat("<", 1024)),
			leasehold.WithMetadata(map[string]string{"k": strings.Repeat("&", 8000)}))
		lease := acquire(t, lock)
		require.NoError(t, lease.Commit(t.Context(), make([]byte, 32<<10)))
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, acquire(t, lock).Release(t.Context()))
	})
}

func TestErrorsThatNoRetryCanFixMatchErrPermanent(t *testing.T) {
	kinds := []error{leasehold.ErrUnsafeStore, leasehold.ErrCorruptRecord}
	for i, kind := range kinds {
		err := fmt.Errorf("reading: %w", kind)
		require.ErrorIs(t, err, leasehold.ErrPermanent)
		require.ErrorIs(t, err, kind)
		require.NotErrorIs(t, err, kinds[1-i])
		require.NotErrorIs(t, leasehold.ErrPermanent, kind)
		require.NotContains(t, err.Error(), leasehold.ErrPermanent.Error())
	}
	for _, passing := range []error{leasehold.ErrNotExist, leasehold.ErrPreconditionFailed,
		leasehold.ErrHeld, leasehold.ErrLost} {
		require.NotErrorIs(t, passing, leasehold.ErrPermanent)
	}
}

// stored is the record in the store.
func stored(t *testing.T, s leasehold.Store) leasehold.Record {
	t.Helper()
	var rec leasehold.Record
	obj, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, rec.UnmarshalJSON(obj.Body))
	rec.Key = key
	return rec
}

// overwrite puts a record in the place of the one in the store, as an administrator does who
// restores an old version.
func overwrite(t *testing.T, s leasehold.Store, rec leasehold.Record) {
	t.Helper()
	body, err := json.Marshal(rec)
	require.NoError(t, err)
	obj, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	_, err = s.PutIfMatch(t.Context(), key, body, obj.ETag)
	require.NoError(t, err)
}

func TestIDsOfObjectsAndTerms(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		lock := newLock(t, store)
		lease := acquire(t, lock)
		first := stored(t, store)
		require.Len(t, first.ObjectID, 16)
		require.Len(t, first.TermID, 32)
		require.NotEqual(t, first.ObjectID, first.TermID)
		kept := func(what string, ids leasehold.Record) {
			rec := stored(t, store)
			require.Equal(t, [2]string{ids.ObjectID, ids.TermID}, [2]string{rec.ObjectID, rec.TermID}, what)
		}
		require.NoError(t, lease.Renew(t.Context()))
		kept("renewal", first)
		require.NoError(t, lease.Commit(t.Context(), []byte("state")))
		kept("commit", first)
		require.NoError(t, lease.Release(t.Context()))
		kept("release", first)

		acquire(t, lock)
		second := stored(t, store)
		require.Equal(t, first.ObjectID, second.ObjectID)
		require.NotEqual(t, first.TermID, second.TermID, "each term has its own, also of the same Lock")
		require.NoError(t, newLock(t, store).Break(t.Context(), 2))
		kept("break", second)
		time.Sleep(time.Minute)

		lease = acquire(t, newLock(t, store))
		require.Equal(t, first.ObjectID, stored(t, store).ObjectID, "another Lock keeps it")
		require.NoError(t, lease.Release(t.Context()))

		foreign := stored(t, store)
		foreign.ObjectID, foreign.TermID = "", "" // a client that knows only two members
		overwrite(t, store, foreign)
		lease = acquire(t, newLock(t, store))
		require.NotEmpty(t, stored(t, store).ObjectID)
		require.NotEqual(t, first.ObjectID, stored(t, store).ObjectID)
		require.NoError(t, lease.Release(t.Context()))

		obj, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, store.DeleteIfMatch(t.Context(), key, obj.ETag))
		before := obj.Body
		acquire(t, newLock(t, store))
		var rec leasehold.Record
		require.NoError(t, rec.UnmarshalJSON(before))
		require.NotEqual(t, rec.ObjectID, stored(t, store).ObjectID, "another object")
	})
}

// Members that are longer than any lock writes, or that this package writes in a longer form than
// it has read them.
func TestMembersThatAreTooLong(t *testing.T) {
	separators := strings.Repeat("\u2028", 20_000)
	for name, member := range map[string]string{
		"holder":            `"holder":"` + separators + `"`,
		"nonce":             `"nonce":"` + separators + `"`,
		"object_id":         `"object_id":"` + strings.Repeat("x", 60_000) + `"`,
		"term_id":           `"term_id":"` + strings.Repeat("x", 60_000) + `"`,
		"metadata":          `"metadata":{"x":"` + separators + `"}`,
		"names of metadata": `"metadata":{"` + separators + `":"x"}`,
		"holder that grows": `"holder":"` + separators[:4500] + `"`,
		"many in one object": `"holder":"` + separators[:6000] + `","metadata":{"x":"` + separators[:8100] +
			`"},"object_id":"` + separators[:3000] + `"`,
	} {
		for _, released := range []bool{true, false} {
			bubble.Run(t, fmt.Sprint(name, ", released ", released), func(t *testing.T) {
				store := leasehold.NewMemStore()
				expires := `"expires_at":` + map[bool]string{true: "0", false: "253370764800"}[released]
				_, err := store.PutIfNoneMatch(t.Context(), key, []byte(`{`+expires+`,"token":7,`+member+`}`))
				require.NoError(t, err)
				lock := newLock(t, store)
				_, err = lock.TryAcquire(t.Context())
				require.ErrorIs(t, err, leasehold.ErrCorruptRecord, "the record is to blame, not the options of "+
					"this lock")
				require.NoError(t, lock.Break(t.Context(), 7))
				lease := acquire(t, lock)
				require.EqualValues(t, 8, lease.Token())
				require.NoError(t, lease.Release(t.Context()))
			})
		}
	}
}

// Whatever a lock may write, any other may read, break and take over.
func TestTheLongestRecordIsReadAndBroken(t *testing.T) {
	onMemStore(t, func(t *testing.T, store leasehold.Store) {
		metadata := map[string]string{"x": strings.Repeat("\x00", 1360)}
		lock := newLock(t, store, leasehold.WithHolder(strings.Repeat("\x00", 1024)),
			leasehold.WithMetadata(metadata))
		lease := acquire(t, lock)
		require.NoError(t, lease.Commit(t.Context(), make([]byte, 32<<10)))
		body, err := json.Marshal(lease.Record())
		require.NoError(t, err)
		require.Greater(t, len(body), 57_000)
		rec, err := newLock(t, store).Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, metadata, rec.Metadata)
		require.NoError(t, newLock(t, store).Break(t.Context(), 1))
		next := acquire(t, newLock(t, store))
		require.Len(t, next.Record().Payload, 32<<10)
		require.NoError(t, next.Release(t.Context()))
	})
}

func TestTheLongestTTLs(t *testing.T) {
	const longest = 876_000 * time.Hour
	for _, ttl := range []time.Duration{longest, longest - 1} {
		text, err := leasehold.Record{TTL: ttl}.MarshalJSON()
		require.NoError(t, err)
		var rec leasehold.Record
		require.NoError(t, rec.UnmarshalJSON(text))
		require.InDelta(t, ttl, rec.TTL, float64(time.Microsecond))
	}
	text, err := leasehold.Record{TTL: longest + time.Hour}.MarshalJSON()
	require.NoError(t, err)
	require.ErrorIs(t, new(leasehold.Record).UnmarshalJSON(text), leasehold.ErrCorruptRecord)
}

// Machines whose wall clocks stand before 1970, as after a reset, decide by TTL as all others do.
func TestWallClocksBefore1970(t *testing.T) {
	onFaultStore(t, func(t *testing.T, store *faultStore) {
		past := newBrokenClock()
		past.move(clock.Reading{Wall: -time.Duration(time.Now().Unix()+365*24*3600) * time.Second})
		require.Negative(t, past.Now().Wall)
		holder := acquire(t, newLock(t, store, withClock(past)))
		time.Sleep(time.Minute)
		require.NoError(t, holder.Renew(t.Context()))
		require.True(t, holder.Valid())
		holder.Abandon()
		ctx := testctx.Within(t, 16*time.Second)
		next, err := newLock(t, store, withClock(past)).Acquire(ctx)
		require.NoError(t, err)
		require.NoError(t, next.Release(t.Context()))
	})
}
