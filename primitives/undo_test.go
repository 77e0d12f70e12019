package primitives

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
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

// N15: a lease that has ended is no harm if nobody came after it; nor is a loss of all that
// Redis knew.
func TestN15AnUndoUnderALeaseThatHasEnded(t *testing.T) {
	behaviour(t, func(e *env) {
		for _, flushed := range []bool{false, true} {
			g, op := e.guard(GuardOptions{}), e.onAccount()
			e.does(g, op, "done")
			c := e.claim(g, e.onAccount())
			_, err := c.Undo(e.ctx(), op)
			require.NoError(e, err)
			e.expire("account")
			if flushed {
				n := e.store.names.resource("account")
				require.NoError(e, e.rdb.Del(e.ctx(), n.token(), n.record(op.Key), n.record(c.key)).Err())
			}
			require.NoError(e, c.Complete(e.ctx(), nil))
			require.Equal(e, Undone, e.status(op).State)
			require.Equal(e, c.Token().Value, e.does(g, op, "again").Undone)
			require.NoError(e, c.Complete(e.ctx(), nil), "a repeat")
			require.Equal(e, Done, e.status(op).State, "undoes nothing twice")
		}
	})
}

// N15: a reply that was lost, of the step that completes and undoes, is asked for again
// when the operation runs anew already, and that run stays as it is.
func TestN15ALostReplyUndoesOnce(t *testing.T) {
	t.Parallel()
	for _, client := range faultyClients {
		t.Run(client.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, client.edit, Options{})
			near, op := r.guard(GuardOptions{}), r.onAccount()
			first := r.does(near, op, "first")
			var second Attempt
			hit := r.proxy.Add(devstack.Rule{Match: running(r.far.scripts.complete), Nth: 1, Fault: devstack.DropReply()})
			r.proxy.Add(devstack.Rule{Match: running(r.far.scripts.complete), Nth: 2,
				Fault: devstack.Call(func() { second = r.does(near, op, "second") })})
			_, err := r.compensates(r.farGuard(GuardOptions{LeaseTTL: time.Hour}), op)
			require.NoError(t, err)
			<-hit.Struck()
			require.NotEqual(t, first.Key, second.Key)
			memo, err := r.store.Result(r.ctx(), op)
			require.NoError(t, err)
			require.Equal(t, "second", string(memo))
		})
	}
}

// N15: a compensation whose end cannot be stored has not undone anything, so it must not
// succeed; its next attempt does it.
func TestN15AnUndoThatCannotBeStoredIsNoSuccess(t *testing.T) {
	behaviour(t, func(e *env) {
		op := e.onAccount()
		e.does(e.guard(GuardOptions{}), op, "done")
		_, err := e.compensates(e.broken(GuardOptions{}, &e.store.scripts.complete), op)
		require.ErrorIs(e, err, ErrUnavailable)
		require.Equal(e, Done, e.status(op).State)
		e.expire(op.Resource)
		_, err = e.compensates(e.guard(GuardOptions{}), op)
		require.NoError(e, err)
		require.Equal(e, Undone, e.status(op).State)
	})
}

// N15: what runs without a lease is not excluded by the resource, so it is not undone.
func TestN15WhatRunsWithoutALeaseIsNotUndone(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op, quiet := e.guard(GuardOptions{}), e.onAccount(), e.onAccount()
		e.does(g, quiet, "quiet")
		op.Holder = "plain"
		var plain *Claim
		res, err := g.Do(e.ctx(), e.onAccount(), func(ctx context.Context) ([]byte, error) {
			a, _ := AttemptFromContext(ctx)
			_, err := a.Undo(ctx, quiet)
			require.NoError(e, err)
			_, err = a.Undo(ctx, op)
			require.NoError(e, err)
			plain = e.begin(op, RecordOptions{}).Claim
			_, err = a.Undo(ctx, op)
			busyWith(e, err, "plain")
			return nil, nil
		})
		busyWith(e, err, "plain")
		require.False(e, res.MemoStored)
		require.False(e, e.inspect("account").Held, "its next attempt need not wait for it")
		require.Equal(e, []State{Done, Running}, []State{e.status(quiet).State, e.status(op).State}, "all or nothing")
		require.NoError(e, plain.Complete(e.ctx(), nil))
		_, err = e.compensates(g, op, quiet)
		require.NoError(e, err)
		require.Equal(e, []State{Undone, Undone}, []State{e.status(quiet).State, e.status(op).State})
	})
}

// N15: an at-most-once compensation that has happened is not run again because what it
// undoes is running.
func TestN15AnAtMostOnceCompensationOfWhatRuns(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op, mine := e.guard(GuardOptions{AtMostOnce: true}), e.onAccount(), e.onAccount()
		_, err := g.Do(e.ctx(), mine, func(ctx context.Context) ([]byte, error) {
			a, _ := AttemptFromContext(ctx)
			_, err := a.Undo(ctx, op)
			require.NoError(e, err)
			e.begin(op, RecordOptions{})
			return nil, nil
		})
		busyWith(e, err, "")
		_, err = g.Begin(e.ctx(), mine)
		require.ErrorIs(e, err, ErrOutcomeUnknown)
	})
}

// N15: who waits for the resource while the operation is undone runs it.
func TestN15AWaiterRunsWhatWasUndone(t *testing.T) {
	behaviour(t, func(e *env) {
		op := e.onAccount()
		e.claim(e.guard(GuardOptions{}), op) // and crashes
		e.expire(op.Resource)
		c := e.claim(e.guard(GuardOptions{LeaseTTL: time.Hour}), e.onAccount())
		_, err := c.Undo(e.ctx(), op)
		require.NoError(e, err)
		waiting := e.parked(e.guard(GuardOptions{Wait: time.Hour}), op)
		require.NoError(e, c.Complete(e.ctx(), nil))
		require.NoError(e, <-waiting)
		r := e.status(op)
		require.Equal(e, []any{Running, c.Token().Value, 0}, []any{r.State, r.Undone, r.Takeovers})
	})
}

// N15: a claim that travels takes along what it undoes, and notes nothing more.
func TestN15AnUndoTravelsWithItsClaim(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op, late := e.guard(GuardOptions{}), e.onAccount(), e.onAccount()
		e.does(g, op, "done")
		c := e.claim(g, e.onAccount())
		_, err := c.Undo(e.ctx(), op)
		require.NoError(e, err)
		text, err := c.MarshalText()
		require.NoError(e, err)
		_, err = c.Undo(e.ctx(), late)
		require.ErrorContains(e, err, "was written as text")
		require.NoError(e, c.Suspend(e.ctx(), time.Hour))
		carried, err := e.guard(GuardOptions{}).ParseClaim(text)
		require.NoError(e, err)
		require.Equal(e, Done, e.status(op).State)
		require.NoError(e, carried.Complete(e.ctx(), nil))
		require.Equal(e, []State{Undone, Absent}, []State{e.status(op).State, e.status(late).State})
		_, err = carried.Undo(e.ctx(), op)
		require.ErrorIs(e, err, ErrInvalid)
		_, err = g.ParseClaim([]byte(`{"key":"` + op.Key.String() + `","resource":"r","nonce":"n","token":"1","undoes":["x"]}`))
		require.ErrorIs(e, err, ErrInvalid)
	})
}

func TestN15UndoRefuses(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onMiniredis(t), false)
	g := e.guard(GuardOptions{})
	op := e.onAccount()
	c := e.claim(g, op)
	for field, bad := range map[string]Op{"Resource": e.op(), "Key": op, "op.Key": {}} {
		_, err := c.Undo(t.Context(), bad)
		require.ErrorIs(t, err, ErrInvalid, field)
		require.NotContains(t, err.Error(), "account")
	}
	_, err := e.begin(e.op(), RecordOptions{}).Claim.Undo(t.Context(), e.op())
	require.ErrorContains(t, err, "claim: has no lease")
	require.NoError(t, c.Complete(t.Context(), nil))
	_, err = c.Undo(t.Context(), e.onAccount())
	require.ErrorContains(t, err, "is completed")

	open := e.broken(GuardOptions{FailOpen: true}, &e.store.scripts.begin)
	_, err = e.compensates(open, e.onAccount())
	require.ErrorContains(t, err, "an unguarded attempt has none")
	require.True(t, errors.Is(err, ErrInvalid))
}

// N15: an operator may say that it was done after all; a record that makes no sense is
// named.
func TestN15OperatorsAndUndoneRecords(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{}), e.onAccount()
		op.Holder = "the call"
		_, err := e.compensates(g, op)
		require.NoError(e, err)
		records := collect(e, e.store.Records(e.ctx()))
		require.Len(e, records, 2)
		r := e.status(op)
		require.NoError(e, e.store.Resolve(e.ctx(), r, []byte("done after all"), 0))
		require.NoError(e, e.store.Resolve(e.ctx(), r, []byte("done after all"), 0), "a repeat")
		memo, err := e.store.Result(e.ctx(), op)
		require.NoError(e, err)
		require.Equal(e, "done after all", string(memo))
		require.ErrorIs(e, e.store.Forget(e.ctx(), r), ErrChanged)

		_, err = e.compensates(g, op)
		require.NoError(e, err)
		for _, bad := range []string{"", "7"} {
			require.NoError(e, e.rdb.HSet(e.ctx(), e.record(op), "undone", bad).Err())
			_, err = g.Begin(e.ctx(), op)
			corrupt(e, err, e.record(op))
		}
	})
}

// N15: with the memory full, what is done is undone all the same, and stays so.
func TestN15AFullMemoryLetsUndo(t *testing.T) {
	t.Parallel()
	server, e := fullRedis(t)
	g, op, never := e.guard(GuardOptions{}), e.onAccount(), e.onAccount()
	e.does(g, op, "done")
	c := e.claim(g, e.onAccount())
	for _, undone := range []Op{op, never} {
		_, err := c.Undo(e.ctx(), undone)
		require.NoError(t, err)
	}
	full(t, server)
	require.NoError(t, c.Complete(e.ctx(), []byte("memo")))
	require.Equal(t, []State{Undone, Undone}, []State{e.status(op).State, e.status(never).State})
	require.NoError(t, e.rdb.ConfigSet(e.ctx(), "maxmemory", "0").Err())
	again := e.claim(g, op)
	full(t, server)
	require.NoError(t, again.Abort(e.ctx()))
	require.Equal(t, Undone, e.status(op).State)
	e.everyKeyExpires()
}

// G02: what a run is known by after an undo is a wire format.
func TestN15KeyAfterAnUndoIsAWireFormat(t *testing.T) {
	t.Parallel()
	key, err := NewKey("golden", "k")
	require.NoError(t, err)
	require.Equal(t, key, key.After(0))
	require.Equal(t, "v1:golden:a57b8764c89ff17324a1e1bfc03fd5eadff92d43233676bb5d17d0ebf47c7338", key.After(1<<50).String())
}
