package place

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold-go/leasehold/internal/storeapi"
)

// Location is what the URL of a lock, or of a prefix of locks, says.
type Location struct {
	Scheme    string // "s3", "gs", "azblob" or "file"
	Bucket    string // of a file: the directory
	Key       string // or the prefix
	Endpoint  string
	region    string
	profile   string
	account   string
	pathStyle *bool  // nil: where there is an endpoint
	sse       string // server-side encryption that each write names; "" if none
	sseKey    string // of KMS

	// CreateOnly keeps locks where objects can only be created: see package createonly.
	CreateOnly bool

	// Through, if not nil, is put around what sends the requests of each client of a bucket, after
	// they have been signed. The URL does not have it.
	Through func(http.RoundTripper) http.RoundTripper
}

// parameters has the parameters of each scheme.
var parameters = map[string][]string{
	"s3":     {"endpoint", "region", "path-style", "profile", "sse", "sse-kms-key-id", "createonly"},
	"gs":     {"endpoint"},
	"azblob": {"account", "endpoint"},
	"file":   nil,
}

const urlForms = "write s3://bucket/key, gs://bucket/key, azblob://container/key or file:///directory/name"

// ParseLock reads the URL of a lock. Its errors say what is wrong with the URL, and are of the code
// exit.Usage.
func ParseLock(text string) (Location, error) {
	l, err := parse(text)
	if err == nil {
		err = l.CheckKey()
	}
	if err != nil {
		return l, exit.Errorf(exit.Usage, "%q is not the URL of a lock: %w", WithoutSecrets(text), err)
	}
	return l, nil
}

// ParsePrefix reads the URL of the locks whose keys begin alike. Its errors are of the code
// exit.Usage.
func ParsePrefix(text string) (Location, error) {
	l, err := parse(text)
	if err == nil && l.Key != "" && storeapi.BadKey(l.Key+"x") != "" {
		err = fmt.Errorf("the prefix %q %s", l.Key, storeapi.BadKey(l.Key+"x"))
	}
	if err != nil {
		return l, exit.Errorf(exit.Usage, "%q is not the URL of a prefix: %w", WithoutSecrets(text), err)
	}
	return l, nil
}

// What may be a secret in a URL: the text before the @ of a server's address, which may be escaped
// in a parameter, and the text after a question mark in a parameter, such as the signature of
// Azure.
var (
	inUserinfo  = regexp.MustCompile(`(?i)^([a-z0-9+.-]*:)?/*([^/]*|[^/]*:.*)(@|%(25)*40)`)
	inParameter = regexp.MustCompile(`(?i)(//|(%(25)*2f){2})[^&]*(@|%(25)*40)`)
	inSignature = regexp.MustCompile(`(?i)(\?|%(25)*3f).*`)
)

// WithoutSecrets is a URL without what must not be in a log. The URL of a handle has a secret after
// the #, and a wrong URL may have a password or a signature.
func WithoutSecrets(text string) string {
	url, _, _ := strings.Cut(text, "#")
	base, query, ok := strings.Cut(url, "?")
	if base = inUserinfo.ReplaceAllString(base, "$1//...@"); !ok {
		return base
	}
	query = inParameter.ReplaceAllString(query, "//...@")
	query = inSignature.ReplaceAllString(query, "?...")
	return base + "?" + query
}

func parse(text string) (Location, error) {
	var none Location
	u, err := url.Parse(text)
	switch {
	case text == "":
		return none, fmt.Errorf("it is empty (%s)", urlForms)
	case err != nil && strings.Contains(text, "@"): // the error may quote a part of a password
		return none, fmt.Errorf("it cannot be read, and credentials do not belong in it (%s)", urlForms)
	case err != nil:
		return none, fmt.Errorf("%w (%s)", errors.Unwrap(err), urlForms)
	case u.Scheme == "" && strings.HasPrefix(text, "/"):
		return none, fmt.Errorf("it has no scheme (write file://%s)", text)
	case u.Scheme == "":
		return none, fmt.Errorf("it has no scheme (%s)", urlForms)
	case u.Scheme == "http" || u.Scheme == "https":
		return none, fmt.Errorf("the server belongs in a parameter (write s3://bucket/key?endpoint=%s://%s)",
			u.Scheme, u.Host)
	}
	known, ok := parameters[u.Scheme]
	switch {
	case !ok:
		return none, fmt.Errorf("there is no store %q (%s)", u.Scheme, urlForms)
	case u.Opaque != "" || !strings.HasPrefix(text[len(u.Scheme):], "://"): // the scheme may be in capitals
		rest := WithoutSecrets(text)[len(u.Scheme)+1:]
		return none, fmt.Errorf("two slashes are missing (write %s://%s)", u.Scheme, strings.TrimLeft(rest, "/"))
	case u.User != nil:
		return none, fmt.Errorf("credentials do not belong in it, because others see it (use the environment or " +
			"a profile)")
	case strings.Contains(text, "#"):
		return none, fmt.Errorf("it has a #, as the handles for renew and release have (write %%23 if the key has one)")
	}
	l := Location{Scheme: u.Scheme, Bucket: u.Host, Key: strings.TrimPrefix(u.Path, "/")}
	switch {
	case u.Scheme == "file" && u.Host != "" && u.Host != "localhost":
		return none, fmt.Errorf("three slashes begin a path (write file:///%s%s)", u.Host, u.Path)
	case u.Scheme == "file" && u.Path == "":
		return none, fmt.Errorf("it has no path (%s)", urlForms)
	case u.Scheme == "file":
		if l.Bucket, l.Key, err = splitFile(u); err != nil {
			return none, err
		}
	case u.Host == "":
		return none, fmt.Errorf("it has no bucket (%s)", urlForms)
	case strings.Contains(u.Host, ":"):
		return none, fmt.Errorf("a bucket has no port (for another server, write "+
			"%s://bucket/key?endpoint=http://%s)", u.Scheme, u.Host)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return none, fmt.Errorf("its parameters cannot be read: %w", err)
	}
	for name, values := range query {
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			return none, fmt.Errorf("a %s URL has no parameters, such as %q (write %%3F if the name has a "+
				"question mark)",
				u.Scheme, WithoutSecrets(name))
		case !slices.Contains(known, name):
			return none, fmt.Errorf("a %s URL has no parameter %q, only %s",
				u.Scheme, WithoutSecrets(name), strings.Join(known, ", "))
		case len(values) > 1:
			return none, fmt.Errorf("the parameter %q is there twice", name)
		case values[0] == "":
			return none, fmt.Errorf("the parameter %q is empty", name)
		}
	}
	l.Endpoint, l.region, l.profile = strings.TrimSuffix(query.Get("endpoint"), "/"),
		query.Get("region"), query.Get("profile")
	l.account = query.Get("account")
	if err := CheckEndpoint(l.Endpoint); err != nil {
		return none, err
	}
	if style := query.Get("path-style"); style != "" {
		on, err := strconv.ParseBool(style)
		if err != nil {
			return none, fmt.Errorf("path-style is %q, not 1 or 0", style)
		}
		l.pathStyle = &on
	}
	if only := query.Get("createonly"); only != "" {
		if l.CreateOnly, err = strconv.ParseBool(only); err != nil {
			return none, fmt.Errorf("createonly is %q, not 1 or 0", only)
		}
	}
	l.sse, l.sseKey = query.Get("sse"), query.Get("sse-kms-key-id")
	if why := badEncryption(l.sse, l.sseKey); why != "" {
		return none, errors.New(why)
	}
	return l, nil
}

// CheckEndpoint checks the address of a server. Its errors have nothing of it that may be a secret.
func CheckEndpoint(text string) error {
	if text == "" {
		return nil
	}
	server, err := url.Parse(text)
	switch {
	case strings.Contains(text, "@"):
		return errors.New("the endpoint has credentials, which do not belong in a URL, because others see it " +
			"(use the environment or a profile)")
	case err != nil || server.Host == "" || server.Scheme != "http" && server.Scheme != "https":
		return fmt.Errorf("the endpoint %q is not a URL such as http://localhost:9000", WithoutSecrets(text))
	case server.RawQuery != "" || strings.Contains(text, "#"):
		return errors.New("the endpoint has parameters (write a URL such as http://localhost:9000, " +
			"and give a signature by the environment)")
	}
	return nil
}

// splitFile reads the directory of a file URL, and the key or prefix in it. A key may have slashes,
// and a directory may be in another, so a slash ends the directory, and %2F is a slash of the key.
func splitFile(u *url.URL) (dir, key string, err error) {
	text := u.RawPath
	if text == "" { // it is what u.Path escapes to
		text = u.EscapedPath()
	}
	dir, key = path.Split(text)
	if strings.Contains(strings.ToLower(dir), "%2f") {
		return "", "", fmt.Errorf("%%2F is a slash of the key, which begins after the last / (write / between " +
			"directories)")
	}
	if dir, err = url.PathUnescape(dir); err == nil {
		key, err = url.PathUnescape(key)
	}
	if dir != "/" {
		dir = strings.TrimSuffix(dir, "/")
	}
	return dir, key, err
}

// badEncryption says what is wrong with a kind of encryption and a key of KMS.
func badEncryption(sse, key string) string {
	const kms = "aws:kms"
	switch {
	case sse != "" && sse != "AES256" && sse != kms && sse != kms+":dsse":
		return fmt.Sprintf("sse is %q, not AES256, aws:kms or aws:kms:dsse", sse)
	case key != "" && !strings.HasPrefix(sse, kms):
		return "sse-kms-key-id is of no use without sse=aws:kms"
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return fmt.Sprintf("sse-kms-key-id is %q, not the ID, ARN or alias of a key", key)
	}
	return ""
}

// CheckKey says what is wrong with the key for a lock. ParseLock has checked it.
func (l Location) CheckKey() error {
	switch why := storeapi.BadKey(l.Key); {
	case l.Key == "":
		return fmt.Errorf("it has no key (%s)", urlForms)
	case strings.HasSuffix(l.Key, "/"):
		return fmt.Errorf("it ends with a slash, as a prefix does (name one lock, such as %sreport)", l.Key)
	case why != "":
		return fmt.Errorf("the key %q %s", l.Key, why)
	}
	return nil
}

// String is the URL. It names the same key in the same place, whatever the key is.
func (l Location) String() string {
	u := url.URL{Scheme: l.Scheme, Host: l.Bucket, Path: "/" + l.Key}
	if l.Scheme == "file" { // see splitFile
		dir := url.URL{Path: strings.TrimSuffix(l.Bucket, "/") + "/"}
		u.Host, u.Path, u.RawPath = "", dir.Path+l.Key, dir.EscapedPath()+url.PathEscape(l.Key)
	}
	query := url.Values{}
	for name, value := range map[string]string{"endpoint": l.Endpoint, "region": l.region, "profile": l.profile,
		"account": l.account,
		"sse":     l.sse, "sse-kms-key-id": l.sseKey} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if l.CreateOnly {
		query.Set("createonly", "1")
	}
	if l.pathStyle != nil {
		query.Set("path-style", map[bool]string{true: "1", false: "0"}[*l.pathStyle])
	}
	u.RawQuery = query.Encode()
	return u.String()
}
