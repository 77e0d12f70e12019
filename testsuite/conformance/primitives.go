package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Primitives is package primitives as a [Store]: the reference, and an example of an
// adapter. expire ends a lease, whose Redis key it is given. lose, if it is given, deletes
// all that is stored.
func Primitives(s *primitives.Store, expire func(ctx context.Context, key string) error, lose ...func(context.Context) error) (Store, error) {
	guard, err := primitives.NewGuard(s, primitives.GuardOptions{})
	if err != nil {
		return nil, err
	}
	gate, err := primitives.NewGate(s, primitives.GateOptions{})
	if err != nil {
		return nil, err
	}
	return &reference{store: s, guard: guard, gate: gate, expire: expire, lose: lose}, nil
}

type reference struct {
	store  *primitives.Store
	guard  *primitives.Guard
	gate   *primitives.Gate
	expire func(ctx context.Context, key string) error
	lose   []func(context.Context) error
}

var _ interface {
	Failer
	Suspender
	Configurer
	Liner
	Loser
} = (*reference)(nil)

// start is any moment, to order attempts by.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (r *reference) op(op Op) (primitives.Op, error) {
	key, err := primitives.NewKey("conformance", op.Key)
	if err != nil {
		return primitives.Op{}, err
	}
	o := primitives.Op{Key: key, Resource: op.Resource,
		Execution: primitives.Execution{ID: op.Execution, Started: start, Attempt: op.Attempt}}
	if op.Input != "" {
		o.Fingerprint, err = primitives.NewFingerprint(op.Input)
	}
	return o, err
}

// Begin implements [Store].
func (r *reference) Begin(ctx context.Context, op Op) (Start, error) {
	o, err := r.op(op)
	if err != nil {
		return Start{}, err
	}
	st, err := r.guard.Begin(ctx, o)
	return started(st), err
}

// TryBegin implements [Store].
func (r *reference) TryBegin(ctx context.Context, op Op) (Start, error) {
	o, err := r.op(op)
	if err != nil {
		return Start{}, err
	}
	st, err := r.store.TryBegin(ctx, o, primitives.RecordOptions{})
	return started(st), err
}

func started(st primitives.Start) Start {
	s := Start{Outcome: st.Outcome, Memo: st.Memo}
	if st.Claim != nil {
		s.Claim, s.Token = st.Claim, st.Claim.Token()
	}
	return s
}

// Complete implements [Store].
func (r *reference) Complete(ctx context.Context, c Claim, memo []byte) error {
	return c.(*primitives.Claim).Complete(ctx, memo) //nolint:errcheck // only what begin has returned
}

// Abort implements [Store].
func (r *reference) Abort(ctx context.Context, c Claim) error {
	return c.(*primitives.Claim).Abort(ctx) //nolint:errcheck // only what begin has returned
}

// Acquire implements [Store].
func (r *reference) Acquire(ctx context.Context, resource string) (Lease, error) {
	l, err := r.store.TryAcquire(ctx, resource, primitives.LeaseOptions{})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Extend implements [Store].
func (r *reference) Extend(ctx context.Context, l Lease) error {
	return l.(*primitives.Lease).Extend(ctx, 0) //nolint:errcheck // only what acquire has returned
}

// Release implements [Store].
func (r *reference) Release(ctx context.Context, l Lease) error {
	return l.(*primitives.Lease).Release(ctx) //nolint:errcheck // only what acquire has returned
}

// SetIfFresh implements [Store].
func (r *reference) SetIfFresh(ctx context.Context, t fence.Token, key string, value []byte) error {
	return r.gate.SetIfFresh(ctx, t, key, value, 0)
}

// Get implements [Store].
func (r *reference) Get(ctx context.Context, resource, key string) ([]byte, error) {
	v, _, err := r.gate.Get(ctx, resource, key)
	return v, err
}

// Expire implements [Store].
func (r *reference) Expire(ctx context.Context, resource string) error {
	info, err := r.store.Inspect(ctx, resource)
	if err != nil {
		return err
	}
	return r.expire(ctx, info.Name())
}

// Fail implements [Failer].
func (r *reference) Fail(ctx context.Context, c Claim, memo []byte) error {
	return c.(*primitives.Claim).Fail(ctx, memo) //nolint:errcheck // only what begin has returned
}

// Suspend implements [Suspender].
func (r *reference) Suspend(ctx context.Context, c Claim, d time.Duration) error {
	return c.(*primitives.Claim).Suspend(ctx, d) //nolint:errcheck // only what begin has returned
}

// With implements [Configurer].
func (r *reference) With(rules Rules) (Store, error) {
	guard, err := primitives.NewGuard(r.store, primitives.GuardOptions{
		MaxMemo: rules.MaxMemo, MaxTakeovers: rules.MaxTakeovers, AtMostOnce: rules.AtMostOnce, Wait: rules.Wait,
	})
	if err != nil {
		return nil, err
	}
	other := *r
	other.guard = guard
	return &other, nil
}

// Waiting implements [Liner].
func (r *reference) Waiting(ctx context.Context, resource string) (int, error) {
	info, err := r.store.Inspect(ctx, resource)
	return info.Waiters, err
}

// Lose implements [Loser].
func (r *reference) Lose(ctx context.Context) error {
	if len(r.lose) == 0 {
		return errors.ErrUnsupported
	}
	for _, lose := range r.lose {
		if err := lose(ctx); err != nil {
			return err
		}
	}
	return nil
}
