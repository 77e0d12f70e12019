package primitives

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// undoes are the operations that a claim has undone, until it is ended or travels.
type undoes struct {
	mu     sync.Mutex
	keys   []Key
	closed bool
}

func (u *undoes) any() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.keys) > 0
}

// close returns them; none is added after that.
func (u *undoes) close() []Key {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	return slices.Clone(u.keys)
}

func (u *undoes) add(key Key) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return &OptionError{"claim", "is completed, or was written as text: what it undoes must be noted before"}
	}
	if !slices.Contains(u.keys, key) {
		u.keys = append(u.keys, key)
	}
	return nil
}

// Undo notes that the work of this claim undoes op, as a compensation does: when the claim
// is completed, in the same step, op becomes undone, whatever it was, and the next call of
// it runs. Nothing is undone by a claim that ends otherwise, or whose lease is lost and
// was granted to somebody else since: its Complete is refused then, and stores nothing.
//
// Undo returns the key under which the body of op has run last, or would run now
// ([Attempt].Key): what it did is known by that.
//
// op must be under the resource of the claim, so that it cannot run meanwhile; only its
// Key, Resource and Fingerprint matter: a record made from other input is a
// [*MismatchError], for it is that of another call. It may be done, failed, interrupted, undone or unknown. One that
// runs without a lease is a [*BusyError], here or from Complete. The [*OptionError] for
// what breaks a rule names it; a claim made by [Store.TryBegin] has no lease and can undo
// nothing.
//
// What was undone is remembered for the Retention of the claim, or as long as op's record
// would have been kept, if that is longer. After that a call of op runs under op's own
// key again.
func (c *Claim) Undo(ctx context.Context, op Op) (Key, error) {
	if err := op.check(); err != nil {
		return Key{}, err
	}
	switch {
	case !c.Token().Valid():
		return Key{}, &OptionError{"claim", "has no lease: only one made by Guard.Begin can undo"}
	case op.resource() != c.resource:
		return Key{}, &OptionError{"Resource", "is not that of the claim: an operation is undone under the resource that it ran under"}
	case op.Key == c.key:
		return Key{}, &OptionError{"Key", "is that of the claim itself"}
	}
	r, err := c.store.Status(ctx, op)
	if err == nil {
		err = r.mismatch(op)
	}
	if err != nil {
		return Key{}, err
	}
	if (r.State == Running || r.State == Pending) && r.Token == 0 {
		return Key{}, r.busy(op)
	}
	return op.Key.After(r.Undone), c.undoes.add(op.Key)
}

// Undo is [Claim.Undo] of the attempt's claim: once the body has returned its result, op
// is undone in the step that stores it. If that cannot be stored, Do returns an error, as
// under GuardOptions.StrictMemo. An attempt that is Unguarded can undo nothing: an
// [*OptionError].
func (a Attempt) Undo(ctx context.Context, op Op) (Key, error) {
	if a.claim == nil {
		return Key{}, &OptionError{"claim", "an unguarded attempt has none, and can undo nothing"}
	}
	return a.claim.Undo(ctx, op)
}

const undoneDomain = "fencekit/undone/v1\n"

// After is the key of what the operation of k does after it was undone under a token: a
// request or a ledger that knows what was done under k takes it for something new. For
// zero it is k.
func (k Key) After(undone fence.Value) Key {
	if undone == 0 {
		return k
	}
	return Key{k.namespace, sha256.Sum256([]byte(undoneDomain + k.String() + "\n" + padded(undone)))}
}
