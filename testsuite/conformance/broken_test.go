package conformance_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/testsuite/conformance"
)

// capable is the reference with all that a store may leave out.
type capable interface {
	conformance.Store
	conformance.Failer
	conformance.Suspender
	conformance.Configurer
	conformance.Liner
	conformance.Loser
}

// able is the reference, for stores that break one of its capabilities.
type able struct{ capable }

// successful takes failures for results.
type successful struct{ able }

func (s successful) Fail(ctx context.Context, c conformance.Claim, memo []byte) error {
	return s.Complete(ctx, c, memo)
}

// indulgent forgets failures.
type indulgent struct{ able }

func (s indulgent) Fail(ctx context.Context, c conformance.Claim, _ []byte) error {
	return s.Abort(ctx, c)
}

// impatient gives up what is suspended.
type impatient struct{ able }

func (s impatient) Suspend(ctx context.Context, c conformance.Claim, _ time.Duration) error {
	return s.Abort(ctx, c)
}

// ignorant knows some rules only.
type ignorant struct {
	able
	knows func(conformance.Rules) conformance.Rules
}

func (s ignorant) With(r conformance.Rules) (conformance.Store, error) {
	return s.able.With(s.knows(r))
}

// revenant takes the end of an operation from whoever had it once.
type revenant struct{ able }

func (s revenant) Complete(ctx context.Context, c conformance.Claim, memo []byte) error {
	if err := s.able.Complete(ctx, c, memo); !errors.Is(err, primitives.ErrSuperseded) {
		return err
	}
	return nil
}

func (s revenant) Fail(ctx context.Context, c conformance.Claim, memo []byte) error {
	if err := s.able.Fail(ctx, c, memo); !errors.Is(err, primitives.ErrSuperseded) {
		return err
	}
	return nil
}

// impolite serves who came last.
type impolite struct {
	able
	waits   bool
	waiting atomic.Int64
	served  chan struct{} // closed when the second was
}

func (s *impolite) With(r conformance.Rules) (conformance.Store, error) {
	if r.Wait == 0 {
		return s.able.With(r)
	}
	s.waits = true
	return s, nil
}

func (s *impolite) Waiting(context.Context, string) (int, error) { return int(s.waiting.Load()), nil }

func (s *impolite) Begin(ctx context.Context, op conformance.Op) (st conformance.Start, err error) {
	if !s.waits {
		return s.able.Begin(ctx, op)
	}
	s.waiting.Add(1)
	if op.Key == "first" {
		select {
		case <-s.served:
		case <-ctx.Done():
		}
	}
	st, err = s.able.Begin(ctx, op)
	for errors.Is(err, primitives.ErrBusy) && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
		st, err = s.able.Begin(ctx, op)
	}
	if op.Key == "second" {
		close(s.served)
	}
	return st, err
}

// recounting grants tokens that begin at one, and forgets them with all else.
type recounting struct {
	able
	lost bool
}

func (s *recounting) Lose(ctx context.Context) error {
	s.lost = true
	return s.able.Lose(ctx)
}

func (s *recounting) Acquire(ctx context.Context, resource string) (conformance.Lease, error) {
	l, err := s.able.Acquire(ctx, resource)
	if err == nil && s.lost {
		l = fixed{l}
	}
	return l, err
}

// undying revives leases that it has lost.
type undying struct{ able }

func (undying) Extend(context.Context, conformance.Lease) error { return nil }

// A store that breaks one of the rules for what may be left out fails its case, and one
// that leaves all of it out fails none.
func TestBrokenCapabilitiesFail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wrap  func(able) conformance.Store
		fails []string
	}{
		"nothing is broken": {wrap: func(a able) conformance.Store { return a }},
		"nothing is there":  {wrap: func(a able) conformance.Store { return struct{ conformance.Store }{a} }},
		"failures are results": {func(a able) conformance.Store { return successful{a} },
			[]string{"a memoised failure is given to everybody"}},
		"failures are forgotten": {func(a able) conformance.Store { return indulgent{a} },
			[]string{"a memoised failure is given to everybody", "a superseded failure is not stored"}},
		"superseded claims end": {func(a able) conformance.Store { return revenant{a} },
			[]string{"a superseded failure is not stored", "a newer attempt takes a suspended operation over"}},
		"what is suspended is given up": {func(a able) conformance.Store { return impatient{a} },
			[]string{"a suspended operation is busy until its result arrives"}},
		"memos have no limit": {func(a able) conformance.Store {
			return ignorant{a, func(r conformance.Rules) conformance.Rules { r.MaxMemo = 0; return r }}
		}, []string{"a result above the limit is done, and not kept"}},
		"takeovers have no limit": {func(a able) conformance.Store {
			return ignorant{a, func(r conformance.Rules) conformance.Rules { r.MaxTakeovers = 0; return r }}
		}, []string{"after the limit of takeovers an operation is poisoned"}},
		"at most once is twice": {func(a able) conformance.Store {
			return ignorant{a, func(r conformance.Rules) conformance.Rules { r.AtMostOnce = false; return r }}
		}, []string{"an at-most-once operation that was interrupted does not run again"}},
		"the last are the first": {func(a able) conformance.Store { return &impolite{able: a, served: make(chan struct{})} },
			[]string{"who waits is served in the order of coming"}},
		"tokens begin anew": {func(a able) conformance.Store { return &recounting{able: a} },
			[]string{"tokens rise after a loss of all data"}},
		"leases never end": {func(a able) conformance.Store { return undying{a} },
			[]string{"a lease is not revived after a loss of all data"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := memory(t)
			failed := failures(func() conformance.Store { return c.wrap(able{open(t, rdb).(capable)}) })
			if len(c.fails) == 0 {
				require.Empty(t, failed)
			}
			require.Subset(t, failed, c.fails)
		})
	}
}

// The reference can do all of it, so that no case is passed over.
func TestReferenceIsCapable(t *testing.T) {
	t.Parallel()
	require.Implements(t, (*capable)(nil), open(t, memory(t)))
}
