package primitives

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// claim begins op under g, and must get a claim.
func (e *env) claim(g *Guard, op Op) *Claim {
	e.Helper()
	s, err := g.Begin(e.ctx(), op)
	require.NoError(e, err)
	require.NotNil(e, s.Claim)
	require.True(e, s.Claim.Token().Valid())
	return s.Claim
}

// attempt is op as tried by one attempt of one execution.
func attempt(op Op, execution string, started int64, n int) Op {
	op.Execution = Execution{ID: execution, Started: time.Unix(started, 0), Attempt: n}
	return op
}

// parked runs a begin that must wait, and returns its answer once it is in line.
func (e *env) parked(g *Guard, op Op) <-chan error {
	e.Helper()
	answer := make(chan error, 1)
	before, err := e.store.Inspect(e.ctx(), op.resource())
	require.NoError(e, err)
	go func() {
		_, err := g.Begin(e.ctx(), op)
		answer <- err
	}()
	eventually(e, "it joins the queue", func() bool {
		now, err := e.store.Inspect(e.ctx(), op.resource())
		return err == nil && now.Waiters > before.Waiters
	})
	return answer
}

func (e *env) fingerprint(input any) Fingerprint {
	e.Helper()
	fp, err := NewFingerprint(input)
	require.NoError(e, err)
	return fp
}

func TestBeginAnswersBegunThenBusyThenReplayed(t *testing.T) {
	behaviour(t, func(e *env) {
		g := e.guard(GuardOptions{LeaseTTL: time.Minute})
		op := e.op()
		op.Holder = "first"
		before := time.Now().Add(-time.Hour)
		s, err := g.Begin(e.ctx(), op)
		require.NoError(e, err)
		require.Equal(e, Begun, s.Outcome)
		require.Equal(e, op.resource(), s.Claim.Token().Resource)

		_, err = g.Begin(e.ctx(), op)
		busy := busyWith(e, err, "first")
		require.Equal(e, op.resource(), busy.Resource)
		require.Equal(e, s.Claim.Token().Value, busy.Token)
		require.LessOrEqual(e, busy.Remaining, time.Minute)
		require.Greater(e, busy.Remaining, 30*time.Second)
		require.True(e, busy.Since.After(before), "since %s", busy.Since)

		require.NoError(e, s.Claim.Complete(e.ctx(), []byte("memo")))
		again, err := g.Begin(e.ctx(), op)
		require.NoError(e, err)
		require.Equal(e, Start{Outcome: Replayed, Memo: []byte("memo")}, again)
		free, err := e.store.Inspect(e.ctx(), op.resource())
		require.NoError(e, err)
		require.False(e, free.Held)
	})
}

func TestBeginReclaimsFromACrashedHolder(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{}), e.op()
		last := e.claim(g, op).Token().Value
		for n := 1; n <= 3; n++ {
			e.expire(op.resource())
			s, err := g.Begin(e.ctx(), op)
			require.NoError(e, err)
			require.Equal(e, Reclaimed, s.Outcome)
			require.Equal(e, n, s.Takeovers)
			require.Greater(e, s.Claim.Token().Value, last)
			last = s.Claim.Token().Value
		}
	})
}

// Operations on one resource exclude each other, though their records are apart.
func TestOperationsOnOneResourceExcludeEachOther(t *testing.T) {
	behaviour(t, func(e *env) {
		g := e.guard(GuardOptions{})
		a, b := e.op(), e.op()
		a.Resource, b.Resource, a.Holder = "account/42", "account/42", "a"
		c := e.claim(g, a)
		_, err := g.Begin(e.ctx(), b)
		busyWith(e, err, "a")
		require.Equal(e, Absent, e.status(b).State)
		require.NoError(e, c.Complete(e.ctx(), nil))
		second := e.claim(g, b)
		require.Greater(e, second.Token().Value, c.Token().Value)
		require.Equal(e, Done, e.status(a).State)

		other := a
		other.Resource = "account/43" // one key under another resource is another operation
		require.Equal(e, Absent, e.status(other).State)
		e.claim(g, other)
	})
}

func TestOnlyANewerAttemptTakesOver(t *testing.T) {
	for _, c := range []struct {
		name  string
		next  func(Op) Op
		opts  GuardOptions
		taken bool
	}{
		{"a later start, attempt number reset", func(op Op) Op { return attempt(op, "x", 101, 1) }, GuardOptions{}, true},
		{"the same start, a later attempt", func(op Op) Op { return attempt(op, "x", 100, 10) }, GuardOptions{}, true},
		{"the very same attempt", func(op Op) Op { return attempt(op, "x", 100, 9) }, GuardOptions{}, false},
		{"the same start, an earlier attempt", func(op Op) Op { return attempt(op, "x", 100, 8) }, GuardOptions{}, false},
		{"an earlier start, a later attempt", func(op Op) Op { return attempt(op, "x", 99, 10) }, GuardOptions{}, false},
		{"no start at all, a later attempt", func(op Op) Op {
			op.Execution = Execution{ID: "x", Attempt: 99}
			return op
		}, GuardOptions{}, false},
		{"another execution", func(op Op) Op { return attempt(op, "y", 101, 10) }, GuardOptions{}, false},
		{"no execution", func(op Op) Op { return attempt(op, "", 101, 10) }, GuardOptions{}, false},
		{"NoTakeover", func(op Op) Op { return attempt(op, "x", 101, 10) }, GuardOptions{NoTakeover: true}, false},
		{"AtMostOnce", func(op Op) Op { return attempt(op, "x", 101, 10) }, GuardOptions{AtMostOnce: true}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			behaviour(t, func(e *env) {
				op := e.op()
				op.Holder = "old"
				old := e.claim(e.guard(GuardOptions{}), attempt(op, "x", 100, 9))
				s, err := e.guard(c.opts).Begin(e.ctx(), c.next(op))
				if !c.taken {
					busyWith(e, err, "old")
					require.NoError(e, old.Complete(e.ctx(), nil))
					return
				}
				require.NoError(e, err)
				require.Equal(e, TakenOver, s.Outcome)
				require.Equal(e, 1, s.Takeovers)
				require.Greater(e, s.Claim.Token().Value, old.Token().Value)
				require.ErrorIs(e, old.renew(e.ctx(), "extend", old.ttl), fence.ErrLeaseLost)
				require.ErrorIs(e, old.Complete(e.ctx(), []byte("late")), ErrSuperseded)
				require.NoError(e, s.Claim.Complete(e.ctx(), []byte("new")))
				require.Equal(e, "new", string(e.status(op).Memo))
			})
		})
	}
}

// N02, N03: attempts of one execution succeed each other on one record. Under another
// key of the resource the newer one is refused for good, whatever the policy of either,
// and in line too; it is let in when the lease has ended.
func TestAnAttemptUnderAnotherKeyIsNoSuccessor(t *testing.T) {
	behaviour(t, func(e *env) {
		first, second := e.op(), e.op()
		first.Resource, second.Resource, first.Holder = "r", "r", "old"
		for _, opts := range []GuardOptions{{}, {NoTakeover: true}, {AtMostOnce: true}, {Wait: time.Minute}} {
			old := e.claim(e.guard(GuardOptions{NoTakeover: opts.NoTakeover}), attempt(first, "x", 100, 1))
			_, err := e.guard(opts).Begin(e.ctx(), attempt(second, "x", 100, 2))
			var changed *KeyChangedError
			require.ErrorAs(e, err, &changed)
			require.ErrorIs(e, err, ErrKeyChanged)
			require.Equal(e, KeyChangedError{Key: second.Key, Holder: "old"}, *changed)
			require.NotContains(e, err.Error(), `"r"`)
			require.Equal(e, Absent, e.status(second).State)
			_, err = e.guard(GuardOptions{}).Begin(e.ctx(), attempt(second, "x", 100, 1))
			require.ErrorIs(e, err, ErrBusy, "not newer")
			require.NoError(e, old.Abort(e.ctx()))
		}
		require.NoError(e, e.claim(e.guard(GuardOptions{}), attempt(second, "x", 100, 2)).Complete(e.ctx(), nil))
	})
}

// A lease that was handed to a waiter remembers its record too.
func TestALeaseThatWasHandedOnRemembersItsRecord(t *testing.T) {
	behaviour(t, func(e *env) {
		first, second := e.op(), e.op()
		first.Resource, second.Resource = "r", "r"
		old := e.claim(e.guard(GuardOptions{}), first)
		got := make(chan error, 1)
		var waiter Start
		go func() {
			var err error
			waiter, err = e.guard(GuardOptions{Wait: time.Minute}).Begin(e.ctx(), attempt(second, "x", 100, 1))
			got <- err
		}()
		eventually(e, "the waiter is in line", func() bool { return e.waiters("r") == 1 })
		require.NoError(e, old.Complete(e.ctx(), nil))
		require.NoError(e, <-got)
		s, err := e.guard(GuardOptions{}).Begin(e.ctx(), attempt(second, "x", 100, 2))
		require.NoError(e, err)
		require.Equal(e, TakenOver, s.Outcome)
		require.ErrorIs(e, waiter.Claim.Complete(e.ctx(), nil), ErrSuperseded)
	})
}

// Fingerprints of different kinds are not compared; those of one kind are.
func TestFingerprintsOfOtherKindsAreNotCompared(t *testing.T) {
	behaviour(t, func(e *env) {
		op := e.op()
		op.Fingerprint = e.fingerprint("in").Of("whole")
		require.NoError(e, e.claim(e.guard(GuardOptions{}), op).Complete(e.ctx(), []byte("memo")))
		for _, c := range []struct {
			f        Fingerprint
			mismatch bool
		}{
			{e.fingerprint("in").Of("whole"), false}, {e.fingerprint("other").Of("whole"), true},
			{e.fingerprint("other").Of("picked"), false}, {e.fingerprint("other"), false}, {Fingerprint{}, false},
		} {
			op.Fingerprint = c.f
			s, err := e.guard(GuardOptions{}).Begin(e.ctx(), op)
			_, resultErr := e.store.Result(e.ctx(), op)
			if c.mismatch {
				require.ErrorIs(e, err, ErrMismatch)
				require.ErrorIs(e, resultErr, ErrMismatch)
				continue
			}
			require.NoError(e, err)
			require.NoError(e, resultErr)
			require.Equal(e, "memo", string(s.Memo))
		}
	})
}

// Two attempts without an execution are strangers, not attempts of one ("" is none).
func TestNoExecutionNeverTakesOver(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{}), e.op()
		e.claim(g, attempt(op, "", 100, 1))
		_, err := g.Begin(e.ctx(), attempt(op, "", 200, 2))
		require.ErrorIs(e, err, ErrBusy)
	})
}

// C17: a result that is too large to keep is done all the same.
func TestOversizeResultIsDoneAndNotRunAgain(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{MaxMemo: 4}), e.op()
		fits := e.op()
		require.NoError(e, e.claim(g, fits).Complete(e.ctx(), []byte("1234")))
		s, err := g.Begin(e.ctx(), fits)
		require.NoError(e, err)
		require.Equal(e, "1234", string(s.Memo))

		require.NoError(e, e.claim(g, op).Complete(e.ctx(), make([]byte, 3<<20)))
		_, err = g.Begin(e.ctx(), op)
		require.Equal(e, &ResultUnavailableError{Key: op.Key, Size: 3 << 20, Limit: 4}, err)
		require.Equal(e, Done, e.status(op).State)
		hash, err := e.rdb.HGetAll(e.ctx(), e.record(op)).Result()
		require.NoError(e, err)
		require.NotContains(e, hash, "memo", "it takes no memory")
	})
}

// C08: other input is found out in every state of the record and on every path.
func TestOtherInputIsAMismatchOnEveryPath(t *testing.T) {
	paths := map[string]func(e *env, g *Guard, op Op){
		"after completion": func(e *env, g *Guard, op Op) {
			require.NoError(e, e.claim(g, op).Complete(e.ctx(), []byte("m")))
		},
		"after a memoised failure": func(e *env, g *Guard, op Op) {
			require.NoError(e, e.claim(g, op).Fail(e.ctx(), []byte("m")))
		},
		"after an oversize result": func(e *env, _ *Guard, op Op) {
			require.NoError(e, e.claim(e.guard(GuardOptions{MaxMemo: 1}), op).Complete(e.ctx(), []byte("22")))
		},
		"in progress":   func(e *env, g *Guard, op Op) { e.claim(g, op) },
		"after a crash": func(e *env, g *Guard, op Op) { e.claim(g, op); e.expire(op.resource()) },
		"suspended": func(e *env, g *Guard, op Op) {
			require.NoError(e, e.claim(g, op).Suspend(e.ctx(), time.Hour))
		},
		"after a takeover": func(e *env, g *Guard, op Op) {
			e.claim(g, attempt(op, "x", 100, 1))
			e.claim(g, attempt(op, "x", 100, 2))
		},
		"after a takeover by a call without a fingerprint": func(e *env, g *Guard, op Op) {
			e.claim(g, attempt(op, "x", 100, 1))
			op.Fingerprint = Fingerprint{}
			require.NoError(e, e.claim(g, attempt(op, "x", 100, 2)).Complete(e.ctx(), []byte("m")))
		},
		"completed after a flush": func(e *env, g *Guard, op Op) {
			c := e.claim(g, op)
			require.NoError(e, e.rdb.Del(e.ctx(), e.record(op), e.lease(op)).Err())
			require.NoError(e, c.Complete(e.ctx(), []byte("m")))
		},
		"at most once, interrupted": func(e *env, _ *Guard, op Op) {
			e.claim(e.guard(GuardOptions{AtMostOnce: true}), op)
			e.expire(op.resource())
		},
		"begun without a lease": func(e *env, _ *Guard, op Op) { e.begin(op, RecordOptions{}) },
		"reclaimed without a lease": func(e *env, _ *Guard, op Op) {
			e.begin(op, RecordOptions{})
			e.age(op, time.Hour)
			_, err := e.store.TryBeginOrReclaim(e.ctx(), op, RecordOptions{})
			require.NoError(e, err)
		},
	}
	for name, prepare := range paths {
		t.Run(name, func(t *testing.T) {
			behaviour(t, func(e *env) {
				g, op := e.guard(GuardOptions{}), e.op()
				op.Fingerprint, op.Holder = e.fingerprint(100), "maker"
				prepare(e, g, op)
				before, err := e.rdb.HGetAll(e.ctx(), e.record(op)).Result()
				require.NoError(e, err)

				other := attempt(op, "x", 100, 3) // a newer attempt must not slip by
				other.Fingerprint = e.fingerprint(200)
				want := &MismatchError{Key: op.Key, Stored: op.Fingerprint.String(), Asked: other.Fingerprint.String(), Holder: "maker"}
				_, err = g.Begin(e.ctx(), other)
				require.Equal(e, want, err)
				_, err = e.store.TryBegin(e.ctx(), other, RecordOptions{})
				require.Equal(e, want, err)
				_, err = e.store.TryBeginOrReclaim(e.ctx(), other, RecordOptions{})
				require.Equal(e, want, err)
				after, err := e.rdb.HGetAll(e.ctx(), e.record(op)).Result()
				require.NoError(e, err)
				require.Equal(e, before, after)
			})
		})
	}
}

// C08 (d): the record appears while the other call waits for the resource.
func TestOtherInputIsAMismatchForAWaiter(t *testing.T) {
	behaviour(t, func(e *env) {
		g := e.guard(GuardOptions{Wait: time.Minute})
		blocker, op := e.op(), e.op()
		blocker.Resource, op.Resource = "r", "r"
		op.Fingerprint = e.fingerprint(1)
		held := e.claim(g, blocker)
		first := e.parked(g, op)
		op.Fingerprint = e.fingerprint(2)
		second := e.parked(g, op)
		require.NoError(e, held.Complete(e.ctx(), nil))
		require.NoError(e, <-first)
		require.ErrorIs(e, <-second, ErrMismatch)
		info, err := e.store.Inspect(e.ctx(), "r")
		require.NoError(e, err)
		require.True(e, info.Held, "the first still has it")
		require.Zero(e, info.Waiters)
	})
}

func TestTakeoversAboveTheLimitArePoisoned(t *testing.T) {
	for name, crash := range map[string]func(e *env, op Op){
		"after a crash":      func(e *env, op Op) { e.expire(op.resource()) },
		"by a newer attempt": func(*env, Op) {},
	} {
		t.Run(name, func(t *testing.T) {
			behaviour(t, func(e *env) {
				g, op := e.guard(GuardOptions{MaxTakeovers: 2}), e.op()
				op.Holder = "crasher"
				for n := range 3 {
					e.claim(g, attempt(op, "x", 100, n))
					crash(e, op)
				}
				for range 2 {
					_, err := g.Begin(e.ctx(), attempt(op, "x", 100, 9))
					require.Equal(e, &PoisonedError{Key: op.Key, Takeovers: 2, Holder: "crasher"}, err)
				}
				e.expire(op.resource())
				require.NoError(e, e.store.Forget(e.ctx(), e.status(op)))
				s, err := g.Begin(e.ctx(), op)
				require.NoError(e, err)
				require.Equal(e, Begun, s.Outcome)
			})
		})
	}
}

// A body that returned an error was no crash: it does not count.
func TestAbortedRunsAreNotTakeovers(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{MaxTakeovers: 1}), e.op()
		for range 4 {
			s, err := g.Begin(e.ctx(), op)
			require.NoError(e, err)
			require.Equal(e, Begun, s.Outcome)
			require.NoError(e, s.Claim.Abort(e.ctx()))
		}
	})
}

func TestWaitEndsWithTheAnswerOrTheContext(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{Wait: 10 * time.Minute, LeaseTTL: 10 * time.Minute}), e.op()
		c := e.claim(g, op)
		answer := e.parked(g, op)
		require.NoError(e, c.Complete(e.ctx(), []byte("m")))
		require.NoError(e, <-answer)

		other := e.op()
		e.claim(g, other)
		ctx, cancel := context.WithCancelCause(e.ctx())
		ended := make(chan error, 1)
		go func() {
			_, err := g.Begin(ctx, other)
			ended <- err
		}()
		eventually(e, "it stands in line", func() bool { return e.waiters(other.resource()) == 1 })
		cancel(errStop)
		err := <-ended
		require.ErrorIs(e, err, errStop)
		require.ErrorIs(e, err, ErrBusy)

		_, err = e.guard(GuardOptions{Wait: time.Millisecond}).Begin(e.ctx(), other)
		require.ErrorIs(e, err, ErrBusy)
		info, err := e.store.Inspect(e.ctx(), other.resource())
		require.NoError(e, err)
		require.Zero(e, info.Waiters, "nobody stays behind in the queue")
	})
}
