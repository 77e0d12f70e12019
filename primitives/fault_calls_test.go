package primitives

import (
	"context"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// publicCall makes one call, or a few, on the far store, and says what must be true
// after them, whatever was lost on the way.
type publicCall struct {
	name string
	run  func(r *rig)
}

// publicCalls are all calls that reach Redis.
var publicCalls = []publicCall{
	{"acquire", func(r *rig) {
		lease, err := r.far.Acquire(r.ctx(), "account", LeaseOptions{TTL: time.Hour})
		require.NoError(r, err)
		r.held(lease.Token())
	}},
	{"acquire in line", acquireInLine},
	{"try acquire, extend, release", func(r *rig) {
		lease, err := r.far.TryAcquire(r.ctx(), "account", LeaseOptions{TTL: time.Hour})
		require.NoError(r, err)
		require.NoError(r, lease.Extend(r.ctx(), time.Hour))
		r.held(lease.Token())
		require.Greater(r, r.inspect("account").Remaining, 50*time.Minute)
		require.NoError(r, lease.Release(r.ctx()))
		require.False(r, r.inspect("account").Held)
		require.NoError(r, lease.Release(r.ctx()), "a release may be repeated")
	}},
	{"hold", func(r *rig) {
		body := &counted{}
		require.NoError(r, r.far.Hold(r.ctx(), "account", LeaseOptions{TTL: time.Hour}, func(ctx context.Context) error {
			_, err := body.body(ctx)
			return err
		}))
		require.EqualValues(r, 1, body.runs.Load())
		require.False(r, r.inspect("account").Held)
	}},
	{"do", func(r *rig) { r.doOnce(r.op(), GuardOptions{}, Begun, 0) }},
	{"do at most once", func(r *rig) { r.doOnce(r.op(), GuardOptions{AtMostOnce: true}, Begun, 0) }},
	{"do fail open", func(r *rig) { r.doOnce(r.op(), GuardOptions{FailOpen: true}, Begun, 0) }},
	{"do after a crash", func(r *rig) {
		op := r.op()
		r.crashed(op)
		r.doOnce(op, GuardOptions{MaxTakeovers: 1}, Reclaimed, 1)
	}},
	{"do as a newer attempt", func(r *rig) {
		op := r.op()
		op.Execution = Execution{ID: "e", Attempt: 1}
		_, err := r.guard(GuardOptions{LeaseTTL: time.Hour}).Begin(r.ctx(), op)
		require.NoError(r, err)
		op.Execution.Attempt++
		r.doOnce(op, GuardOptions{MaxTakeovers: 1}, TakenOver, 1)
	}},
	{"do that fails", func(r *rig) {
		op := r.op()
		_, err := r.farGuard(GuardOptions{LeaseTTL: time.Hour}).Do(r.ctx(), op, func(context.Context) ([]byte, error) { return nil, errBody })
		require.Same(r, errBody, err)
		require.Equal(r, Absent, r.status(op).State)
		require.False(r, r.inspect(op.resource()).Held, "the next call starts at once")
	}},
	{"do that is suspended", func(r *rig) {
		op := r.op()
		_, err := r.farGuard(GuardOptions{LeaseTTL: time.Hour, Judge: func(context.Context, error) Verdict { return Suspend(time.Hour) }}).
			Do(r.ctx(), op, func(context.Context) ([]byte, error) { return nil, errBody })
		require.Same(r, errBody, err)
		record := r.status(op)
		require.Equal(r, Pending, record.State)
		require.Greater(r, record.Lease, 50*time.Minute)
	}},
	{"do that fails for good", func(r *rig) {
		op := r.op()
		_, err := r.farGuard(GuardOptions{Judge: func(context.Context, error) Verdict { return MemoiseFailure([]byte("no")) }}).
			Do(r.ctx(), op, func(context.Context) ([]byte, error) { return nil, errBody })
		require.Same(r, errBody, err)
		_, err = r.store.Result(r.ctx(), op)
		var failed *FailedError
		require.ErrorAs(r, err, &failed)
		require.Equal(r, "no", string(failed.Memo))
	}},
	{"do that a store calls stale", func(r *rig) {
		op := Op{Key: r.key(), Resource: "account"}
		var seen fence.Value
		_, err := r.farGuard(GuardOptions{}).Do(r.ctx(), op, func(ctx context.Context) ([]byte, error) {
			token, err := fence.FromContext(ctx)
			require.NoError(r, err)
			seen = token.Value + 1e15
			return nil, &fence.StaleError{Resource: "account", Token: token.Value, Current: seen}
		})
		require.ErrorIs(r, err, fence.ErrStale)
		r.doOnce(op, GuardOptions{}, Begun, 0)
		require.Greater(r, r.status(op).Token, seen)
	}},
	{"begin what is done", func(r *rig) {
		op, body := r.op(), &counted{memo: "once"}
		_, err := r.guard(GuardOptions{}).Do(r.ctx(), op, body.body)
		require.NoError(r, err)
		start, err := r.farGuard(GuardOptions{}).Begin(r.ctx(), op)
		require.NoError(r, err)
		require.Equal(r, Start{Outcome: Replayed, Memo: []byte("once")}, start)
	}},
	{"claim: abort above", func(r *rig) {
		op := Op{Key: r.key(), Resource: "account"}
		claim := r.claimed(op)
		seen := claim.Token().Value + 1e15
		_, err := claim.AbortAbove(r.ctx(), seen)
		require.NoError(r, err)
		require.NoError(r, claim.Abort(r.ctx()), "an abort may be repeated")
		require.Equal(r, Absent, r.status(op).State)
		require.Equal(r, seen, r.inspect("account").Last)
	}},
	{"claim: suspend, carry over, complete", func(r *rig) {
		op, g := r.op(), r.farGuard(GuardOptions{})
		claim := r.claimed(op)
		require.NoError(r, claim.Suspend(r.ctx(), time.Hour))
		require.Equal(r, Pending, r.status(op).State)
		// Not through its text: that is for the tests of the claim.
		carried := g.claim(op)
		carried.nonce = claim.nonce
		carried.granted(claim.Token().Value, time.Time{})
		require.NoError(r, carried.Complete(r.ctx(), []byte("late")))
		require.NoError(r, claim.Complete(r.ctx(), []byte("later")), "a complete may be repeated, and the first counts")
		memo, err := r.store.Result(r.ctx(), op)
		require.NoError(r, err)
		require.Equal(r, "late", string(memo))
	}},
	{"claim: undo, complete", func(r *rig) {
		op := r.onAccount()
		r.does(r.guard(GuardOptions{}), op, "done")
		claim := r.claimed(r.onAccount())
		key, err := claim.Undo(r.ctx(), op)
		require.NoError(r, err)
		require.Equal(r, op.Key, key)
		require.NoError(r, claim.Complete(r.ctx(), nil))
		record := r.status(op)
		require.Equal(r, []any{Undone, claim.Token().Value}, []any{record.State, record.Undone})
		require.Equal(r, record.Undone, r.does(r.farGuard(GuardOptions{LeaseTTL: time.Hour}), op, "again").Undone)
	}},
	{"record: begin, complete", func(r *rig) {
		op := r.op()
		start, err := r.far.TryBegin(r.ctx(), op, RecordOptions{})
		require.NoError(r, err)
		require.Equal(r, Begun, start.Outcome)
		require.NoError(r, start.Claim.Complete(r.ctx(), []byte("m")))
		memo, err := r.far.Result(r.ctx(), op)
		require.NoError(r, err)
		require.Equal(r, "m", string(memo))
	}},
	{"record: reclaim, abort", func(r *rig) {
		op := r.op()
		_, err := r.store.TryBegin(r.ctx(), op, RecordOptions{})
		require.NoError(r, err)
		r.age(op, time.Hour)
		start, err := r.far.TryBeginOrReclaim(r.ctx(), op, RecordOptions{MaxTakeovers: 1})
		require.NoError(r, err)
		require.Equal(r, Reclaimed, start.Outcome)
		require.Equal(r, 1, start.Takeovers)
		require.NoError(r, start.Claim.Abort(r.ctx()))
		require.Equal(r, Absent, r.status(op).State)
	}},
	{"operator: inspect, free, raise", operatorCalls},
	{"operator: resolve", func(r *rig) {
		op := r.op()
		r.crashed(op)
		record, err := r.far.Status(r.ctx(), op)
		require.NoError(r, err)
		require.NoError(r, r.far.Resolve(r.ctx(), record, []byte("by hand"), 0))
		memo, err := r.store.Result(r.ctx(), op)
		require.NoError(r, err)
		require.Equal(r, "by hand", string(memo))
	}},
	{"operator: clear", func(r *rig) {
		op := r.op()
		r.crashed(op)
		require.NoError(r, r.far.Clear(r.ctx(), op))
		require.Equal(r, Absent, r.status(op).State)
	}},
	{"gate", func(r *rig) {
		gate, err := NewGate(r.far, GateOptions{})
		require.NoError(r, err)
		token := fence.Token{Resource: "account", Value: 7, Owner: "me"}
		require.NoError(r, gate.Advance(r.ctx(), token))
		require.NoError(r, gate.SetIfFresh(r.ctx(), token, "balance", []byte("50"), 0))
		top, err := gate.Current(r.ctx(), "account")
		require.NoError(r, err)
		require.Equal(r, token, top)
		value, top, err := gate.Get(r.ctx(), "account", "balance")
		require.NoError(r, err)
		require.Equal(r, token, top)
		require.Equal(r, "50", string(value))
		require.ErrorIs(r, gate.Advance(r.ctx(), fence.Token{Resource: "account", Value: 6, Owner: "me"}), fence.ErrStale)
	}},
	{"check", func(r *rig) {
		_, err := r.far.Check(r.ctx())
		require.NoError(r, err)
	}},
}

// doOnce runs an operation to its end, once, and has it replayed.
func (r *rig) doOnce(op Op, opts GuardOptions, want Outcome, takeovers int) {
	r.Helper()
	opts.LeaseTTL = time.Hour
	body := &counted{memo: strings.Repeat("m", 100)}
	res, err := r.farGuard(opts).Do(r.ctx(), op, body.body)
	require.NoError(r, err)
	require.Equal(r, Result{Outcome: want, Memo: []byte(body.memo), Token: res.Token, Takeovers: takeovers, MemoStored: true}, res)
	require.EqualValues(r, 1, body.runs.Load())
	info := r.inspect(op.resource())
	require.False(r, info.Held)
	require.Equal(r, res.Token.Value, info.Last, "one grant, one token")
	require.Equal(r, res.Token.Value, r.status(op).Token)

	res, err = r.guard(opts).Do(r.ctx(), op, body.body)
	require.NoError(r, err)
	require.Equal(r, Replayed, res.Outcome)
	require.Equal(r, body.memo, string(res.Memo))
	require.EqualValues(r, 1, body.runs.Load())
}

// claimed begins op on the far store.
func (r *rig) claimed(op Op) *Claim {
	r.Helper()
	start, err := r.farGuard(GuardOptions{LeaseTTL: time.Hour}).Begin(r.ctx(), op)
	require.NoError(r, err)
	require.Equal(r, Begun, start.Outcome)
	r.held(start.Claim.Token())
	return start.Claim
}

// crashed leaves op as a holder does that died: running, without a lease.
func (r *rig) crashed(op Op) {
	r.Helper()
	_, err := r.guard(GuardOptions{}).Begin(r.ctx(), op)
	require.NoError(r, err)
	r.expire(op.resource())
}

// age makes a record look as if it had begun some time before.
func (r *rig) age(op Op, d time.Duration) {
	r.Helper()
	record := r.status(op)
	require.NoError(r, r.rdb.HSet(r.ctx(), record.name, "began", record.Began.Add(-d).UnixMilli()).Err())
}

// acquireInLine waits for a lease that another store holds, and is handed it.
func acquireInLine(r *rig) {
	first, err := r.store.TryAcquire(r.ctx(), "account", LeaseOptions{TTL: time.Hour})
	require.NoError(r, err)
	released := make(chan error, 1)
	go func() {
		for r.ctx().Err() == nil {
			if info, err := r.store.Inspect(r.ctx(), "account"); err == nil && info.Waiters == 1 {
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
		released <- first.Release(r.ctx())
	}()
	second, err := r.far.Acquire(r.ctx(), "account", LeaseOptions{TTL: time.Hour})
	require.NoError(r, err)
	require.NoError(r, <-released)
	r.held(second.Token())
	require.Greater(r, second.Token().Value, first.Token().Value)
	require.Zero(r, r.inspect("account").Waiters, "nobody is left in the queue")
}

// operatorCalls are those that compare with what the operator saw. A repeat of one
// whose reply was lost finds the change that it made itself, and says so: the state
// is as asked for, and nothing else was touched.
func operatorCalls(r *rig) {
	op := r.op()
	claim := r.claimed(op)
	info, err := r.far.Inspect(r.ctx(), op.resource())
	require.NoError(r, err)
	if _, err = r.far.Free(r.ctx(), info); err != nil {
		require.ErrorIs(r, err, ErrChanged)
	}
	after := r.inspect(op.resource())
	require.False(r, after.Held)
	require.Greater(r, after.Last, claim.Token().Value, "stores will refuse the old holder")

	for record, err := range r.far.Records(r.ctx()) {
		require.NoError(r, err)
		require.True(r, record.Stuck())
		if err = r.far.Forget(r.ctx(), record); err != nil {
			require.ErrorIs(r, err, ErrNotFound)
		}
	}
	require.Equal(r, Absent, r.status(op).State)

	floor := after.Last + 1000
	last, err := r.far.Raise(r.ctx(), op.resource(), floor)
	require.NoError(r, err)
	require.Equal(r, floor, last)
	for _, err := range r.far.Leases(r.ctx()) {
		require.NoError(r, err)
		r.Fatal("no lease is held")
	}
}
