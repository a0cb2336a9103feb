package docs_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/handover"
)

// vectors reads the cases of a file of test vectors, which protocol.md describes.
func vectors[T any](t *testing.T, file string) (cases []T) {
	t.Helper()
	body, err := os.ReadFile("testdata/protocol/" + file)
	require.NoError(t, err)
	decoder := json.NewDecoder(strings.NewReader(string(body)))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&cases))
	require.NotEmpty(t, cases)
	return cases
}

// bodyOf is an object of a test vector, which has it as text or, if it is not UTF-8, in Base64.
func bodyOf(t *testing.T, text, inBase64 string) []byte {
	t.Helper()
	if inBase64 == "" {
		return []byte(text)
	}
	body, err := base64.StdEncoding.DecodeString(inBase64)
	require.NoError(t, err)
	return body
}

// storeWith is a store with an object, unless that is nil.
func storeWith(t *testing.T, key string, object *string) leasehold.Store {
	t.Helper()
	store := leasehold.NewMemStore()
	if object != nil {
		_, err := store.PutIfNoneMatch(t.Context(), key, []byte(*object))
		require.NoError(t, err)
	}
	return store
}

func seconds(s float64) time.Duration { return time.Duration(s*1e6) * time.Microsecond }

// recordVector is what a lock object means. Times are in seconds since the Unix epoch.
type recordVector struct {
	Released   bool              `json:"released"`
	ExpiresAt  float64           `json:"expires_at"`
	Token      uint64            `json:"token"`
	Holder     string            `json:"holder"`
	TTL        float64           `json:"ttl"`
	Nonce      string            `json:"nonce"`
	AcquiredAt float64           `json:"acquired_at"`
	RenewedAt  float64           `json:"renewed_at"`
	Metadata   map[string]string `json:"metadata"`
	Payload    string            `json:"payload"`
	ObjectID   string            `json:"object_id"`
	TermID     string            `json:"term_id"`
}

func meaning(r leasehold.Record) recordVector {
	seconds := func(at time.Time) float64 {
		if at.IsZero() {
			return 0
		}
		return float64(at.UnixMicro()) / 1e6
	}
	return recordVector{
		Released: r.Released(), ExpiresAt: seconds(r.ExpiresAt), Token: r.Token, Holder: r.Holder,
		TTL: r.TTL.Seconds(), Nonce: r.Nonce,
		AcquiredAt: seconds(r.AcquiredAt), RenewedAt: seconds(r.RenewedAt), Metadata: r.Metadata,
		Payload:  string(r.Payload),
		ObjectID: r.ObjectID, TermID: r.TermID,
	}
}

func TestProtocolLockObjects(t *testing.T) {
	for _, c := range vectors[struct {
		Name, Body, Base64 string
		Spaces             int
		Record             *recordVector
		Corrupt            bool
	}](t, "lock-objects.json") {
		t.Run(c.Name, func(t *testing.T) {
			body := bodyOf(t, c.Body+strings.Repeat(" ", c.Spaces), c.Base64)
			require.NotEqual(t, c.Corrupt, c.Record != nil, "either or")
			var rec leasehold.Record
			err := rec.UnmarshalJSON(body)
			if c.Corrupt {
				require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
				return
			}
			require.NoError(t, err)
			require.Equal(t, *c.Record, meaning(rec))
			written, err := rec.MarshalJSON()
			require.NoError(t, err)
			var again leasehold.Record
			require.NoError(t, again.UnmarshalJSON(written))
			require.Equal(t, rec, again, "what is written means what was read")
		})
	}
}

func TestProtocolTakeovers(t *testing.T) {
	for _, c := range vectors[struct {
		Name          string
		Object        *string
		Age, Now      float64
		Drift, Skew   *float64
		Holder        string
		Free, Corrupt bool
		Wait          float64
		Next          struct {
			Token    uint64
			ObjectID string `json:"object_id"`
			Payload  string
		}
	}](t, "takeovers.json") {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := storeWith(t, "lock", c.Object)
				opts := []leasehold.Option{leasehold.WithLogger(slog.New(slog.DiscardHandler))}
				if c.Drift != nil {
					opts = append(opts, leasehold.WithClockDrift(*c.Drift))
				}
				if c.Skew != nil {
					opts = append(opts, leasehold.WithSkewAllowance(seconds(*c.Skew)))
				}
				if c.Holder != "" {
					opts = append(opts, leasehold.WithHolder(c.Holder))
				}
				lock, err := leasehold.NewLock(store, "lock", opts...)
				require.NoError(t, err)
				time.Sleep(time.Until(time.UnixMicro(int64(1e6 * c.Now)).Add(-seconds(c.Age))))
				_, _ = lock.Inspect(t.Context()) // sees this version first
				time.Sleep(seconds(c.Age))

				ctx := t.Context()
				if !c.Free { // it has no time to watch a holder that is gone
					limited, cancel := context.WithTimeout(ctx, time.Nanosecond)
					defer cancel()
					ctx = limited
				}
				lease, err := lock.TryAcquire(ctx)
				switch {
				case c.Corrupt:
					require.ErrorIs(t, err, leasehold.ErrCorruptRecord)
				case !c.Free:
					var held *leasehold.HeldError
					require.ErrorAs(t, err, &held)
					require.InDelta(t, c.Wait, held.Wait.Seconds(), 1e-5)
				default:
					require.NoError(t, err)
					next := lease.Record()
					require.Equal(t, c.Next.Token, next.Token)
					require.Equal(t, c.Next.Payload, string(next.Payload))
					if c.Next.ObjectID != "" {
						require.Equal(t, c.Next.ObjectID, next.ObjectID)
					}
					require.NotEmpty(t, next.ObjectID)
					require.NotEqual(t, "Q6ZB3NDY7HEO2LCF", next.TermID)
					require.Equal(t, next.RenewedAt.Add(next.TTL), next.ExpiresAt)
					require.NoError(t, lease.Release(t.Context()))
					freed, err := lock.Inspect(t.Context())
					require.NoError(t, err)
					next.ExpiresAt, next.Nonce = time.Time{}, freed.Nonce
					require.Equal(t, meaning(next), meaning(freed), "all other members stay")
				}
			})
		})
	}
}

func TestProtocolHandles(t *testing.T) {
	for _, c := range vectors[struct {
		Name, Key, Handle, Is string
		Object                *string
	}](t, "handles.json") {
		t.Run(c.Name, func(t *testing.T) {
			store := storeWith(t, c.Key, c.Object)
			lock, err := leasehold.NewLock(store, c.Key, leasehold.WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			lease, err := lock.Resume(t.Context(), c.Handle)
			switch c.Is {
			case "resumes":
				require.NoError(t, err)
				require.Equal(t, c.Handle, lease.Handle())
				require.NoError(t, lease.Release(t.Context()))
				return
			case "lost":
				require.ErrorIs(t, err, leasehold.ErrLost)
			case "released":
				require.ErrorIs(t, err, leasehold.ErrReleased)
			case "malformed":
				require.ErrorContains(t, err, "cut short or changed")
			default:
				require.Fail(t, "unknown", c.Is)
			}
			o, err := store.Get(t.Context(), c.Key)
			if c.Object == nil {
				require.ErrorIs(t, err, leasehold.ErrNotExist)
			} else {
				require.Equal(t, *c.Object, string(o.Body), "nothing was written")
			}
		})
	}
}

func TestProtocolNotes(t *testing.T) {
	offer := handover.Offer.(func(*leasehold.Lock, handover.Note) bool)
	for _, c := range vectors[struct {
		Name, Key, Object, Is string
		Note                  handover.Note
	}](t, "notes.json") {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lock, err := leasehold.NewLock(storeWith(t, c.Key, &c.Object), c.Key,
					leasehold.WithLogger(slog.New(slog.DiscardHandler)))
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				go func() { _, _ = lock.Acquire(ctx) }()
				synctest.Wait() // it has read the object, and waits
				require.Equal(t, c.Is == "proof", offer(lock, c.Note))
				cancel()
				synctest.Wait()
			})
		})
	}
}
