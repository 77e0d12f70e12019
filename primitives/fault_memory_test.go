package primitives

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// full makes a server refuse everything that needs memory.
func full(t *testing.T, server *devstack.Redis) {
	t.Helper()
	require.NoError(t, server.Config(t.Context(), "maxmemory", "1"))
}

// fullRedis is a server that is not full yet, and never evicts.
func fullRedis(t *testing.T) (*devstack.Redis, *env) {
	t.Helper()
	return ownRedis(t, "maxmemory-policy noeviction")
}

// size is how many keys the server has.
func (e *env) size() int64 {
	e.Helper()
	n, err := e.rdb.DBSize(e.ctx()).Result()
	require.NoError(e, err)
	return n
}

// With the memory full a new call is unavailable, and leaves nothing half done: no
// lease without a token, no record without a lease (F07).
func TestAFullMemoryRefusesNewWorkAsAWhole(t *testing.T) {
	t.Parallel()
	server, e := fullRedis(t)
	e.store.opts.Timeout = 200 * time.Millisecond
	full(t, server)
	token := fence.Token{Resource: "account", Value: 1}
	body := &counted{}
	for name, call := range map[string]func() error{
		"do": func() error { _, err := e.guard(GuardOptions{}).Do(e.ctx(), e.op(), body.body); return err },
		"do in line": func() error {
			_, err := e.guard(GuardOptions{Wait: time.Hour}).Do(e.ctx(), e.op(), body.body)
			return err
		},
		"acquire": func() error { _, err := e.store.Acquire(e.ctx(), "account", LeaseOptions{}); return err },
		"record":  func() error { _, err := e.store.TryBegin(e.ctx(), e.op(), RecordOptions{}); return err },
		"gate":    func() error { return e.gate().SetIfFresh(e.ctx(), token, "k", []byte("v"), 0) },
		"raise":   func() error { _, err := e.store.Raise(e.ctx(), "account", 1); return err },
	} {
		require.ErrorIs(t, call(), ErrUnavailable, name)
		require.Zero(t, e.size(), name)
	}
	require.Zero(t, body.runs.Load())
}

// Who is at work when the memory fills up can renew, finish and store the memo, and
// the next in line gets the lease: F07, C18. Complete and release need memory, and
// get it only because their scripts begin with a write that frees or costs nothing.
func TestAFullMemoryLetsRunningWorkFinish(t *testing.T) {
	t.Parallel()
	server, e := fullRedis(t)
	op := Op{Key: e.key(), Resource: "account"}
	g := e.guard(GuardOptions{LeaseTTL: 30 * time.Second, RenewEvery: 30 * time.Millisecond})
	waiting := make(chan error, 1)
	res, err := g.Do(e.ctx(), op, func(ctx context.Context) ([]byte, error) {
		go func() {
			lease, err := e.store.Acquire(e.ctx(), "account", LeaseOptions{})
			if err == nil {
				err = lease.Release(e.ctx())
			}
			waiting <- err
		}()
		eventually(t, "somebody waits", func() bool {
			info, err := e.store.Inspect(e.ctx(), "account")
			return err == nil && info.Waiters == 1
		})
		full(t, server)
		for range 3 { // each is set back by a renewal only
			require.NoError(t, e.rdb.PExpire(e.ctx(), e.store.names.resource("account").lease(), 10*time.Second).Err())
			eventually(t, "it is renewed", func() bool {
				info, err := e.store.Inspect(e.ctx(), "account")
				return err == nil && info.Remaining > 20*time.Second
			})
		}
		return []byte("memo"), ctx.Err()
	})
	require.NoError(t, err)
	require.True(t, res.MemoStored)
	memo, err := e.store.Result(e.ctx(), op)
	require.NoError(t, err)
	require.Equal(t, "memo", string(memo))
	require.NoError(t, <-waiting, "the next in line was handed the lease, and released it")
}

// With the memory full somebody at work is known to be at work: who asks for a turn is
// busy, and does not run beside them, under FailOpen either.
func TestAFullMemoryCostsTheTurnOnly(t *testing.T) {
	t.Parallel()
	server, e := fullRedis(t)
	g := e.guard(GuardOptions{LeaseTTL: time.Hour, FailOpen: true})
	e.claim(g, Op{Key: e.key(), Resource: "account"})
	full(t, server)
	body := &counted{}
	_, err := g.Do(e.ctx(), Op{Key: e.key(), Resource: "account", Turn: Turn{Term: time.Second, Within: 2 * time.Hour}}, body.body)
	require.ErrorIs(t, err, ErrBusy)
	require.NotErrorIs(t, err, ErrUnavailable)
	require.Zero(t, body.runs.Load())
}

// The other ways to end a run work with a full memory too.
func TestAFullMemoryLetsEveryClaimBeEnded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*env, *Claim) error{
		"abort":       func(e *env, c *Claim) error { return c.Abort(e.ctx()) },
		"abort above": func(e *env, c *Claim) error { _, err := c.AbortAbove(e.ctx(), c.Token().Value+9); return err },
		"suspend":     func(e *env, c *Claim) error { return c.Suspend(e.ctx(), time.Minute) },
		"fail":        func(e *env, c *Claim) error { return c.Fail(e.ctx(), []byte("no")) },
		"complete after a flush": func(e *env, c *Claim) error {
			require.NoError(e, e.rdb.FlushAll(e.ctx()).Err())
			return c.Complete(e.ctx(), []byte("memo"))
		},
		"complete without a lease": func(e *env, _ *Claim) error {
			require.NoError(e, e.rdb.ConfigSet(e.ctx(), "maxmemory", "0").Err())
			start, err := e.store.TryBegin(e.ctx(), e.op(), RecordOptions{})
			require.NoError(e, err)
			require.NoError(e, e.rdb.ConfigSet(e.ctx(), "maxmemory", "1").Err())
			return start.Claim.Complete(e.ctx(), []byte("memo"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, e := fullRedis(t)
			start, err := e.guard(GuardOptions{}).Begin(e.ctx(), e.op())
			require.NoError(t, err)
			full(t, server)
			require.NoError(t, end(e, start.Claim))
			e.everyKeyExpires()
		})
	}
}

// everyKeyExpires says that no key of the prefix would stay for ever.
func (e *env) everyKeyExpires() {
	e.Helper()
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		keys, next, err := e.rdb.Scan(e.ctx(), cursor, e.store.names.base+"*", 1000).Result()
		require.NoError(e, err)
		cursor = next
		left := make([]*redis.DurationCmd, len(keys))
		_, err = e.rdb.Pipelined(e.ctx(), func(p redis.Pipeliner) error {
			for i, key := range keys {
				left[i] = p.PTTL(e.ctx(), key)
			}
			return nil
		})
		require.NoError(e, err)
		for i, key := range keys {
			require.NotEqual(e, time.Duration(-1), left[i].Val(), key)
		}
	}
}
