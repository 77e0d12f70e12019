package primitives

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An at-most-once body that returns after its context has ended may have been cut short
// in the middle of its effect: it is not run again. Control: an error before that is its
// word that nothing has happened.
func TestAtMostOnceHoldsForABodyThatWasCutShort(t *testing.T) {
	behaviour(t, func(e *env) {
		g := e.guard(GuardOptions{AtMostOnce: true})
		cut, clean := e.op(), e.op()
		ctx, cancel := context.WithCancel(e.ctx())
		_, err := g.Do(ctx, cut, func(ctx context.Context) ([]byte, error) {
			cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		})
		require.ErrorIs(e, err, context.Canceled)
		_, err = g.Do(e.ctx(), cut, (&counted{}).body)
		require.ErrorIs(e, err, ErrOutcomeUnknown)

		_, err = g.Do(e.ctx(), clean, func(context.Context) ([]byte, error) { return nil, errStop })
		require.Same(e, errStop, err)
		again := &counted{}
		_, err = g.Do(e.ctx(), clean, again.body)
		require.NoError(e, err)
		require.EqualValues(e, 1, again.runs.Load())
	})
}

// The verdict Unknown leaves an at-most-once record to an operator, and frees the lease;
// without AtMostOnce it is Abort.
func TestVerdictUnknown(t *testing.T) {
	behaviour(t, func(e *env) {
		for _, once := range []bool{true, false} {
			g := e.guard(GuardOptions{AtMostOnce: once, Judge: func(context.Context, error) Verdict { return Unknown }})
			op := e.op()
			_, err := g.Do(e.ctx(), op, func(context.Context) ([]byte, error) { return nil, errStop })
			require.Same(e, errStop, err)
			_, err = g.Do(e.ctx(), op, (&counted{}).body)
			if once {
				require.ErrorIs(e, err, ErrOutcomeUnknown)
				continue
			}
			require.NoError(e, err)
		}
	})
}

// Who brings the result may be faster than the body that suspends: nothing has failed.
func TestAResultBeforeTheBodySuspends(t *testing.T) {
	behaviour(t, func(e *env) {
		seen, op := &events{}, e.op()
		later := errors.New("later")
		g := e.guard(GuardOptions{Observer: seen, Judge: func(context.Context, error) Verdict { return Suspend(time.Hour) }})
		_, err := g.Do(e.ctx(), op, func(ctx context.Context) ([]byte, error) {
			a, _ := AttemptFromContext(ctx)
			text, err := a.ClaimText()
			require.NoError(e, err)
			claim, err := g.ParseClaim(text)
			require.NoError(e, err)
			require.NoError(e, claim.Complete(ctx, []byte("fast")))
			return nil, later
		})
		require.Same(e, later, err)
		for _, event := range seen.list {
			require.NotEqual(e, EventAbortFailed, event.Kind)
		}
		r, err := g.Do(e.ctx(), op, (&counted{}).body)
		require.NoError(e, err)
		require.Equal(e, "fast", string(r.Memo))
	})
}
