package primitives

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// begin starts op by its record alone, and must succeed.
func (e *env) begin(op Op, opts RecordOptions) Start {
	e.Helper()
	s, err := e.store.TryBegin(e.ctx(), op, opts)
	require.NoError(e, err)
	require.NotNil(e, s.Claim)
	return s
}

// record is the Redis name of op's record.
func (e *env) record(op Op) string { return e.store.names.resource(op.resource()).record(op.Key) }

// lease is the Redis name of the lease of op's resource.
func (e *env) lease(op Op) string { return e.store.names.resource(op.resource()).lease() }

// age makes the record of op look as if it had begun d earlier.
func (e *env) age(op Op, d time.Duration) {
	e.Helper()
	began, err := e.rdb.HGet(e.ctx(), e.record(op), "began").Int64()
	require.NoError(e, err)
	earlier := strconv.FormatInt(began-d.Milliseconds(), 10)
	require.NoError(e, e.rdb.HSet(e.ctx(), e.record(op), "began", earlier).Err())
}

func (e *env) ttl(name string) time.Duration {
	e.Helper()
	d, err := e.rdb.PTTL(e.ctx(), name).Result()
	require.NoError(e, err)
	return d
}

// busyWith asserts that err says who is at work.
func busyWith(t require.TestingT, err error, holder string) *BusyError {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	var busy *BusyError
	require.ErrorAs(t, err, &busy)
	require.ErrorIs(t, err, ErrBusy)
	require.Equal(t, holder, busy.Holder)
	require.Positive(t, busy.Remaining)
	return busy
}

func TestRecordWithoutLeaseRunsOnceAndReplays(t *testing.T) {
	behaviour(t, func(e *env) {
		op := e.op()
		op.Holder = "one"
		first := e.begin(op, RecordOptions{})
		require.Equal(e, Begun, first.Outcome)
		require.False(e, first.Claim.Token().Valid(), "a record has no token")
		require.Zero(e, first.Takeovers)

		_, err := e.store.TryBegin(e.ctx(), op, RecordOptions{})
		busy := busyWith(e, err, "one")
		require.Zero(e, busy.Token)
		require.False(e, busy.Since.IsZero())
		require.LessOrEqual(e, busy.Remaining, 5*time.Minute)

		require.NoError(e, first.Claim.Complete(e.ctx(), []byte("memo")))
		require.NoError(e, first.Claim.Complete(e.ctx(), []byte("other")), "a repeat succeeds")
		again, err := e.store.TryBegin(e.ctx(), op, RecordOptions{})
		require.NoError(e, err)
		require.Equal(e, Start{Outcome: Replayed, Memo: []byte("memo")}, again)
	})
}

func TestRecordWithoutLeaseEndsInEachWay(t *testing.T) {
	behaviour(t, func(e *env) {
		failed := e.op()
		require.NoError(e, e.begin(failed, RecordOptions{}).Claim.Fail(e.ctx(), []byte("declined")))
		_, err := e.store.TryBegin(e.ctx(), failed, RecordOptions{})
		var f *FailedError
		require.ErrorAs(e, err, &f)
		require.Equal(e, &FailedError{Key: failed.Key, Memo: []byte("declined")}, f)

		aborted := e.op()
		c := e.begin(aborted, RecordOptions{}).Claim
		require.NoError(e, c.Abort(e.ctx()))
		require.NoError(e, c.Abort(e.ctx()), "a repeat succeeds")
		require.Equal(e, Absent, e.status(aborted).State)
		require.Equal(e, Begun, e.begin(aborted, RecordOptions{}).Outcome)

		large := e.op()
		require.NoError(e, e.begin(large, RecordOptions{MaxMemo: 3}).Claim.Complete(e.ctx(), []byte("1234")))
		_, err = e.store.TryBegin(e.ctx(), large, RecordOptions{})
		var gone *ResultUnavailableError
		require.ErrorAs(e, err, &gone)
		require.Equal(e, &ResultUnavailableError{Key: large.Key, Size: 4, Limit: 3}, gone)
	})
}

// A running record is busy however old, and reclaimed from the stated age on; never
// before, and never by TryBegin (C01).
func TestOnlyAnOldRecordIsReclaimed(t *testing.T) {
	behaviour(t, func(e *env) {
		op, opts := e.op(), RecordOptions{TTL: time.Hour, ReclaimAfter: time.Minute}
		old := e.begin(op, opts).Claim

		_, err := e.store.TryBeginOrReclaim(e.ctx(), op, opts)
		require.LessOrEqual(e, busyWith(e, err, "").Remaining, time.Minute, "busy until it can be reclaimed")
		e.age(op, 2*time.Minute)
		_, err = e.store.TryBegin(e.ctx(), op, opts)
		require.Greater(e, busyWith(e, err, "").Remaining, time.Minute, "TryBegin does not reclaim")

		s, err := e.store.TryBeginOrReclaim(e.ctx(), op, opts)
		require.NoError(e, err)
		require.Equal(e, Reclaimed, s.Outcome)
		require.Equal(e, 1, s.Takeovers)

		var over *SupersededError
		require.ErrorAs(e, old.Complete(e.ctx(), []byte("late")), &over, "fencekit stored this one")
		require.ErrorIs(e, over, fence.ErrLeaseLost)
		require.NoError(e, old.Abort(e.ctx()), "and leaves its successor alone")
		require.Equal(e, Running, e.status(op).State)
		require.NoError(e, s.Claim.Complete(e.ctx(), []byte("new")))
		memo, err := e.store.Result(e.ctx(), op)
		require.NoError(e, err)
		require.Equal(e, "new", string(memo))
	})
}

func TestReclaimedTooOftenIsPoisoned(t *testing.T) {
	behaviour(t, func(e *env) {
		op, opts := e.op(), RecordOptions{MaxTakeovers: 2}
		op.Holder = "crasher"
		e.begin(op, opts)
		for n := 1; n <= 2; n++ {
			e.age(op, time.Hour)
			s, err := e.store.TryBeginOrReclaim(e.ctx(), op, opts)
			require.NoError(e, err)
			require.Equal(e, n, s.Takeovers)
			require.Equal(e, n, e.status(op).Takeovers)
		}
		e.age(op, time.Hour)
		for range 2 { // asking does not count
			_, err := e.store.TryBeginOrReclaim(e.ctx(), op, opts)
			var p *PoisonedError
			require.ErrorAs(e, err, &p)
			require.Equal(e, &PoisonedError{Key: op.Key, Takeovers: 2, Holder: "crasher"}, p)
		}
		_, err := e.store.TryBeginOrReclaim(e.ctx(), op, RecordOptions{MaxTakeovers: 3})
		require.NoError(e, err, "a higher limit lets it go on")
	})
}

// One key is one operation, whether a lease guards it or not.
func TestRecordAndGuardExcludeEachOther(t *testing.T) {
	behaviour(t, func(e *env) {
		g := e.guard(GuardOptions{})

		plain := e.op()
		plain.Holder = "plain"
		c := e.begin(plain, RecordOptions{}).Claim
		_, err := g.Begin(e.ctx(), plain)
		require.Zero(e, busyWith(e, err, "plain").Token)
		free, err := e.store.Inspect(e.ctx(), plain.resource())
		require.NoError(e, err)
		require.False(e, free.Held, "a refused begin holds nothing")
		require.NoError(e, c.Complete(e.ctx(), []byte("p")))
		s, err := g.Begin(e.ctx(), plain)
		require.NoError(e, err)
		require.Equal(e, "p", string(s.Memo))

		guarded := e.op()
		guarded.Holder = "guarded"
		s, err = g.Begin(e.ctx(), guarded)
		require.NoError(e, err)
		_, err = e.store.TryBegin(e.ctx(), guarded, RecordOptions{})
		require.Equal(e, s.Claim.Token().Value, busyWith(e, err, "guarded").Token)
		e.age(guarded, time.Hour)
		_, err = e.store.TryBeginOrReclaim(e.ctx(), guarded, RecordOptions{ReclaimAfter: time.Second})
		busyWith(e, err, "guarded") // however old: its lease is alive
		require.NoError(e, s.Claim.Complete(e.ctx(), []byte("g")))
		s, err = e.store.TryBegin(e.ctx(), guarded, RecordOptions{})
		require.NoError(e, err)
		require.Equal(e, "g", string(s.Memo))
	})
}

func TestRecordReclaimsACrashedGuard(t *testing.T) {
	behaviour(t, func(e *env) {
		op := e.op()
		s, err := e.guard(GuardOptions{}).Begin(e.ctx(), op)
		require.NoError(e, err)
		e.expire(op.resource())
		e.age(op, time.Hour)
		again, err := e.store.TryBeginOrReclaim(e.ctx(), op, RecordOptions{})
		require.NoError(e, err)
		require.Equal(e, Reclaimed, again.Outcome)
		require.ErrorIs(e, s.Claim.Complete(e.ctx(), nil), ErrSuperseded)

		once := e.op()
		_, err = e.guard(GuardOptions{AtMostOnce: true}).Begin(e.ctx(), once)
		require.NoError(e, err)
		e.expire(once.resource())
		e.age(once, time.Hour)
		_, err = e.store.TryBeginOrReclaim(e.ctx(), once, RecordOptions{})
		require.ErrorIs(e, err, ErrOutcomeUnknown)
	})
}

func TestResultInEveryState(t *testing.T) {
	behaviour(t, func(e *env) {
		op := e.op()
		op.Holder = "me"
		_, err := e.store.Result(e.ctx(), op)
		require.ErrorIs(e, err, ErrNotFound)
		require.Equal(e, Record{State: Absent, name: e.record(op)}, e.status(op))

		c := e.begin(op, RecordOptions{TTL: time.Minute}).Claim
		_, err = e.store.Result(e.ctx(), op)
		left := busyWith(e, err, "me").Remaining
		require.Greater(e, left, 30*time.Second, "nobody else gets it before")
		require.LessOrEqual(e, left, time.Minute)
		require.NoError(e, c.Abort(e.ctx()))

		s, err := e.guard(GuardOptions{LeaseTTL: time.Minute}).Begin(e.ctx(), op)
		require.NoError(e, err)
		_, err = e.store.Result(e.ctx(), op)
		busy := busyWith(e, err, "me")
		require.Equal(e, s.Claim.Token().Value, busy.Token)
		require.Greater(e, busy.Remaining, 30*time.Second)
		require.NoError(e, s.Claim.Suspend(e.ctx(), time.Hour))
		require.Equal(e, Pending, e.status(op).State)
		_, err = e.store.Result(e.ctx(), op)
		require.Greater(e, busyWith(e, err, "me").Remaining, 30*time.Minute)

		require.NoError(e, s.Claim.Complete(e.ctx(), nil))
		memo, err := e.store.Result(e.ctx(), op)
		require.NoError(e, err)
		require.Empty(e, memo)
		require.NoError(e, e.store.Clear(e.ctx(), op))

		require.NoError(e, e.begin(op, RecordOptions{}).Claim.Fail(e.ctx(), []byte("no")))
		_, err = e.store.Result(e.ctx(), op)
		require.Equal(e, &FailedError{Key: op.Key, Memo: []byte("no")}, err)
		require.NoError(e, e.store.Clear(e.ctx(), op))

		require.NoError(e, e.begin(op, RecordOptions{MaxMemo: 1}).Claim.Complete(e.ctx(), []byte("22")))
		_, err = e.store.Result(e.ctx(), op)
		require.Equal(e, &ResultUnavailableError{Key: op.Key, Size: 2, Limit: 1}, err)
	})
}

func TestClearSparesWhoIsAtWork(t *testing.T) {
	behaviour(t, func(e *env) {
		op := e.op()
		op.Holder = "worker"
		require.NoError(e, e.store.Clear(e.ctx(), op), "unknown is no error")

		plain := e.begin(op, RecordOptions{}).Claim
		busyWith(e, e.store.Clear(e.ctx(), op), "worker")
		require.NoError(e, plain.Abort(e.ctx()))

		s, err := e.guard(GuardOptions{}).Begin(e.ctx(), op)
		require.NoError(e, err)
		busyWith(e, e.store.Clear(e.ctx(), op), "worker")
		require.Equal(e, Running, e.status(op).State)
		e.expire(op.resource())
		require.True(e, e.status(op).Stuck())
		require.NoError(e, e.store.Clear(e.ctx(), op), "interrupted")
		require.Equal(e, Absent, e.status(op).State)

		require.ErrorIs(e, s.Claim.Complete(e.ctx(), []byte("x")), ErrSuperseded, "its holder wakes up")
		require.Equal(e, Absent, e.status(op).State)

		again := e.claim(e.guard(GuardOptions{}), op)
		require.NoError(e, again.Complete(e.ctx(), []byte("x")))
		require.NoError(e, e.store.Clear(e.ctx(), op), "finished")
		require.Equal(e, Begun, e.begin(op, RecordOptions{}).Outcome)
	})
}

// fencekit once took a TTL of zero for "for ever", and a negative one for "now" (B13).
func TestRecordOptionsOutOfBoundsAreRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onMiniredis(t), false)
	for field, bad := range map[string][]RecordOptions{
		"TTL":          {{TTL: -time.Second}, {TTL: time.Millisecond}, {TTL: 11 * 365 * 24 * time.Hour}},
		"ReclaimAfter": {{ReclaimAfter: -1}, {ReclaimAfter: 24 * time.Millisecond}, {TTL: time.Second, ReclaimAfter: 2 * time.Second}},
		"Retention":    {{Retention: -1}, {Retention: time.Millisecond}},
		"MaxMemo":      {{MaxMemo: -1}, {MaxMemo: 65 << 20}},
		"MaxTakeovers": {{MaxTakeovers: -1}},
	} {
		for _, opts := range bad {
			for _, begin := range []func() (Start, error){
				func() (Start, error) { return e.store.TryBegin(t.Context(), e.op(), opts) },
				func() (Start, error) { return e.store.TryBeginOrReclaim(t.Context(), e.op(), opts) },
			} {
				_, err := begin()
				var option *OptionError
				require.ErrorAs(t, err, &option, "%+v", opts)
				require.Equal(t, field, option.Field)
			}
		}
	}
	_, err := e.store.TryBegin(t.Context(), Op{}, RecordOptions{})
	require.ErrorIs(t, err, ErrInvalid, "a zero key")
	require.Empty(t, e.stored(), "nothing was written")
}

// A guarded call that waits for a record without a lease is told when that ends,
// however it ends: it need not wait until it looks again.
func TestAWaiterIsToldOfTheEndOfARecordWithoutALease(t *testing.T) {
	ends := map[string]func(*env, *Claim) error{
		"complete": func(e *env, c *Claim) error { return c.Complete(e.ctx(), []byte("m")) },
		"abort":    func(e *env, c *Claim) error { return c.Abort(e.ctx()) },
	}
	behaviour(t, func(e *env) {
		for name, end := range ends {
			op := e.op()
			plain, err := e.store.TryBegin(e.ctx(), op, RecordOptions{})
			require.NoError(e, err)
			record := plain.Claim.record
			heard, channel := e.listen()
			_, err = e.guard(GuardOptions{}).claim(op).try(e.ctx(), op, &place{channel: channel})
			require.ErrorIs(e, err, ErrBusy)

			require.NoError(e, end(e, plain.Claim))
			message, err := heard.ReceiveMessage(e.ctx())
			require.NoError(e, err)
			require.Equal(e, "finished "+record, message.Payload, name)
		}
	})
}
