package primitives

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

var sentinels = []error{
	ErrBusy, ErrUnavailable, ErrDenied, ErrMismatch, ErrSuperseded, ErrCorrupt, ErrResultUnavailable,
	ErrPoisoned, ErrOutcomeUnknown, ErrFailed, ErrChanged, ErrNotFound, ErrInvalid,
	fence.ErrStale, fence.ErrNoToken, fence.ErrAmbiguous, fence.ErrLeaseLost,
}

// errorMatrix is every error type, what it matches, and what its text must name.
var errorMatrix = []struct {
	err     error
	matches []error
	text    []string
}{
	{&OptionError{"LeaseTTL", "5ms is below the minimum"}, []error{ErrInvalid}, []string{"LeaseTTL", "5ms"}},
	{&BusyError{Resource: "r", Holder: "h", Token: 7, Remaining: time.Second}, []error{ErrBusy}, []string{`"r"`, `"h"`, "7", "1s"}},
	{&UnavailableError{"begin", errStop}, []error{ErrUnavailable, errStop}, []string{"begin", "stop"}},
	{&DeniedError{"begin", errStop}, []error{ErrDenied, errStop}, []string{"begin", "stop"}},
	{&LostError{Resource: "r", Token: 7, Step: "renew", Holder: "h"}, []error{fence.ErrLeaseLost}, []string{`"r"`, "7", "renew"}},
	{&MismatchError{Stored: "a1", Asked: "b2", Holder: "h"}, []error{ErrMismatch}, []string{"a1", "b2", `"h"`}},
	{&SupersededError{Token: 7, Current: 8, Holder: "h"}, []error{ErrSuperseded, fence.ErrLeaseLost}, []string{"7", "8", `"h"`}},
	{&CorruptError{"name", "reason"}, []error{ErrCorrupt}, []string{"name", "reason"}},
	{&ResultUnavailableError{Size: 9, Limit: 8}, []error{ErrResultUnavailable}, []string{"9 bytes", "8"}},
	{&PoisonedError{Takeovers: 3, Holder: "h"}, []error{ErrPoisoned}, []string{"3 times", `"h"`}},
	{&OutcomeUnknownError{Holder: "h", Began: time.Unix(0, 0)}, []error{ErrOutcomeUnknown}, []string{`"h"`, "1970-01-01T00:00:00Z"}},
	{&FailedError{Memo: []byte("secret")}, []error{ErrFailed}, []string{"memoised"}},
	{&fence.StaleError{Resource: "r", Token: 7, Current: 8}, []error{fence.ErrStale}, []string{`"r"`, "7", "8"}},
}

// Each error matches its sentinels and no other, also inside other errors: that it is
// busy, lost while renewing, or lost while releasing can always be told apart (B19).
func TestEachErrorMatchesItsSentinelsOnly(t *testing.T) {
	t.Parallel()
	for _, c := range errorMatrix {
		for _, err := range []error{
			c.err, fmt.Errorf("activity: %w", c.err), errors.Join(errors.New("x"), c.err),
			fmt.Errorf("%w and %w", errors.New("x"), fmt.Errorf("deep: %w", c.err)),
		} {
			for _, sentinel := range append(sentinels, errStop) {
				want := false
				for _, m := range c.matches {
					want = want || m == sentinel //nolint:errorlint // sentinels
				}
				require.Equal(t, want, errors.Is(err, sentinel), "%T and %v", c.err, sentinel)
			}
			for _, other := range errorMatrix {
				target := reflect.New(reflect.TypeOf(other.err))
				require.Equal(t, reflect.TypeOf(other.err) == reflect.TypeOf(c.err), errors.As(err, target.Interface()), "%T as %T", c.err, other.err)
			}
		}
		for _, part := range c.text {
			require.Contains(t, c.err.Error(), part)
		}
		require.NotContains(t, c.err.Error(), "secret", "a memo is not for logs")
	}
}

func TestSentinelsAreApart(t *testing.T) {
	t.Parallel()
	texts := map[string]bool{}
	for i, a := range sentinels {
		require.False(t, texts[a.Error()], a)
		texts[a.Error()] = true
		for j, b := range sentinels {
			require.Equal(t, i == j, errors.Is(a, b), "%v is %v", a, b)
		}
	}
}

// B19: each way to lose a lease names the step at which it showed.
func TestLostErrorsNameTheirStep(t *testing.T) {
	behaviour(t, func(e *env) {
		lose := func() *Lease {
			resource := newNonce()
			l, err := e.store.Acquire(e.ctx(), resource, LeaseOptions{})
			require.NoError(e, err)
			e.expire(resource)
			_, err = e.store.Acquire(e.ctx(), resource, LeaseOptions{Holder: "next"})
			require.NoError(e, err)
			_, err = e.store.TryAcquire(e.ctx(), resource, LeaseOptions{})
			require.ErrorIs(e, err, ErrBusy)
			require.NotErrorIs(e, err, fence.ErrLeaseLost)
			return l
		}
		for step, call := range map[string]func(*Lease) error{
			"extend":  func(l *Lease) error { return l.Extend(e.ctx(), 0) },
			"release": func(l *Lease) error { return l.Release(e.ctx()) },
			"renew": func(l *Lease) error {
				l.every = 10 * time.Millisecond
				held, stop := l.Keep(e.ctx())
				defer stop()
				<-held.Done()
				return context.Cause(held)
			},
		} {
			l := lose()
			err := call(l)
			require.NotErrorIs(e, err, ErrBusy)
			require.Equal(e, &LostError{Resource: l.resource, Token: l.Token().Value, Step: step, Holder: "next"}, err)
		}
	})
}
