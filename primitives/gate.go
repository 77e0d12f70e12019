package primitives

import (
	"context"
	"fmt"
	"time"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// GateOptions configure a [Gate]. The zero value works.
type GateOptions struct {
	// Retention is how long a gate remembers the highest token after its last write,
	// and a value that is written without an expiry of its own. A holder that sleeps
	// for longer is not refused any more. 1s to 10 years; default 30 days.
	Retention time.Duration
}

// Gate is a fenced register in Redis: it lets a write through only if no newer token
// of the same resource has been there, in one step with the write. It is safe for
// concurrent use.
type Gate struct {
	store     *Store
	retention time.Duration
}

// NewGate returns a gate on store, or an [*OptionError].
func NewGate(store *Store, opts GateOptions) (*Gate, error) {
	if store == nil {
		return nil, &OptionError{"store", "is nil"}
	}
	d, err := checkDuration("Retention", opts.Retention, 30*24*time.Hour, time.Second, maxRetention)
	if err != nil {
		return nil, err
	}
	return &Gate{store: store, retention: d}, nil
}

// SetIfFresh writes value under key, within the resource of the token, unless a newer
// token of that resource has passed the gate: then it is a [*fence.StaleError], and
// what stands there is the newer holder's. An equal token passes for the same owner
// only. The value is kept for ttl; zero means as long as the gate remembers the token.
//
// The value has at most 64 MiB. It may be repeated; go-redis does so when a reply is
// lost, and then the refusal may be the answer to a write that stood until it was
// overtaken. Other errors: [fence.ErrNoToken] for an invalid token,
// [ErrUnavailable] (it may have been written), [ErrDenied], [ErrCorrupt],
// [ErrInvalid].
func (g *Gate) SetIfFresh(ctx context.Context, t fence.Token, key string, value []byte, ttl time.Duration) error {
	ttl, err := checkDuration("ttl", ttl, g.retention, time.Millisecond, maxRetention)
	if err != nil {
		return err
	}
	switch {
	case key == "":
		return &OptionError{"key", "is empty"}
	case len(value) > largestMaxMemo:
		return &OptionError{"value", fmt.Sprintf("%d bytes are above the maximum of %d", len(value), largestMaxMemo)}
	}
	names := g.store.names.resource(t.Resource)
	// The fence outlives the value, or a stale holder could write it again.
	return g.pass(ctx, t, []string{names.gate(), names.gateValue(key)}, millis(max(ttl, g.retention)), value, millis(ttl))
}

// Advance is SetIfFresh without a value: from now on, older tokens are refused.
func (g *Gate) Advance(ctx context.Context, t fence.Token) error {
	return g.pass(ctx, t, []string{g.store.names.resource(t.Resource).gate()}, millis(g.retention))
}

func (g *Gate) pass(ctx context.Context, t fence.Token, keys []string, args ...any) error {
	if !t.Valid() {
		return fmt.Errorf("%w: token %s is invalid", fence.ErrNoToken, t)
	}
	if err := checkResource(t.Resource); err != nil {
		return err
	}
	r, err := g.store.run(ctx, call{
		script: &g.store.scripts.gate,
		keys:   keys,
		args:   append([]any{padded(t.Value), t.Owner}, args...),
	})
	if err != nil {
		return err
	}
	switch r.word {
	case "passed":
		return nil
	case "stale":
		f := r.read()
		e := &fence.StaleError{Resource: t.Resource, Token: t.Value, Current: f.token()}
		if f.err != nil {
			return f.err
		}
		return e
	}
	return r.unexpected()
}

// Current returns the highest token that has passed the gate of a resource, or
// [ErrNotFound].
func (g *Gate) Current(ctx context.Context, resource string) (fence.Token, error) {
	t, _, _, err := g.read(ctx, resource)
	return t, err
}

// Get returns the value under key in a resource, with the newest token that has
// passed the gate since or with it, or [ErrNotFound].
func (g *Gate) Get(ctx context.Context, resource, key string) ([]byte, fence.Token, error) {
	t, value, found, err := g.read(ctx, resource, g.store.names.resource(resource).gateValue(key))
	if err == nil && !found {
		err = fmt.Errorf("%w: gate value %q of %q", ErrNotFound, key, resource)
	}
	return value, t, err
}

func (g *Gate) read(ctx context.Context, resource string, value ...string) (t fence.Token, v []byte, found bool, err error) {
	if err := checkResource(resource); err != nil {
		return t, nil, false, err
	}
	r, err := g.store.run(ctx, call{
		script: &g.store.scripts.gateRead,
		keys:   append([]string{g.store.names.resource(resource).gate()}, value...),
	})
	if err != nil {
		return t, nil, false, err
	}
	if r.word == "none" {
		return t, nil, false, fmt.Errorf("%w: no token has passed the gate of %q", ErrNotFound, resource)
	}
	if r.word != "seen" {
		return t, nil, false, r.unexpected()
	}
	f := r.read()
	t = fence.Token{Resource: resource, Value: f.grant(), Owner: f.text()}
	if len(value) > 0 {
		found = f.flag()
		if text := f.text(); found {
			v = []byte(text)
		}
	}
	return t, v, found, f.err
}
