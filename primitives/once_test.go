package primitives

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// interrupt runs a body of an at-most-once guard that does not end as it should.
var interrupt = map[string]func(e *env, g *Guard, op Op){
	"crash": func(e *env, g *Guard, op Op) {
		e.claim(g, op)
		e.expire(op.resource())
	},
	"lost lease": func(e *env, g *Guard, op Op) {
		_, err := g.Do(e.ctx(), op, func(ctx context.Context) ([]byte, error) {
			e.expire(op.resource())
			<-ctx.Done()
			return nil, errStop
		})
		require.ErrorIs(e, err, errStop)
	},
	"panic": func(e *env, g *Guard, op Op) {
		require.PanicsWithValue(e, "boom", func() {
			_, _ = g.Do(e.ctx(), op, func(context.Context) ([]byte, error) { panic("boom") })
		})
		e.expire(op.resource())
	},
	"exit": func(e *env, g *Guard, op Op) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = g.Do(e.ctx(), op, func(context.Context) ([]byte, error) { runtime.Goexit(); return nil, nil })
		}()
		<-done
		e.expire(op.resource())
	},
	"suspended without a result": func(e *env, g *Guard, op Op) {
		require.NoError(e, e.claim(g, op).Suspend(e.ctx(), time.Hour))
		e.expire(op.resource())
	},
}

func TestAtMostOnceIsNeverRunAgainAfterAnInterruption(t *testing.T) {
	for name, stop := range interrupt {
		t.Run(name, func(t *testing.T) {
			behaviour(t, func(e *env) {
				g := e.guard(GuardOptions{AtMostOnce: true, LeaseTTL: time.Minute, RenewEvery: 20 * time.Millisecond})
				op := attempt(e.op(), "x", 100, 1)
				op.Holder = "victim"
				stop(e, g, op)
				// A newer attempt, and a guard that is not at most once itself, are told alike.
				for _, asks := range []*Guard{g, e.guard(GuardOptions{})} {
					body := &counted{}
					_, err := asks.Do(e.ctx(), attempt(op, "x", 100, 2), body.body)
					var unknown *OutcomeUnknownError
					require.ErrorAs(e, err, &unknown)
					require.Equal(e, op.Key, unknown.Key)
					require.Equal(e, "victim", unknown.Holder)
					require.Equal(e, e.status(op).Began, unknown.Began)
					require.Zero(e, body.runs.Load())
				}
				require.True(e, e.status(op).Stuck())
				require.True(e, e.status(op).AtMostOnce)
			})
		})
	}
}

// Whoever asks for at most once gets it, also if the crashed call did not.
func TestAtMostOnceHoldsForWhatAnotherGuardBegan(t *testing.T) {
	behaviour(t, func(e *env) {
		op := e.op()
		e.claim(e.guard(GuardOptions{}), op)
		e.expire(op.resource())
		_, err := e.guard(GuardOptions{AtMostOnce: true}).Begin(e.ctx(), op)
		require.ErrorIs(e, err, ErrOutcomeUnknown)
		c := e.claim(e.guard(GuardOptions{}), op)
		require.NoError(e, c.Complete(e.ctx(), nil))
	})
}

func TestAtMostOnceRunsAgainAfterAnError(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{AtMostOnce: true}), e.op()
		_, err := g.Do(e.ctx(), op, func(context.Context) ([]byte, error) { return nil, errStop })
		require.Same(e, errStop, err)
		body := &counted{memo: "m"}
		for range 2 {
			r, err := g.Do(e.ctx(), op, body.body)
			require.NoError(e, err)
			require.Equal(e, "m", string(r.Memo))
		}
		require.EqualValues(e, 1, body.runs.Load())
	})
}

// A seal that panics or fails comes before the body: nothing has happened.
func TestAtMostOnceRunsAgainAfterASealThatFailed(t *testing.T) {
	behaviour(t, func(e *env) {
		op := e.op()
		for _, seal := range []func(context.Context) error{
			func(context.Context) error { return errStop },
			func(context.Context) error { panic(errStop) },
		} {
			body := &counted{}
			func() {
				defer func() { _ = recover() }()
				_, _ = e.guard(GuardOptions{AtMostOnce: true, Seal: seal}).Do(e.ctx(), op, body.body)
			}()
			require.Zero(e, body.runs.Load())
			require.Equal(e, Absent, e.status(op).State)
		}
	})
}

func TestOperatorsDecideAnUnknownOutcome(t *testing.T) {
	behaviour(t, func(e *env) {
		g := e.guard(GuardOptions{AtMostOnce: true})
		happened, did := e.op(), e.op()

		e.claim(g, happened)
		r := e.status(happened)
		busyWith(e, e.store.Resolve(e.ctx(), r, nil, 0), "")
		e.expire(happened.resource())
		r = e.status(happened)
		require.NoError(e, e.store.Resolve(e.ctx(), r, []byte("by hand"), time.Hour))
		require.NoError(e, e.store.Resolve(e.ctx(), r, []byte("by hand"), time.Hour), "the reply may have been lost")
		s, err := g.Begin(e.ctx(), happened)
		require.NoError(e, err)
		require.Equal(e, "by hand", string(s.Memo))
		require.LessOrEqual(e, e.status(happened).Expires, time.Hour)
		require.ErrorIs(e, e.store.Resolve(e.ctx(), e.status(happened), nil, 0), ErrChanged, "done is final")

		e.claim(g, did)
		e.expire(did.resource())
		require.NoError(e, e.store.Forget(e.ctx(), e.status(did)))
		require.ErrorIs(e, e.store.Forget(e.ctx(), e.status(did)), ErrNotFound)
		s, err = g.Begin(e.ctx(), did)
		require.NoError(e, err)
		require.Equal(e, Begun, s.Outcome)
	})
}

// C03: an operator who acts on an old picture changes nothing.
func TestOperatorsActOnWhatTheySawOnly(t *testing.T) {
	for name, change := range map[string]func(e *env, c *Claim, op Op){
		"completed meanwhile": func(e *env, c *Claim, _ Op) { require.NoError(e, c.Complete(e.ctx(), []byte("own"))) },
		"failed meanwhile":    func(e *env, c *Claim, _ Op) { require.NoError(e, c.Fail(e.ctx(), []byte("own"))) },
		"forgotten meanwhile": func(e *env, _ *Claim, op Op) { require.NoError(e, e.store.Forget(e.ctx(), e.status(op))) },
		"reclaimed meanwhile": func(e *env, _ *Claim, op Op) { e.claim(e.guard(GuardOptions{}), op) },
		"done again meanwhile": func(e *env, c *Claim, op Op) {
			require.NoError(e, c.Abort(e.ctx()))
			require.NoError(e, e.claim(e.guard(GuardOptions{}), op).Complete(e.ctx(), []byte("own")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			behaviour(t, func(e *env) {
				op := e.op()
				c := e.claim(e.guard(GuardOptions{}), op)
				e.expire(op.resource())
				seen := e.status(op)
				require.True(e, seen.Stuck())
				change(e, c, op)
				before := e.status(op)

				require.ErrorIs(e, e.store.Resolve(e.ctx(), seen, []byte("operator"), 0), ErrChanged)
				err := e.store.Forget(e.ctx(), seen)
				require.True(e, errors.Is(err, ErrChanged) || errors.Is(err, ErrNotFound), "%v", err)
				after := e.status(op)
				before.Expires, after.Expires = 0, 0
				before.Lease, after.Lease = 0, 0
				require.Equal(e, before, after)
			})
		})
	}
}

// A record without a lease shows no sign of life: it is taken for alive until its
// TTL ends.
func TestOperatorsDoNotResolveARecordWithoutLease(t *testing.T) {
	behaviour(t, func(e *env) {
		op := e.op()
		c := e.begin(op, RecordOptions{}).Claim
		busyWith(e, e.store.Resolve(e.ctx(), e.status(op), []byte("operator"), 0), "")
		require.NoError(e, c.Complete(e.ctx(), []byte("own")))
		require.Equal(e, "own", string(e.status(op).Memo))
	})
}

// The record of an interrupted operation outlives its lease by far more than a memo is
// kept: an operator needs time.
func TestAnUnknownOutcomeIsKeptForAnOperator(t *testing.T) {
	behaviour(t, func(e *env) {
		opts := GuardOptions{AtMostOnce: true, LeaseTTL: time.Minute, Retention: time.Second}
		op := e.op()
		c := e.claim(e.guard(opts), op)
		kept := func(least time.Duration) {
			e.Helper()
			require.Greater(e, e.ttl(e.record(op)), least)
		}
		kept(29 * 24 * time.Hour)
		require.NoError(e, c.renew(e.ctx(), "extend", time.Minute))
		kept(29 * 24 * time.Hour)
		require.NoError(e, c.Suspend(e.ctx(), time.Minute))
		kept(29 * 24 * time.Hour)
		e.expire(op.resource())
		require.ErrorIs(e, e.store.Clear(e.ctx(), op), ErrOutcomeUnknown, "it is for an operator to say")
		require.NoError(e, e.store.Resolve(e.ctx(), e.status(op), nil, time.Minute))

		opts.UnknownRetention = time.Hour
		op = e.op()
		e.claim(e.guard(opts), op)
		require.LessOrEqual(e, e.ttl(e.record(op)), time.Hour+time.Minute)
		kept(59 * time.Minute)
		_, err := NewGuard(e.store, GuardOptions{AtMostOnce: true, UnknownRetention: time.Minute})
		refused(e, err, "UnknownRetention", "below the minimum")
	})
}

// Nobody takes an at-most-once body's lease from it, with whatever key; and one that
// panics holds nobody up.
func TestAtMostOnceKeepsItsLeaseAndGivesItUp(t *testing.T) {
	behaviour(t, func(e *env) {
		once, plain := e.guard(GuardOptions{AtMostOnce: true}), e.guard(GuardOptions{})
		first, second := e.op(), e.op()
		first.Resource, second.Resource = "r", "r"
		e.claim(once, attempt(first, "execution", 1, 1))
		_, err := plain.Begin(e.ctx(), attempt(second, "another", 2, 1))
		require.ErrorIs(e, err, ErrBusy)
		_, err = plain.Begin(e.ctx(), attempt(second, "execution", 2, 1))
		require.ErrorIs(e, err, ErrKeyChanged)
		e.expire("r")

		op := e.op()
		require.PanicsWithValue(e, "boom", func() {
			_, _ = once.Do(e.ctx(), op, func(context.Context) ([]byte, error) { panic("boom") })
		})
		require.False(e, e.inspect(op.resource()).Held)
		_, err = plain.Begin(e.ctx(), op)
		require.ErrorIs(e, err, ErrOutcomeUnknown)
	})
}
