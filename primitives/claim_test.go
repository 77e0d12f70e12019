package primitives

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// hash is everything that is stored about op.
func (e *env) hash(op Op) map[string]string {
	e.Helper()
	h, err := e.rdb.HGetAll(e.ctx(), e.record(op)).Result()
	require.NoError(e, err)
	return h
}

// B01: the reply to begin is lost and the client sends it again.
func TestRepeatedBeginGetsTheSameGrant(t *testing.T) {
	for how, prepare := range map[Outcome]func(e *env, g *Guard, op Op){
		Begun:     func(*env, *Guard, Op) {},
		Reclaimed: func(e *env, g *Guard, op Op) { e.claim(g, op); e.expire(op.resource()) },
		TakenOver: func(e *env, g *Guard, op Op) { e.claim(g, attempt(op, "x", 100, 1)) },
	} {
		t.Run(string(how), func(t *testing.T) {
			behaviour(t, func(e *env) {
				for _, opts := range []GuardOptions{{MaxTakeovers: 1}, {AtMostOnce: true}} {
					if opts.AtMostOnce && how != Begun {
						continue
					}
					g, op := e.guard(opts), e.op()
					prepare(e, g, op)
					op = attempt(op, "x", 100, 2)
					c := g.claim(op)
					first, err := c.try(e.ctx(), op, &place{})
					require.NoError(e, err)
					require.Equal(e, how, first.Outcome)
					token := c.Token()
					again, err := c.try(e.ctx(), op, &place{})
					require.NoError(e, err)
					require.Equal(e, first, again)
					require.Equal(e, token, c.Token())
				}
			})
		})
	}
}

func TestRepeatedRecordBeginGetsTheSameAnswer(t *testing.T) {
	behaviour(t, func(e *env) {
		op := e.op()
		e.begin(op, RecordOptions{})
		e.age(op, time.Hour)
		c := e.guard(GuardOptions{}).claim(op)
		for range 2 {
			r, err := e.store.run(e.ctx(), call{script: &e.store.scripts.recordBegin,
				keys: []string{e.record(op), e.lease(op)}, args: []any{c.nonce, "60000", "", "", "1000", "1"}})
			require.NoError(e, err)
			require.Equal(e, reply{"record_begin", "reclaimed", []string{"", "1"}}, r)
		}
	})
}

// B02: so does complete; and what a repeat brings along does not replace the memo.
func TestRepeatedEndsGiveTheSameAnswer(t *testing.T) {
	behaviour(t, func(e *env) {
		g := e.guard(GuardOptions{})
		op := e.op()
		c := e.claim(g, op)
		require.NoError(e, c.Complete(e.ctx(), []byte("m")))
		before := e.hash(op)
		require.NoError(e, c.Complete(e.ctx(), []byte("other")))
		require.NoError(e, c.Abort(e.ctx()), "an abort after it changes nothing")
		require.Equal(e, before, e.hash(op))
		require.ErrorIs(e, c.Suspend(e.ctx(), 0), fence.ErrLeaseLost)
		require.Equal(e, before, e.hash(op))

		op = e.op()
		c = e.claim(g, op)
		require.NoError(e, c.Suspend(e.ctx(), time.Hour))
		before = e.hash(op)
		require.NoError(e, c.Suspend(e.ctx(), time.Hour))
		require.Equal(e, before, e.hash(op))
		require.NoError(e, c.Abort(e.ctx()))
		require.NoError(e, c.Abort(e.ctx()))
		require.Equal(e, Absent, e.status(op).State)
	})
}

// A repeat that arrives after the next grant does no harm to it.
func TestLateRepeatsLeaveTheSuccessorAlone(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{}), e.op()
		old := e.claim(g, op)
		require.NoError(e, old.Abort(e.ctx()))
		next := e.claim(g, op)
		before := e.hash(op)
		require.NoError(e, old.Abort(e.ctx()))
		raised, err := old.AbortAbove(e.ctx(), next.Token().Value+1e9)
		require.NoError(e, err)
		require.False(e, raised)
		require.ErrorIs(e, old.Complete(e.ctx(), []byte("late")), ErrSuperseded)
		require.ErrorIs(e, old.Fail(e.ctx(), []byte("late")), ErrSuperseded)
		require.ErrorIs(e, old.Suspend(e.ctx(), time.Hour), fence.ErrLeaseLost)
		require.Equal(e, before, e.hash(op))
		require.NoError(e, next.renew(e.ctx(), "extend", next.ttl))
		require.NoError(e, next.Complete(e.ctx(), []byte("m")))
	})
}

// C04: a holder that was superseded stores nothing, and the new one goes on.
func TestSupersededCompleteStoresNothing(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{}), e.op()
		a := e.claim(g, op)
		e.expire(op.resource())
		op.Holder = "b"
		b := e.claim(g, op)
		err := a.Complete(e.ctx(), []byte("a"))
		require.Equal(e, &SupersededError{Key: op.Key, Token: a.Token().Value, Current: b.Token().Value, Holder: "b"}, err)
		r := e.status(op)
		require.Equal(e, Running, r.State)
		require.Equal(e, b.Token().Value, r.Token)
		_, err = g.Begin(e.ctx(), op)
		busyWith(e, err, "b")
	})
}

func TestCompleteAfterTheLeaseEnded(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{}), e.op()
		c := e.claim(g, op)
		e.expire(op.resource())
		require.NoError(e, c.Complete(e.ctx(), []byte("m")), "nobody came")
		require.Equal(e, "m", string(e.status(op).Memo))

		// Somebody else at the same resource is somebody after us, but not at our operation.
		mine, other := e.op(), e.op()
		mine.Resource, other.Resource = "r", "r"
		c = e.claim(g, mine)
		e.expire("r")
		o := e.claim(g, other)
		require.NoError(e, c.Complete(e.ctx(), []byte("m")))
		require.NoError(e, o.renew(e.ctx(), "extend", time.Minute), "its lease is left alone")
	})
}

func TestCompleteAfterAFlush(t *testing.T) {
	behaviour(t, func(e *env) {
		g := e.guard(GuardOptions{})
		flush := func(op Op) {
			n := e.store.names.resource(op.resource())
			require.NoError(e, e.rdb.Del(e.ctx(), n.lease(), n.token(), n.record(op.Key)).Err())
		}
		op := e.op()
		op.Fingerprint, op.Holder = e.fingerprint(1), "me"
		c := e.claim(g, op)
		flush(op)
		require.NoError(e, c.Complete(e.ctx(), []byte("m")), "nobody came")
		r := e.status(op)
		require.Equal(e, "m", string(r.Memo))
		require.Equal(e, c.Token().Value, r.Token)
		require.Equal(e, op.Fingerprint.String(), r.fp)

		// Somebody came, and is gone without a trace but the token.
		op = e.op()
		a := e.claim(g, op)
		flush(op)
		b := e.claim(g, op)
		require.NoError(e, b.Abort(e.ctx()))
		err := a.Complete(e.ctx(), []byte("a"))
		require.Equal(e, &SupersededError{Key: op.Key, Token: a.Token().Value, Current: b.Token().Value}, err)
		require.Equal(e, Absent, e.status(op).State)

		// Somebody came without a lease.
		op = e.op()
		a = e.claim(g, op)
		flush(op)
		e.begin(op, RecordOptions{})
		require.ErrorIs(e, a.Complete(e.ctx(), []byte("a")), ErrSuperseded)
		require.Equal(e, Running, e.status(op).State)
	})
}

func TestSuspendedOperationIsBusyUntilItsResultComes(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{LeaseTTL: time.Minute}), e.op()
		c := e.claim(g, attempt(op, "x", 100, 1))
		require.NoError(e, c.Suspend(e.ctx(), time.Hour))
		_, err := g.Begin(e.ctx(), op)
		require.Greater(e, busyWith(e, err, "").Remaining, 30*time.Minute)
		require.Greater(e, e.ttl(e.record(op)), time.Hour, "the record outlives the lease")
		waiting := e.parked(e.guard(GuardOptions{Wait: time.Minute}), op)
		require.NoError(e, c.Complete(e.ctx(), []byte("late")))
		require.NoError(e, <-waiting)

		op = e.op()
		c = e.claim(g, attempt(op, "x", 100, 1))
		require.NoError(e, c.Suspend(e.ctx(), time.Hour))
		s, err := g.Begin(e.ctx(), attempt(op, "x", 100, 2))
		require.NoError(e, err)
		require.Equal(e, TakenOver, s.Outcome)
		require.ErrorIs(e, c.Complete(e.ctx(), []byte("late")), ErrSuperseded)
		require.ErrorIs(e, c.Suspend(e.ctx(), -time.Second), ErrInvalid)
	})
}

// A suspended claim travels as text to another process, which has a store of its own.
func TestClaimIsCompletedFromItsText(t *testing.T) {
	behaviour(t, func(e *env) {
		op := e.op()
		op.Resource, op.Holder, op.Fingerprint = "account/42", "starter", e.fingerprint(1)
		c := e.claim(e.guard(GuardOptions{}), op)
		require.NoError(e, c.Suspend(e.ctx(), time.Hour))
		text, err := c.MarshalText()
		require.NoError(e, err)

		g, err := NewGuard(e.other(), GuardOptions{Retention: time.Minute, MaxMemo: 4})
		require.NoError(e, err)
		there, err := g.ParseClaim(text)
		require.NoError(e, err)
		require.Equal(e, op.Key, there.Key())
		require.Equal(e, c.Token(), there.Token())

		// Even with the record lost, what is stored carries the fingerprint.
		require.NoError(e, e.rdb.Del(e.ctx(), e.record(op)).Err())
		require.NoError(e, there.Complete(e.ctx(), []byte("memo")))
		r := e.status(op)
		require.Equal(e, "memo", string(r.Memo))
		require.Equal(e, "starter", r.Holder)
		require.Equal(e, op.Fingerprint.String(), r.fp)
		require.LessOrEqual(e, r.Expires, time.Minute, "the retention of the guard that ends it")
		require.NoError(e, c.Complete(e.ctx(), nil), "it is the same claim")
	})
}

func TestTextThatIsNoClaimIsRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onMiniredis(t), false)
	g := e.guard(GuardOptions{})
	c := e.claim(g, e.op())
	good, err := c.MarshalText()
	require.NoError(t, err)
	for name, edit := range map[string]func(m map[string]any){
		"no nonce":          func(m map[string]any) { delete(m, "nonce") },
		"no resource":       func(m map[string]any) { delete(m, "resource") },
		"no token":          func(m map[string]any) { delete(m, "token") },
		"a negative token":  func(m map[string]any) { m["token"] = "-1" },
		"a number as token": func(m map[string]any) { m["token"] = 7 },
		"no key":            func(m map[string]any) { delete(m, "key") },
		"another key":       func(m map[string]any) { m["key"] = "v9:x:00" },
		"long holder":       func(m map[string]any) { m["holder"] = string(make([]byte, maxHolder+1)) },
		"odd fingerprint":   func(m map[string]any) { m["fingerprint"] = "zz" },
	} {
		var m map[string]any
		require.NoError(t, json.Unmarshal(good, &m))
		edit(m)
		text, err := json.Marshal(m)
		require.NoError(t, err)
		_, err = g.ParseClaim(text)
		require.ErrorIs(t, err, ErrInvalid, name)
	}
	_, err = g.ParseClaim([]byte("{"))
	require.ErrorIs(t, err, ErrInvalid)
}

// Every key has a TTL, always, and the one that was asked for (C06, G04).
func TestEveryKeyExpires(t *testing.T) {
	behaviour(t, func(e *env) {
		g := e.guard(GuardOptions{LeaseTTL: time.Minute, Retention: time.Hour, Wait: time.Minute})
		op := e.op()
		n := e.store.names.resource(op.resource())
		within := func(name string, most time.Duration) {
			e.Helper()
			d := e.ttl(name)
			require.Greater(e, d, most-30*time.Second, name)
			require.LessOrEqual(e, d, most, name)
		}
		c := e.claim(g, op)
		within(n.lease(), time.Minute)
		within(n.token(), time.Hour)
		within(e.record(op), time.Hour+time.Minute)

		waiting := e.parked(g, op)
		keys := e.stored()
		require.Len(e, keys, 6)
		for _, key := range keys {
			require.Positive(e, e.ttl(key), key)
		}
		require.NoError(e, c.renew(e.ctx(), "extend", 10*time.Minute))
		within(n.lease(), 10*time.Minute)
		within(e.record(op), time.Hour+10*time.Minute)

		require.NoError(e, c.Complete(e.ctx(), []byte("m")))
		require.NoError(e, <-waiting)
		within(e.record(op), time.Hour)
		require.ElementsMatch(e, []string{n.token(), e.record(op)}, e.stored(), "a finished operation leaves two keys")

		plain := e.op()
		p := e.begin(plain, RecordOptions{TTL: 10 * time.Minute, Retention: time.Minute}).Claim
		within(e.record(plain), 10*time.Minute)
		require.NoError(e, p.Fail(e.ctx(), nil))
		within(e.record(plain), time.Minute)
	})
}

// The claim of a record without a lease has nothing to renew, and no token to carry.
func TestKeepOfARecordWithoutLease(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onMiniredis(t), false)
	c := e.begin(e.op(), RecordOptions{}).Claim
	held, stop := c.Keep(e.ctx())
	_, err := fence.FromContext(held)
	require.ErrorIs(t, err, fence.ErrNoToken)
	require.NoError(t, held.Err())
	stop()
	require.ErrorIs(t, held.Err(), context.Canceled)
	require.ErrorIs(t, c.Suspend(e.ctx(), time.Hour), fence.ErrLeaseLost)
	require.NoError(t, c.Complete(e.ctx(), nil))
}
