package primitives

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// plant puts something under a name that fencekit did not write.
type plant struct {
	what string
	do   func(e *env, name string) error
}

func text(value string) func(*env, string) error {
	return func(e *env, name string) error { return e.rdb.Set(e.ctx(), name, value, time.Hour).Err() }
}

// hash changes fields of what is there, or of a well-formed record or lease.
func hash(fields ...any) func(*env, string) error {
	return func(e *env, name string) error {
		if e.rdb.Exists(e.ctx(), name).Val() == 0 {
			whole := []any{"nonce", "n", "token", padded(7), "exec", "", "order", "", "holder", "h", "since", "1",
				"state", "running", "fp", "", "began", "1", "how", "begun", "takeovers", "0", "once", "0"}
			if err := e.rdb.HSet(e.ctx(), name, whole...).Err(); err != nil {
				return err
			}
		}
		if err := e.rdb.HSet(e.ctx(), name, fields...).Err(); err != nil {
			return err
		}
		return e.rdb.PExpire(e.ctx(), name, time.Hour).Err()
	}
}

func endless(plant func(*env, string) error) func(*env, string) error {
	return func(e *env, name string) error {
		if err := plant(e, name); err != nil {
			return err
		}
		return e.rdb.Persist(e.ctx(), name).Err()
	}
}

var (
	foreignLeases = []plant{
		{"a string", text("x")}, {"a list", listed}, {"without a nonce", hash("nonce", "")},
		{"without an expiry", endless(hash("nonce", "n"))},
		{"with a short token", hash("token", "12")}, {"with a token of letters", hash("token", "00000000000000000ab")},
		{"without a token", hash("token", "")}, {"with a strange time", hash("since", "1e3")},
	}
	foreignTokens = []plant{
		{"a hash", hash("nonce", "n")}, {"a list", listed}, {"a number", text("12")}, {"20 digits", text("00000000000000000012")},
		{"a sign", text("-000000000000000012")}, {"empty", text("")},
	}
	foreignRecords = []plant{
		{"a string", text("x")}, {"a list", listed}, {"without a nonce", hash("nonce", "")},
		{"without an expiry", endless(hash("nonce", "n"))}, {"in a strange state", hash("state", "sleeping")},
		{"with a malformed token", hash("token", "12")},
		{"with no takeovers", hash("takeovers", "")}, {"with nan takeovers", hash("takeovers", "nan")},
		{"with negative takeovers", hash("takeovers", "-1")}, {"with a huge start", hash("began", "99999999999999999999")},
		{"done without a memo", hash("state", "done")}, {"failed without a memo", hash("state", "failed")},
		{"done with half a size", hash("state", "done", "size", "12")},
		{"done with a strange size", hash("state", "done", "size", "x", "limit", "10")},
	}
)

func listed(e *env, name string) error { return e.rdb.RPush(e.ctx(), name, "x").Err() }

func corrupt(t testing.TB, err error, name string) {
	t.Helper()
	var bad *CorruptError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, name, bad.Name)
	require.ErrorIs(t, err, ErrCorrupt)
}

// foreign runs test once for each plant, on a resource of its own.
func foreign(t *testing.T, plants []plant, test func(e *env, resource string, put func(name string))) {
	behaviour(t, func(e *env) {
		for _, p := range plants {
			e.Run(p.what, func(t *testing.T) {
				sub := *e
				sub.T = t
				test(&sub, p.what, func(name string) { require.NoError(t, p.do(&sub, name)) })
			})
		}
	})
}

func TestForeignLeaseIsNamedAndNeverGranted(t *testing.T) {
	foreign(t, foreignLeases, func(e *env, resource string, put func(string)) {
		name := e.store.names.resource(resource).lease()
		put(name)
		_, err := e.store.TryAcquire(e.ctx(), resource, LeaseOptions{})
		corrupt(e, err, name)
		_, err = e.store.Acquire(e.ctx(), resource, LeaseOptions{})
		corrupt(e, err, name)
		_, err = e.guard(GuardOptions{FailOpen: true}).Do(e.ctx(), Op{Key: e.key(), Resource: resource},
			func(context.Context) ([]byte, error) { panic("it ran") })
		corrupt(e, err, name)
		_, err = e.store.Inspect(e.ctx(), resource)
		corrupt(e, err, name)
	})
}

// A holder whose lease was overwritten cannot go on; a result that it has is stored all
// the same, because the record is still its own.
func TestForeignLeaseUnderAHolder(t *testing.T) {
	foreign(t, foreignLeases, func(e *env, resource string, put func(string)) {
		name := e.store.names.resource(resource).lease()
		claim := func(key Key) *Claim {
			require.NoError(e, e.rdb.Del(e.ctx(), name).Err())
			start, err := e.guard(GuardOptions{}).Begin(e.ctx(), Op{Key: key, Resource: resource})
			require.NoError(e, err)
			require.NoError(e, e.rdb.Del(e.ctx(), name).Err())
			put(name)
			return start.Claim
		}
		done, aborted := e.key(), e.key()
		corrupt(e, claim(e.key()).renew(e.ctx(), "renew", time.Minute), name)
		corrupt(e, claim(e.key()).Suspend(e.ctx(), time.Minute), name)
		require.NoError(e, claim(done).Complete(e.ctx(), []byte("memo")))
		require.NoError(e, claim(aborted).Abort(e.ctx()))

		require.NoError(e, e.rdb.Del(e.ctx(), name).Err())
		memo, err := e.store.Result(e.ctx(), Op{Key: done, Resource: resource})
		require.NoError(e, err)
		require.Equal(e, "memo", string(memo))
		l := e.hold(resource)
		require.NoError(e, e.rdb.Del(e.ctx(), name).Err())
		put(name)
		corrupt(e, l.Extend(e.ctx(), 0), name)
		corrupt(e, l.Release(e.ctx()), name)
	})
}

func TestForeignTokenIsNamedAndNothingIsGranted(t *testing.T) {
	foreign(t, foreignTokens, func(e *env, resource string, put func(string)) {
		n := e.store.names.resource(resource)
		put(n.token())
		_, err := e.store.TryAcquire(e.ctx(), resource, LeaseOptions{})
		corrupt(e, err, n.token())
		_, err = e.guard(GuardOptions{}).Begin(e.ctx(), Op{Key: e.key(), Resource: resource})
		corrupt(e, err, n.token())
		_, err = e.store.Inspect(e.ctx(), resource)
		corrupt(e, err, n.token())
		_, err = e.store.Raise(e.ctx(), resource, 1)
		corrupt(e, err, n.token())
		require.Zero(e, e.rdb.Exists(e.ctx(), n.lease()).Val())
	})
}

func TestForeignTokenUnderAHolder(t *testing.T) {
	foreign(t, foreignTokens, func(e *env, resource string, put func(string)) {
		n := e.store.names.resource(resource)
		guard, key := e.guard(GuardOptions{}), e.key()
		start, err := guard.Begin(e.ctx(), Op{Key: key, Resource: resource})
		require.NoError(e, err)
		require.NoError(e, e.rdb.Del(e.ctx(), n.token()).Err())
		put(n.token())
		require.NoError(e, start.Claim.renew(e.ctx(), "renew", time.Minute))
		info := LeaseInfo{Held: true, name: n.lease(), nonce: start.Claim.nonce}
		_, err = e.store.Free(e.ctx(), info)
		corrupt(e, err, n.token())
		require.NoError(e, start.Claim.Complete(e.ctx(), []byte("memo")))
		require.Zero(e, e.rdb.Exists(e.ctx(), n.lease()).Val())
	})
}

// A token that has lost its expiry is believed, and gets one with the next grant.
func TestTokenWithoutExpiryIsMended(t *testing.T) {
	behaviour(t, func(e *env) {
		name := e.store.names.resource("r").token()
		l := e.hold("r")
		require.NoError(e, l.Release(e.ctx()))
		require.NoError(e, e.rdb.Persist(e.ctx(), name).Err())
		require.Greater(e, e.hold("r").Token().Value, l.Token().Value)
		require.Positive(e, e.rdb.PTTL(e.ctx(), name).Val())
	})
}

func TestForeignRecordIsNamedAndNeverRun(t *testing.T) {
	foreign(t, foreignRecords, func(e *env, resource string, put func(string)) {
		op := Op{Key: e.key(), Resource: resource}
		n := e.store.names.resource(resource)
		name := n.record(op.Key)
		put(name)
		_, err := e.guard(GuardOptions{FailOpen: true}).Do(e.ctx(), op, func(context.Context) ([]byte, error) { panic("it ran") })
		corrupt(e, err, name)
		_, err = e.store.TryBegin(e.ctx(), op, RecordOptions{})
		corrupt(e, err, name)
		_, err = e.store.TryBeginOrReclaim(e.ctx(), op, RecordOptions{})
		corrupt(e, err, name)
		_, err = e.store.Status(e.ctx(), op)
		corrupt(e, err, name)
		_, err = e.store.Result(e.ctx(), op)
		corrupt(e, err, name)
		require.Zero(e, e.rdb.Exists(e.ctx(), n.lease()).Val())
	})
}

// A claim whose record was overwritten can neither complete nor abort, and the lease
// ends with its TTL.
func TestForeignRecordUnderAClaim(t *testing.T) {
	foreign(t, foreignRecords, func(e *env, resource string, put func(string)) {
		op := Op{Key: e.key(), Resource: resource}
		name := e.store.names.resource(resource).record(op.Key)
		start, err := e.guard(GuardOptions{}).Begin(e.ctx(), op)
		require.NoError(e, err)
		require.NoError(e, e.rdb.Del(e.ctx(), name).Err())
		put(name)
		err = start.Claim.Complete(e.ctx(), []byte("memo"))
		if !errors.Is(err, ErrSuperseded) { // the record has a nonce, and it is another
			corrupt(e, err, name)
		}
		if err := start.Claim.Abort(e.ctx()); err != nil {
			corrupt(e, err, name)
		}
		_, err = e.store.Status(e.ctx(), op)
		corrupt(e, err, name)
	})
}
