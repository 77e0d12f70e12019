package testsuite

import (
	"context"
	"net/http"
)

// Effect tells the kit of something that the activity does to somebody else, such as a
// call of a fake payment provider: it is then a step of the run, at which the run can be
// frozen or die. name says what is done, key is the idempotency key that the other side
// gets, empty if none. Effect returns the error of do, or one of its own if the run's
// process is dead: do has not been called then.
//
// Give activities the interface that they call, and have the fake call Effect. For HTTP
// there is [Kit.RoundTripper].
func (k *Kit) Effect(ctx context.Context, name, key string, do func() error) error {
	r, stray := k.owner(ctx)
	if r == nil {
		return do()
	}
	s := &Step{System: Outside, Text: name, Key: key, Stray: stray}
	if err := r.before(ctx, s); err != nil {
		return err
	}
	err := do()
	r.mu.Lock()
	s.Err, s.writes, s.Changed = err, true, err == nil
	r.mu.Unlock()
	r.after(s)
	return err
}

// keyHeader is the header by which HTTP APIs take an idempotency key.
const keyHeader = "Idempotency-Key"

// RoundTripper makes each request of an HTTP client a step, as [Kit.Effect] does, with
// the header Idempotency-Key as its key. Requests by GET, HEAD and OPTIONS pass
// unwatched. base sends them; nil: http.DefaultTransport.
func (k *Kit) RoundTripper(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return tripper{kit: k, base: base}
}

type tripper struct {
	kit  *Kit
	base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t tripper) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "":
		return t.base.RoundTrip(req)
	}
	name := req.Method + " " + req.URL.Host + req.URL.Path
	err = t.kit.Effect(req.Context(), name, req.Header.Get(keyHeader), func() (err error) {
		resp, err = t.base.RoundTrip(req) //nolint:bodyclose // the caller's
		return err
	})
	return resp, err
}
