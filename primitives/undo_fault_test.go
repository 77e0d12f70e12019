package primitives

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

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

// N15: what was undone is remembered as long as it was to be, whatever a run after it keeps.
func TestN15ARunDoesNotShortenWhatWasUndone(t *testing.T) {
	behaviour(t, func(e *env) {
		long, short := e.guard(GuardOptions{Retention: 720 * time.Hour}), e.guard(GuardOptions{LeaseTTL: time.Second, Retention: time.Hour})
		for name, end := range map[string]func(*Claim) error{
			"abort":    func(c *Claim) error { return c.Abort(e.ctx()) },
			"complete": func(c *Claim) error { return c.Complete(e.ctx(), nil) },
			"fail":     func(c *Claim) error { return c.Fail(e.ctx(), nil) },
			"suspend":  func(c *Claim) error { return c.Suspend(e.ctx(), time.Second) },
		} {
			op := e.onAccount()
			e.does(short, op, "first")
			_, err := e.compensates(long, op)
			require.NoError(e, err)
			c := e.claim(short, op)
			require.Greater(e, e.ttl(e.record(op)), 719*time.Hour, "%s: running", name)
			require.NoError(e, end(c))
			require.Greater(e, e.ttl(e.record(op)), 719*time.Hour, name)
			e.expire(op.Resource)
		}
		op := e.op()
		e.does(short, op, "first")
		require.Less(e, e.ttl(e.record(op)), 2*time.Hour, "or the test shows nothing")
	})
}
