package primitives

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Claim is the right to do one operation, until it is ended. A claim made by
// [Guard.Begin] has a lease with a fencing token, which Keep renews; one made by
// [Store.TryBegin] has neither: its Token is invalid. It is safe for concurrent use.
type Claim struct {
	tenure
	key          Key
	fingerprint  Fingerprint
	holder       string
	maxMemo      int
	maxTakeovers int
	once         bool
	noTakeover   bool
	undoes       undoes
}

// Key is the idempotency key of the operation.
func (c *Claim) Key() Key { return c.key }

func (c *Claim) keys() []string {
	n := c.names
	return []string{n.lease(), n.token(), n.queue(), n.waiters(), c.record, waitersOf(c.record), n.released(c.nonce)}
}

func (c *Claim) fp() string {
	if c.fingerprint.IsZero() {
		return ""
	}
	return c.fingerprint.String()
}

// Complete stores memo as the result of the operation, and gives up the lease. It
// works on a context that has ended, and after the lease has ended too, as long as
// nobody else has begun the operation: then it returns a [*SupersededError] and
// stores nothing. What [Claim.Undo] has noted becomes undone in the same step. Repeating
// it succeeds. A memo above the limit of the guard is not kept: the operation is done,
// and later calls get a [*ResultUnavailableError].
//
// After [ErrUnavailable] the memo may or may not be stored; call Complete again.
func (c *Claim) Complete(ctx context.Context, memo []byte) error {
	return c.finish(ctx, "done", memo, c.undoes.close())
}

// Fail is Complete for an operation that has failed for good: later calls get a
// [*FailedError] with the memo, or with none if it was above the limit. It undoes nothing.
func (c *Claim) Fail(ctx context.Context, memo []byte) error {
	return c.finish(ctx, "failed", memo, nil)
}

func (c *Claim) finish(ctx context.Context, state string, memo []byte, undone []Key) error {
	token := ""
	if t := c.Token(); t.Valid() {
		token = padded(t.Value)
	}
	kept := len(memo) <= c.maxMemo
	size := strconv.Itoa(len(memo))
	if !kept {
		memo = nil
	}
	s := c.store
	r, err := s.run(detached(ctx), call{
		script: &s.scripts.complete,
		keys:   append(c.keys(), c.names.records(undone)...),
		args: []any{
			c.nonce, s.epochs.known(), millis(s.opts.TokenRetention), token,
			state, millis(c.keepFor), c.fp(), c.holder,
			flag(kept), memo, size, c.maxMemo,
		},
	})
	if err != nil {
		return err
	}
	switch r.word {
	case "completed":
		return nil
	case "busy":
		return busy(r, c.resource, &place{})
	case "superseded":
		f := r.read()
		e := &SupersededError{Key: c.key, Token: c.Token().Value, Holder: f.text(), Current: f.token()}
		if f.err != nil {
			return f.err
		}
		return e
	}
	return r.unexpected()
}

// Abort ends the operation without a result, so that the next call may start it at
// once. What is not ours any more is left alone, so it may be repeated. It works on
// a context that has ended. If Redis cannot answer, the lease ends with its TTL.
func (c *Claim) Abort(ctx context.Context) error {
	_, err := c.abort(detached(ctx), 0)
	return err
}

// AbortAbove is Abort for a body whose write was refused as stale although its lease
// is the newest: a store had seen a token from before Redis lost its data or its
// clock went back. The next token of the resource is above seen. It returns false if
// the lease is not the newest after all: then the refusal was right.
func (c *Claim) AbortAbove(ctx context.Context, seen fence.Value) (raised bool, err error) {
	if err := checkFloor("seen", seen); err != nil {
		return false, err
	}
	return c.abort(detached(ctx), seen)
}

func (c *Claim) abort(ctx context.Context, floor fence.Value) (raised bool, err error) {
	s := c.store
	r, err := s.run(ctx, call{
		script: &s.scripts.abort,
		keys:   c.keys(),
		args:   []any{c.nonce, s.epochs.known(), millis(s.opts.TokenRetention), padded(max(0, floor)), millis(tombstoneLife)},
	})
	if err != nil {
		return false, err
	}
	if r.word != "aborted" {
		return false, r.unexpected()
	}
	f := r.read()
	return f.flag(), f.err
}

// giveUp aborts whatever a failed or abandoned begin may have left. If that fails
// too, the TTL does it.
func (c *Claim) giveUp(ctx context.Context) { _, _ = c.abort(ctx, 0) }

// Suspend says that the body has returned and that its result comes later, from
// elsewhere, within d: others find the operation busy until then, and a newer
// attempt of the same execution takes it over. Whoever brings the result completes
// the claim, which travels as text: see [Claim.MarshalText] and [Guard.ParseClaim].
// A lease that is not held any more is a [*LostError].
func (c *Claim) Suspend(ctx context.Context, d time.Duration) error {
	d, err := checkDuration("d", d, c.ttl, minLease, maxRetention)
	if err != nil {
		return err
	}
	s := c.store
	r, err := s.run(detached(ctx), call{
		script: &s.scripts.suspend,
		keys:   []string{c.names.lease(), c.record},
		args:   []any{c.nonce, millis(d), millis(d + c.runFor)},
	})
	if err != nil {
		return err
	}
	switch r.word {
	case "suspended":
		return nil
	case "lost":
		return c.lost("suspend", r)
	}
	return r.unexpected()
}

// claimText is a claim as it travels to whoever completes it.
type claimText struct {
	Key         string      `json:"key"`
	Resource    string      `json:"resource"`
	Nonce       string      `json:"nonce"`
	Token       fence.Value `json:"token"`
	Fingerprint string      `json:"fingerprint,omitempty"`
	Holder      string      `json:"holder,omitempty"`
	Undoes      []Key       `json:"undoes,omitempty"`
}

// MarshalText writes the claim, so that another process can end it. Who has the
// text can complete the operation: treat it as a secret. A claim made by
// [Store.TryBegin] is an [*OptionError].
func (c *Claim) MarshalText() ([]byte, error) {
	if !c.Token().Valid() {
		return nil, &OptionError{"claim", "has no lease: only one made by Guard.Begin travels"}
	}
	return json.Marshal(claimText{
		Key: c.key.String(), Resource: c.resource, Nonce: c.nonce, Token: c.Token().Value,
		Fingerprint: c.fp(), Holder: c.holder, Undoes: c.undoes.close(),
	})
}

// ParseClaim reads what [Claim.MarshalText] wrote. The claim may be ended, with the
// retention and memo limit of g; it is not renewed.
func (g *Guard) ParseClaim(text []byte) (*Claim, error) {
	var t claimText
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, &OptionError{"text", fmt.Sprintf("is not a claim: %v", err)}
	}
	op := Op{Resource: t.Resource, Holder: t.Holder}
	if err := op.Key.UnmarshalText([]byte(t.Key)); err != nil {
		return nil, &OptionError{"text", fmt.Sprintf("is not a claim: %v", err)}
	}
	if t.Nonce == "" || t.Resource == "" || !t.Token.Valid() {
		return nil, &OptionError{"text", "is not a claim: nonce, resource or token is missing"}
	}
	var err error
	if op.Fingerprint, err = ParseFingerprint(t.Fingerprint); err != nil {
		return nil, &OptionError{"text", "is not a claim: its fingerprint is malformed"}
	}
	if err := op.check(); err != nil {
		return nil, err
	}
	c := g.claim(op)
	c.nonce, c.undoes = t.Nonce, undoes{keys: t.Undoes}
	c.granted(t.Token, time.Time{})
	return c, nil
}
