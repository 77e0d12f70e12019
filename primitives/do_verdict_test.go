package primitives

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

func TestJudgeDecidesWhatAnErrorMeans(t *testing.T) {
	for name, c := range map[string]struct {
		verdict Verdict
		state   State
		kinds   []EventKind
		then    error // what the next call is told; nil: it runs
	}{
		"abort":         {Abort, Absent, []EventKind{EventBegan, EventFailed}, nil},
		"zero verdict":  {Verdict{}, Absent, []EventKind{EventBegan, EventFailed}, nil},
		"suspend":       {Suspend(time.Hour), Pending, []EventKind{EventBegan, EventSuspended}, ErrBusy},
		"memoise":       {MemoiseFailure([]byte("f")), Failed, []EventKind{EventBegan, EventFailed}, ErrFailed},
		"memoise empty": {MemoiseFailure(nil), Failed, []EventKind{EventBegan, EventFailed}, ErrFailed},
		"memoise large": {MemoiseFailure(make([]byte, 9)), Failed, []EventKind{EventBegan, EventFailed}, ErrFailed},
		"briefly":       {Suspend(-time.Hour), Pending, []EventKind{EventBegan, EventSuspended}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			behaviour(t, func(e *env) {
				var judged []error
				seen, op := &events{}, e.op()
				g := e.guard(GuardOptions{Observer: seen, MaxMemo: 8, Judge: func(_ context.Context, err error) Verdict {
					judged = append(judged, err)
					return c.verdict
				}})
				_, err := g.Do(e.ctx(), op, func(context.Context) ([]byte, error) { return nil, errStop })
				require.Same(e, errStop, err)
				require.Equal(e, []error{errStop}, judged)
				require.Equal(e, c.state, e.status(op).State)
				require.Equal(e, c.kinds, seen.kinds())

				body := &counted{}
				if name == "briefly" { // a time below the minimum counts as it
					e.expire(op.resource())
				}
				_, err = g.Do(e.ctx(), op, body.body)
				require.ErrorIs(e, err, c.then)
				require.Len(e, judged, 1, "a success is not judged, nor is a refusal")
			})
		})
	}
}

func TestSealComesBeforeTheBodyWithTheToken(t *testing.T) {
	behaviour(t, func(e *env) {
		op, body, seen := e.op(), &counted{}, &events{}
		var sealed fence.Token
		fails := error(nil)
		g := e.guard(GuardOptions{
			Observer: seen,
			Judge:    func(context.Context, error) Verdict { return MemoiseFailure(nil) },
			Seal: func(ctx context.Context) error {
				sealed, _ = fence.ForResource(ctx, op.resource())
				require.Zero(e, body.runs.Load())
				a, ok := AttemptFromContext(ctx)
				require.True(e, ok)
				require.Equal(e, sealed, a.Token)
				return fails
			},
		})
		fails = errStop
		_, err := g.Do(e.ctx(), op, body.body)
		require.Same(e, errStop, err)
		require.Zero(e, body.runs.Load())
		require.Equal(e, Absent, e.status(op).State, "it is not judged: nothing has happened")
		require.Equal(e, []EventKind{EventBegan, EventFailed}, seen.kinds())

		fails = nil
		r, err := g.Do(e.ctx(), op, body.body)
		require.NoError(e, err)
		require.Equal(e, r.Token, sealed)
		require.EqualValues(e, 1, body.runs.Load())
		_, err = g.Do(e.ctx(), op, body.body)
		require.NoError(e, err)
		require.Equal(e, r.Token, sealed, "a replay is not sealed")
	})
}

// B04: a store has seen a higher token than the newest grant's: Redis lost its data
// or its clock. The next call gets a higher one. Never an endless "stale".
func TestStaleWriteOfTheNewestHolderRaisesTheToken(t *testing.T) {
	for name, fail := range map[string]func(stale *fence.StaleError) (seal, body error){
		"in the body":            func(s *fence.StaleError) (error, error) { return nil, s },
		"wrapped":                func(s *fence.StaleError) (error, error) { return nil, fmt.Errorf("write: %w", s) },
		"in the seal":            func(s *fence.StaleError) (error, error) { return s, nil },
		"beside another's stale": func(s *fence.StaleError) (error, error) { return nil, errors.Join(otherStale, s) },
	} {
		t.Run(name, func(t *testing.T) {
			behaviour(t, func(e *env) {
				seen, op := &events{}, e.op()
				op.Resource = "account/42"
				var current fence.Value
				var want error
				stale := func(ctx context.Context) *fence.StaleError {
					token, err := fence.ForResource(ctx, "account/42")
					require.NoError(e, err)
					current = token.Value + 1e12 // 11 days ahead
					return &fence.StaleError{Resource: "account/42", Token: token.Value, Current: current}
				}
				g := e.guard(GuardOptions{Observer: seen, Seal: func(ctx context.Context) error {
					want, _ = fail(stale(ctx))
					return want
				}})
				_, err := g.Do(e.ctx(), op, func(ctx context.Context) ([]byte, error) {
					_, want = fail(stale(ctx))
					return nil, want
				})
				require.True(e, err == want, "%v", err) //nolint:errorlint // identity is the point
				require.Contains(e, seen.kinds(), EventTokenRegressed)
				other := e.op()
				other.Resource = op.Resource
				require.Greater(e, e.claim(e.guard(GuardOptions{}), other).Token().Value, current)
			})
		})
	}
}

var otherStale = &fence.StaleError{Resource: "other", Token: 1, Current: math.MaxInt64}

// Who was really superseded was rightly refused: their word raises nothing. Nor does
// that of a store that speaks of another resource.
func TestStaleWriteOfASupersededHolderRaisesNothing(t *testing.T) {
	behaviour(t, func(e *env) {
		seen, op := &events{}, e.op()
		g := e.guard(GuardOptions{Observer: seen})
		var next *Claim
		_, err := g.Do(e.ctx(), op, func(context.Context) ([]byte, error) {
			e.expire(op.resource())
			next = e.claim(e.guard(GuardOptions{}), op)
			return nil, &fence.StaleError{Resource: op.resource(), Current: next.Token().Value + 1e12}
		})
		require.ErrorIs(e, err, fence.ErrStale)
		_, err = g.Do(e.ctx(), e.op(), func(context.Context) ([]byte, error) { return nil, otherStale })
		require.ErrorIs(e, err, fence.ErrStale)
		require.NotContains(e, seen.kinds(), EventTokenRegressed)
		info, err := e.store.Inspect(e.ctx(), op.resource())
		require.NoError(e, err)
		require.True(e, info.Held)
		require.Equal(e, next.Token().Value, info.Last)
	})
}

// E28: the token is picked by its resource, and the attempt is the innermost one.
func TestNestedGuardsKeepTheirTokensApart(t *testing.T) {
	behaviour(t, func(e *env) {
		g, outer, inner := e.guard(GuardOptions{}), e.op(), e.op()
		outer.Resource, inner.Resource = "order/1", "account/2"
		_, ok := AttemptFromContext(e.ctx())
		require.False(e, ok)
		_, err := g.Do(e.ctx(), outer, func(ctx context.Context) ([]byte, error) {
			mine, err := fence.FromContext(ctx)
			require.NoError(e, err)
			require.Equal(e, "order/1", mine.Resource)
			_, err = g.Do(ctx, inner, func(ctx context.Context) ([]byte, error) {
				_, err := fence.FromContext(ctx)
				require.ErrorIs(e, err, fence.ErrAmbiguous)
				token, err := fence.ForResource(ctx, "order/1")
				require.NoError(e, err)
				require.Equal(e, mine, token)
				token, err = fence.ForResource(ctx, "account/2")
				require.NoError(e, err)
				a, _ := AttemptFromContext(ctx)
				require.Equal(e, Attempt{Key: inner.Key, Outcome: Begun, Token: token, claim: a.claim}, a)
				return nil, nil
			})
			require.NoError(e, err)
			a, _ := AttemptFromContext(ctx)
			require.Equal(e, Attempt{Key: outer.Key, Outcome: Begun, Token: mine, claim: a.claim}, a)

			inner.Resource = "order/1" // the resource of the guard outside: it is busy
			_, err = g.Do(ctx, inner, (&counted{}).body)
			require.ErrorIs(e, err, ErrBusy)
			return nil, nil
		})
		require.NoError(e, err)
	})
}

// unruly panics at everything that it is told.
type unruly struct{ events }

func (o *unruly) Observe(ctx context.Context, e Event) {
	o.events.Observe(ctx, e)
	panic("observer")
}

func TestObserverIsToldInOrderAndCannotBreakTheWork(t *testing.T) {
	behaviour(t, func(e *env) {
		seen, op := &unruly{}, e.op()
		op.Name = "charge"
		g := e.guard(GuardOptions{Observer: seen})
		told := func(want ...Event) {
			e.Helper()
			for i := range seen.list {
				require.GreaterOrEqual(e, seen.list[i].Wait, time.Duration(0))
				require.Equal(e, op.Key, seen.list[i].Key)
				granted := seen.list[i].Outcome != Replayed
				require.Equal(e, granted, seen.list[i].Token.Valid())
				ended := seen.list[i].Kind != EventBegan
				require.Equal(e, ended, seen.list[i].Left > 20*time.Second)
				seen.list[i] = Event{Kind: seen.list[i].Kind, Name: seen.list[i].Name, Outcome: seen.list[i].Outcome,
					Err: seen.list[i].Err, Bytes: seen.list[i].Bytes, Takeovers: seen.list[i].Takeovers}
			}
			require.Equal(e, want, seen.list)
			seen.list = nil
		}
		_, err := g.Do(e.ctx(), op, func(context.Context) ([]byte, error) { return nil, errStop })
		require.Same(e, errStop, err)
		told(Event{Kind: EventBegan, Name: "charge", Outcome: Begun}, Event{Kind: EventFailed, Name: "charge", Err: errStop})

		require.Panics(e, func() { _, _ = g.Do(e.ctx(), op, func(context.Context) ([]byte, error) { panic(1) }) })
		told(Event{Kind: EventBegan, Name: "charge", Outcome: Begun}, Event{Kind: EventPanicked, Name: "charge"})

		e.claim(g, op)
		e.expire(op.resource())
		_, err = g.Do(e.ctx(), op, func(context.Context) ([]byte, error) {
			_, err := g.Do(e.ctx(), op, (&counted{}).body)
			busyWith(e, err, "")
			require.Len(e, seen.list, 2)
			seen.list[1].Wait = 0
			require.Equal(e, Event{Kind: EventRefused, Name: "charge", Key: op.Key, Err: err}, seen.list[1])
			seen.list = seen.list[:1]
			return []byte("memo"), nil
		})
		require.NoError(e, err)
		told(Event{Kind: EventBegan, Name: "charge", Outcome: Reclaimed, Takeovers: 1},
			Event{Kind: EventCompleted, Name: "charge", Bytes: 4})

		_, err = g.Do(e.ctx(), op, (&counted{}).body)
		require.NoError(e, err)
		told(Event{Kind: EventBegan, Name: "charge", Outcome: Replayed})

		op = e.op()
		_, err = g.Do(e.ctx(), op, func(context.Context) ([]byte, error) {
			e.expire(op.resource())
			e.claim(g, op)
			return []byte("memo"), nil
		})
		require.ErrorIs(e, err, ErrSuperseded)
		told(Event{Kind: EventBegan, Outcome: Begun}, Event{Kind: EventLost, Err: err})
	})
}
