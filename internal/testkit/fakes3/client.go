package fakes3

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Transport runs a handler in the client's goroutine, without a socket. If the handler panics with
// http.ErrAbortHandler, the client sees a closed connection. If it returns after the request's
// context has ended, the client sees that context's error.
type Transport struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	ctx := r.Context()
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in := r.Clone(ctx)
	in.RequestURI = r.URL.RequestURI() // parsed again, as a server parses it
	if in.URL, err = url.ParseRequestURI(in.RequestURI); err != nil {
		return nil, err
	}
	if in.Host == "" {
		in.Host = r.URL.Host
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			resp, err = nil, io.EOF
		default:
			panic(p)
		}
	}()
	w := httptest.NewRecorder()
	t.ServeHTTP(w, in)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	resp = w.Result()
	resp.Request = r
	return resp, nil
}

// NewClient returns a real SDK client on top of a transport, with the SDK's default settings.
func NewClient(rt http.RoundTripper) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String("http://s3.test"),
		UsePathStyle: true,
		Region:       "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "access", SecretAccessKey: "secret"}, nil
		}),
		HTTPClient: &http.Client{Transport: rt},
		// The defaults of config.LoadDefaultConfig.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
	})
}
