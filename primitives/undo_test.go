package primitives

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// onAccount is an operation on one resource that all of a test's share.
func (e *env) onAccount() Op {
	e.Helper()
	return Op{Key: e.key(), Resource: "account"}
}

// compensates runs an operation that undoes others, under g.
func (e *env) compensates(g *Guard, others ...Op) (Result, error) {
	e.Helper()
	return g.Do(e.ctx(), e.onAccount(), func(ctx context.Context) ([]byte, error) {
		a, ok := AttemptFromContext(ctx)
		require.True(e, ok)
		for _, op := range others {
			if _, err := a.Undo(ctx, op); err != nil {
				return nil, err
			}
		}
		return []byte("undone"), nil
	})
}

// does runs op once, and returns what its body knew of itself.
func (e *env) does(g *Guard, op Op, memo string) (a Attempt) {
	e.Helper()
	ran := false
	res, err := g.Do(e.ctx(), op, func(ctx context.Context) (_ []byte, err error) {
		a, ran = AttemptFromContext(ctx)
		return []byte(memo), nil
	})
	require.NoError(e, err)
	require.True(e, ran, "it was %s", res.Outcome)
	require.True(e, res.MemoStored)
	return a
}

// N15: what was undone runs again, in whatever state it was, under a key of its own, and is
// replayed after that.
func TestN15WhatWasUndoneRunsAgain(t *testing.T) {
	states := map[string]func(e *env, g *Guard, op Op) *Claim{
		"done": func(e *env, g *Guard, op Op) *Claim {
			c := e.claim(g, op)
			require.NoError(e, c.Complete(e.ctx(), []byte("old")))
			return c
		},
		"failed": func(e *env, g *Guard, op Op) *Claim {
			c := e.claim(g, op)
			require.NoError(e, c.Fail(e.ctx(), []byte("old")))
			return c
		},
		"oversize": func(e *env, g *Guard, op Op) *Claim {
			c := e.claim(g, op)
			require.NoError(e, c.Complete(e.ctx(), make([]byte, 99)))
			return c
		},
		"interrupted": func(e *env, g *Guard, op Op) *Claim { c := e.claim(g, op); e.expire(op.Resource); return c },
		"interrupted, at most once": func(e *env, _ *Guard, op Op) *Claim {
			c := e.claim(e.guard(GuardOptions{AtMostOnce: true}), op)
			e.expire(op.Resource)
			return c
		},
		"pending": func(e *env, g *Guard, op Op) *Claim {
			c := e.claim(g, op)
			require.NoError(e, c.Suspend(e.ctx(), time.Hour))
			e.expire(op.Resource)
			return c
		},
		"never run": func(*env, *Guard, Op) *Claim { return nil },
		"done without a lease": func(e *env, _ *Guard, op Op) *Claim {
			c := e.begin(op, RecordOptions{}).Claim
			require.NoError(e, c.Complete(e.ctx(), []byte("old")))
			return c
		},
	}
	behaviour(t, func(e *env) {
		for name, bring := range states {
			g, op := e.guard(GuardOptions{MaxMemo: 9}), e.onAccount()
			op.Fingerprint = e.fingerprint("input")
			old := bring(e, g, op)
			res, err := e.compensates(g, op)
			require.NoError(e, err, name)
			require.Equal(e, "undone", string(res.Memo))

			r := e.status(op)
			require.Equal(e, Undone, r.State, name)
			require.Equal(e, []fence.Value{res.Token.Value, res.Token.Value}, []fence.Value{r.Token, r.Undone}, name)
			require.False(e, r.Stuck())
			require.Empty(e, r.Memo)
			for _, field := range []string{"memo", "size", "limit"} {
				require.NotContains(e, e.hash(op), field, name)
			}
			require.Greater(e, r.Expires, 23*time.Hour)
			_, err = e.store.Result(e.ctx(), op)
			require.ErrorIs(e, err, ErrNotFound, name)
			if old != nil { // it wakes up
				require.ErrorIs(e, old.Complete(e.ctx(), []byte("late")), ErrSuperseded, name)
				require.NoError(e, old.Abort(e.ctx()))
				require.Equal(e, Undone, e.status(op).State, name)
			}

			other := op
			other.Fingerprint = e.fingerprint("mended input")
			a := e.does(g, other, "new")
			require.Equal(e, []any{Begun, 0, res.Token.Value}, []any{a.Outcome, a.Takeovers, a.Undone}, name)
			require.Equal(e, op.Key.After(res.Token.Value), a.Key)
			require.NotEqual(e, op.Key, a.Key)
			again, err := g.Do(e.ctx(), other, func(context.Context) ([]byte, error) { return nil, errStop })
			require.NoError(e, err, name)
			require.Equal(e, []any{Replayed, "new"}, []any{again.Outcome, string(again.Memo)})
			require.Equal(e, res.Token.Value, e.status(op).Undone, "it is still known")
		}
	})
}

// N15: a run that was given up after the operation was undone leaves it undone, so that the
// next one is known by the same key, and a second compensation gives it another one.
func TestN15WhatWasUndoneStaysUndone(t *testing.T) {
	ends := map[string]func(e *env, op Op, c *Claim){
		"abort": func(e *env, _ Op, c *Claim) { require.NoError(e, c.Abort(e.ctx())) },
		"clear": func(e *env, op Op, c *Claim) {
			if e.status(op).Token == 0 {
				require.NoError(e, c.Abort(e.ctx()))
			}
			e.expire(op.Resource)
			require.NoError(e, e.store.Clear(e.ctx(), op))
		},
		"complete, clear": func(e *env, op Op, c *Claim) {
			require.NoError(e, c.Complete(e.ctx(), []byte("m")))
			require.NoError(e, e.store.Clear(e.ctx(), op))
		},
		"complete, forget": func(e *env, op Op, c *Claim) {
			require.NoError(e, c.Complete(e.ctx(), []byte("m")))
			require.NoError(e, e.store.Forget(e.ctx(), e.status(op)))
		},
		"forget what is undone": func(e *env, op Op, c *Claim) {
			require.NoError(e, c.Abort(e.ctx()))
			require.NoError(e, e.store.Clear(e.ctx(), op))
			require.NoError(e, e.store.Forget(e.ctx(), e.status(op)))
		},
	}
	behaviour(t, func(e *env) {
		for name, end := range ends {
			for _, leased := range []bool{true, false} {
				g, op := e.guard(GuardOptions{}), e.onAccount()
				first := e.does(g, op, "first")
				_, err := e.compensates(g, op)
				require.NoError(e, err)
				undone := e.status(op).Undone

				var start Start
				if leased {
					start, err = g.Begin(e.ctx(), op)
				} else {
					start, err = e.store.TryBegin(e.ctx(), op, RecordOptions{})
				}
				require.NoError(e, err)
				require.Equal(e, []any{Begun, undone}, []any{start.Outcome, start.Undone})
				end(e, op, start.Claim)
				r := e.status(op)
				require.Equal(e, []any{Undone, undone}, []any{r.State, r.Undone}, name)
				require.Empty(e, r.Memo)
				require.ErrorIs(e, start.Claim.Complete(e.ctx(), []byte("late")), ErrSuperseded, name)

				second := e.does(g, op, "second")
				require.Equal(e, undone, second.Undone, name)
				_, err = e.compensates(g, op, op)
				require.NoError(e, err)
				third := e.does(g, op, "third")
				require.Greater(e, third.Undone, undone)
				require.Len(e, map[Key]bool{first.Key: true, second.Key: true, third.Key: true}, 3)
			}
		}
	})
}

// N15: a takeover, and a reclaim, go on with the key of the run that they continue.
func TestN15AttemptsOfOneRunShareItsKey(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{LeaseTTL: time.Hour}), attempt(e.onAccount(), "x", 100, 1)
		_, err := e.compensates(g, op)
		require.NoError(e, err)
		undone := e.status(op).Undone
		first := e.claim(g, op)
		s, err := g.Begin(e.ctx(), attempt(op, "x", 100, 2))
		require.NoError(e, err)
		require.Equal(e, []any{TakenOver, 1, undone}, []any{s.Outcome, s.Takeovers, s.Undone})
		require.ErrorIs(e, first.Complete(e.ctx(), nil), ErrSuperseded)
		e.expire(op.Resource)
		s, err = g.Begin(e.ctx(), op)
		require.NoError(e, err)
		require.Equal(e, []any{Reclaimed, 2, undone}, []any{s.Outcome, s.Takeovers, s.Undone})
	})
}

// N15: a compensation that does not complete undoes nothing.
func TestN15OnlyACompletedCompensationUndoes(t *testing.T) {
	ends := map[string]func(e *env, g *Guard, c *Claim) error{
		"it crashes":         func(*env, *Guard, *Claim) error { return nil },
		"it fails":           func(e *env, _ *Guard, c *Claim) error { return c.Abort(e.ctx()) },
		"it fails for good":  func(e *env, _ *Guard, c *Claim) error { return c.Fail(e.ctx(), nil) },
		"its result is late": func(e *env, _ *Guard, c *Claim) error { return c.Suspend(e.ctx(), time.Hour) },
		"it is superseded": func(e *env, g *Guard, c *Claim) error {
			e.expire("account")
			e.claim(g, Op{Key: c.key, Resource: "account"})
			return c.Complete(e.ctx(), nil)
		},
		"its lease is lost, and somebody has had the resource": func(e *env, g *Guard, c *Claim) error {
			e.expire("account")
			require.NoError(e, e.claim(g, e.onAccount()).Abort(e.ctx()))
			return c.Complete(e.ctx(), nil)
		},
		"somebody has the resource, and its last token is forgotten": func(e *env, g *Guard, c *Claim) error {
			e.expire("account")
			e.claim(g, e.onAccount())
			require.NoError(e, e.rdb.Del(e.ctx(), e.store.names.resource("account").token()).Err())
			return c.Complete(e.ctx(), nil)
		},
		"an operator takes its lease": func(e *env, _ *Guard, c *Claim) error {
			_, err := e.store.Free(e.ctx(), e.inspect("account"))
			require.NoError(e, err)
			return c.Complete(e.ctx(), nil)
		},
		"an operator forgets it": func(e *env, _ *Guard, c *Claim) error {
			e.expire("account")
			require.NoError(e, e.store.Clear(e.ctx(), Op{Key: c.key, Resource: "account"}))
			return c.Complete(e.ctx(), nil)
		},
	}
	behaviour(t, func(e *env) {
		for name, end := range ends {
			require.NoError(e, e.rdb.Del(e.ctx(), e.lease(e.onAccount())).Err())
			g, op := e.guard(GuardOptions{LeaseTTL: time.Hour}), e.onAccount()
			e.does(g, op, "done")
			c := e.claim(g, e.onAccount())
			_, err := c.Undo(e.ctx(), op)
			require.NoError(e, err)
			if err = end(e, g, c); err != nil {
				require.ErrorIs(e, err, fence.ErrLeaseLost, name)
			}
			memo, err := e.store.Result(e.ctx(), op)
			require.NoError(e, err, name)
			require.Equal(e, "done", string(memo), name)
		}
	})
}
