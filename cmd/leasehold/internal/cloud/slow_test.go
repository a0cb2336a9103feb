package cloud

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasehold-go/leasehold/internal/testkit/faultproxy"
	"github.com/leasehold-go/leasehold/internal/testkit/testserver"
	"github.com/leasehold-go/leasehold/internal/testkit/testsize"
)

// Cloud Storage takes one write a second to each object. Behind a proxy that is as strict as that,
// everything passes within the bound. It takes minutes, so only make nightly runs it.
func TestOneWriteASecond(t *testing.T) {
	if !testsize.Full() {
		return
	}
	t.Parallel()
	s := onGCS(t)
	var mu sync.Mutex
	last, refused := make(map[string]time.Time), 0
	proxy := faultproxy.Start(t, testserver.FakeGCS(t), func(r *http.Request) faultproxy.Fault {
		if r.Method != http.MethodPost {
			return faultproxy.Fault{}
		}
		name := uploadName(r)
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last[name]) < time.Second {
			refused++
			return faultproxy.Fault{Kind: faultproxy.Answer, Status: http.StatusTooManyRequests}
		}
		last[name] = time.Now()
		return faultproxy.Fault{}
	})
	o := s.cloud(t, strings.Replace(s.url("slow"), testserver.FakeGCS(t), proxy.URL(), 1), "")
	require.Equal(t, 0, o.code)
	require.Positive(t, refused)
	require.Greater(t, len(last), 50, "objects are told apart")
}

// uploadName is the object that an upload writes: its name stands in the query or in the body.
func uploadName(r *http.Request) string {
	if name := r.URL.Query().Get("name"); name != "" {
		return name
	}
	body, _ := io.ReadAll(io.LimitReader(r.Body, 4096))
	_, name, _ := bytes.Cut(body, []byte(`"name":"`))
	name, _, _ = bytes.Cut(name, []byte(`"`))
	return string(name)
}
