package storehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/storehttp"
)

// versions is a store on a server whose every answer has the header X-Version. Only its Get is
// shown.
type versions struct {
	endpoint string
	server   storehttp.Server
}

func (s *versions) Get(ctx context.Context, key string) (leasehold.Object, error) {
	o, err := s.get(ctx, key)
	if err != nil {
		err.Doing = fmt.Sprintf("reading %q", key)
		return leasehold.Object{}, err
	}
	return o, nil
}

func (s *versions) get(ctx context.Context, key string) (leasehold.Object, *storehttp.Error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.endpoint+"/"+key, nil)
	if err != nil {
		return leasehold.Object{}, &storehttp.Error{Kind: leasehold.ErrPermanent, Cause: err}
	}
	request.Close = s.server.Silent()
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		s.server.Unanswered(err)
		e := &storehttp.Error{Cause: err}
		if hint, passes := storehttp.HintUnsent(err); hint != "" {
			e.Hint, e.Kind = hint, s.server.Unsent(passes)
		}
		return leasehold.Object{}, e
	}
	defer func() { _ = reply.Body.Close() }()
	version, status := reply.Header.Get("X-Version"), errors.New(reply.Status)
	switch {
	case reply.StatusCode >= 500:
		s.server.Answer()
		return leasehold.Object{}, &storehttp.Error{Cause: status}
	case version == "" || reply.Request.Response != nil: // a page, or a redirect that was followed
		return leasehold.Object{}, &storehttp.Error{
			Kind: s.server.Stranger(), Cause: status, Hint: "is this the right server? Check the endpoint",
		}
	}
	s.server.Heard()
	if reply.StatusCode == http.StatusNotFound {
		return leasehold.Object{}, &storehttp.Error{Kind: leasehold.ErrNotExist, Cause: status}
	}
	body, err := io.ReadAll(io.LimitReader(reply.Body, leasehold.MaxObjectSize+1))
	switch {
	case err != nil:
		s.server.Unanswered(err)
		return leasehold.Object{}, &storehttp.Error{Cause: err}
	case len(body) > leasehold.MaxObjectSize:
		return leasehold.Object{ETag: version}, &storehttp.Error{
			Kind: leasehold.ErrCorruptRecord, Cause: errors.New("it is too large"),
		}
	}
	return leasehold.Object{Body: body, ETag: version}, nil
}

// A web site answers with 404, and is not taken for a store without the object. The third such
// answer tells that the endpoint is wrong. A server that is not reached is the same mistake, as
// long as it has never answered.
func Example() {
	site := httptest.NewServer(http.NotFoundHandler())
	defer site.Close()
	for _, endpoint := range []string{site.URL, "https" + site.URL[len("http"):]} {
		store := &versions{endpoint: endpoint}
		for range 3 {
			_, err := store.Get(context.Background(), "locks/a")
			fmt.Println(errors.Is(err, leasehold.ErrNotExist), errors.Is(err, leasehold.ErrPermanent))
			if errors.Is(err, leasehold.ErrPermanent) {
				fmt.Println(err.(interface{ Advice() string }).Advice())
				break
			}
		}
	}
	// Output:
	// false false
	// false false
	// false true
	// is this the right server? Check the endpoint
	// false true
	// this port speaks http, not https: correct the endpoint's scheme or port
}
