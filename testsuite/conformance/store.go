package conformance

import (
	"context"
	"time"

	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Store is a guard's store, as the cases use it. Each case gets one whose keys and
// resources are its own; a lease must last for some seconds at least, or for the whole
// case if no case ends it by [Store.Expire].
type Store interface {
	// Begin begins op: it takes the lease of the resource, issues a token and marks the
	// record running, or gives back the memo. Errors: primitives.ErrBusy,
	// primitives.ErrMismatch.
	Begin(ctx context.Context, op Op) (Start, error)

	// Complete stores the memo as the result, and gives up the lease. Errors:
	// primitives.ErrSuperseded.
	Complete(ctx context.Context, c Claim, memo []byte) error

	// Abort ends the operation without a result. What is not the claim's any more it
	// leaves alone.
	Abort(ctx context.Context, c Claim) error

	// TryBegin begins op by its record alone, without lease and token. Complete and
	// Abort end it. Errors as those of Begin.
	TryBegin(ctx context.Context, op Op) (Start, error)

	// Acquire takes the lease of a resource without waiting. Errors:
	// primitives.ErrBusy.
	Acquire(ctx context.Context, resource string) (Lease, error)

	// Extend makes the lease last for its whole time again. Errors:
	// fence.ErrLeaseLost.
	Extend(ctx context.Context, l Lease) error

	// Release gives the lease up. It is no error if it was lost.
	Release(ctx context.Context, l Lease) error

	// SetIfFresh writes a value under a token, unless a higher one has written to the
	// resource. Errors: fence.ErrStale.
	SetIfFresh(ctx context.Context, t fence.Token, key string, value []byte) error

	// Get reads what SetIfFresh has written; nil if nothing.
	Get(ctx context.Context, resource, key string) ([]byte, error)

	// Expire ends the lease of a resource as if its time had run out: by waiting, by
	// moving a clock, or by deleting it behind the store's back.
	Expire(ctx context.Context, resource string) error
}

// The following are what a store may leave out: cases that need one of them skip a store
// that does not implement it, where T has Skip.

// Failer is a store that memoises failures.
type Failer interface {
	// Fail stores the memo as the failure of the operation, and gives up the lease: later
	// begins get a *primitives.FailedError with it. Errors: primitives.ErrSuperseded.
	Fail(ctx context.Context, c Claim, memo []byte) error
}

// Suspender is a store whose results may come from elsewhere.
type Suspender interface {
	// Suspend keeps the operation busy for d, without its holder, until the claim is
	// completed or d is over.
	Suspend(ctx context.Context, c Claim, d time.Duration) error
}

// Configurer is a store whose guard has options.
type Configurer interface {
	// With returns the same store, on the same records and leases, with other rules.
	With(r Rules) (Store, error)
}

// Rules are the options of a guard; zero is its default. They are those of
// primitives.GuardOptions.
type Rules struct {
	MaxMemo      int           // a larger result is not kept: primitives.ErrResultUnavailable
	MaxTakeovers int           // then: primitives.ErrPoisoned
	AtMostOnce   bool          // a holder that is gone is not replaced: primitives.ErrOutcomeUnknown
	Wait         time.Duration // how long a begin waits while another one is at work
}

// Liner is a store that keeps those who wait in the order in which they came.
type Liner interface {
	// Waiting is how many wait for a resource. It may be late, not early.
	Waiting(ctx context.Context, resource string) (int, error)
}

// Loser is a store that can be made to lose what it has stored.
type Loser interface {
	// Lose loses all records, leases and tokens.
	Lose(ctx context.Context) error
}

// Op is an operation.
type Op struct {
	Key       string
	Resource  string // empty: the key is its own resource
	Input     string // the whole input, if the key covers a part of it
	Execution string // whose attempt this is; empty: nobody's
	Attempt   int    // higher is newer
}

// Start is the answer of a begin.
type Start struct {
	Outcome primitives.Outcome
	Claim   Claim
	Token   fence.Token // invalid without a lease
	Memo    []byte      // of primitives.Replayed
}

// Claim is whatever the store needs to recognise a grant of an operation.
type Claim any

// Lease is the same for a grant of a resource.
type Lease interface{ Token() fence.Token }

// T is the part of testing.TB that cases use.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
}

// caseTimeout bounds a case.
const caseTimeout = time.Minute
