package primitives

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// silentServer accepts connections and never says a word.
func silentServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// A server that hangs costs a call its budget and not more, with either kind of
// client; so does a pool without a free connection, and a closed client.
func TestACallReturnsWithinItsBudget(t *testing.T) {
	t.Parallel()
	servers := map[string]func(t *testing.T, o *redis.Options) redis.UniversalClient{
		"hangs from the start": func(t *testing.T, o *redis.Options) redis.UniversalClient {
			o.Addr = silentServer(t)
			return redis.NewClient(o)
		},
		"hangs as a cluster": func(t *testing.T, o *redis.Options) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{silentServer(t)}, ContextTimeoutEnabled: o.ContextTimeoutEnabled})
		},
		"hangs as a sentinel": func(t *testing.T, o *redis.Options) redis.UniversalClient {
			return redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: "m", SentinelAddrs: []string{silentServer(t)}, ContextTimeoutEnabled: o.ContextTimeoutEnabled,
				DialTimeout: time.Second, ReadTimeout: time.Second, // its Close waits for them
			})
		},
		"hangs after the handshake": func(t *testing.T, o *redis.Options) redis.UniversalClient {
			o.Addr = devstack.FakeRedisForTest(t, func(c devstack.Command) string {
				if c.Handshake() {
					return ""
				}
				return devstack.Silence
			}).Addr()
			return redis.NewClient(o)
		},
		"is not there": func(t *testing.T, o *redis.Options) redis.UniversalClient {
			proxy := devstack.ProxyForTest(t, "127.0.0.1:1")
			require.NoError(t, proxy.Refuse())
			o.Addr = proxy.Addr()
			return redis.NewClient(o)
		},
		"has no connection to spare": func(t *testing.T, o *redis.Options) redis.UniversalClient {
			server, err := sharedRedis()
			require.NoError(t, err)
			o.Addr, o.PoolSize = server.Addr(), 1
			rdb := redis.NewClient(o)
			held := rdb.Conn()
			require.NoError(t, held.Ping(t.Context()).Err())
			t.Cleanup(func() { _ = held.Close() })
			return rdb
		},
		"has a closed client": func(t *testing.T, o *redis.Options) redis.UniversalClient {
			server, err := sharedRedis()
			require.NoError(t, err)
			o.Addr = server.Addr()
			rdb := redis.NewClient(o)
			require.NoError(t, rdb.Close())
			return rdb
		},
	}
	for name, connect := range servers {
		for _, direct := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ContextTimeoutEnabled=%v", name, direct), func(t *testing.T) {
				t.Parallel()
				rdb := connect(t, &redis.Options{ContextTimeoutEnabled: direct})
				t.Cleanup(func() { _ = rdb.Close() })
				checkBudget(t, rdb)
			})
		}
	}
}

func checkBudget(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	const bound = 10 * time.Second // go-redis on its own takes 20 s
	e := newEnv(t, rdb, true)
	e.store.opts.Timeout = 60 * time.Millisecond
	body := &counted{}
	claim := e.guard(GuardOptions{}).claim(e.op())
	claim.granted(1, time.Now())
	for name, call := range map[string]func(context.Context) error{
		"do": func(ctx context.Context) error {
			_, err := e.guard(GuardOptions{Wait: time.Hour}).Do(ctx, e.op(), body.body)
			return err
		},
		"acquire":  func(ctx context.Context) error { _, err := e.store.Acquire(ctx, "r", LeaseOptions{}); return err },
		"renew":    func(ctx context.Context) error { return claim.renew(ctx, "extend", time.Minute) },
		"complete": func(ctx context.Context) error { return claim.Complete(ctx, nil) },
		"abort":    func(ctx context.Context) error { return claim.Abort(ctx) },
		"gate":     func(ctx context.Context) error { return e.gate().Advance(ctx, fence.Token{Resource: "r", Value: 1}) },
		"status":   func(ctx context.Context) error { _, err := e.store.Status(ctx, e.op()); return err },
	} {
		within(t, bound, func() { require.ErrorIs(t, call(e.ctx()), ErrUnavailable, name) })
	}
	require.Zero(t, body.runs.Load())
}

// A caller that gives up on a server that hangs is let go at once; with a client
// that is trusted with contexts, when the budget ends: go-redis honours a deadline in
// mid-command, but no cancellation.
func TestACancelledCallReturns(t *testing.T) {
	t.Parallel()
	for direct, budget := range map[bool]time.Duration{false: time.Hour, true: 200 * time.Millisecond} {
		t.Run(fmt.Sprintf("ContextTimeoutEnabled=%v", direct), func(t *testing.T) {
			t.Parallel()
			asked := make(chan struct{}, 10)
			fake := devstack.FakeRedisForTest(t, func(c devstack.Command) string {
				if c.Handshake() {
					return ""
				}
				asked <- struct{}{}
				return devstack.Silence
			})
			rdb := redis.NewClient(&redis.Options{Addr: fake.Addr(), ContextTimeoutEnabled: direct, MaxRetries: -1, ReadTimeout: time.Minute})
			t.Cleanup(func() { _ = rdb.Close() })
			store, err := New(rdb, Options{Timeout: budget})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-asked; cancel() }()
			within(t, 20*time.Second, func() {
				_, err = store.Inspect(ctx, "account")
				require.ErrorIs(t, err, context.Canceled)
			})
		})
	}
}

// A server that hangs, and wakes up after the caller has given up, may execute the
// begin then. Its lease is given back when the late reply comes, and ends with its TTL
// where the client has hung up: nobody is shut out for longer.
func TestABeginThatIsExecutedTooLateDoesNotStay(t *testing.T) {
	t.Parallel()
	for _, direct := range []bool{false, true} {
		t.Run(fmt.Sprintf("ContextTimeoutEnabled=%v", direct), func(t *testing.T) {
			t.Parallel()
			server, e := ownRedis(t)
			late := newEnv(t, server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled, o.ReadTimeout = direct, time.Minute }), true)
			late.store.opts.Prefix, late.store.names = e.store.opts.Prefix, e.store.names
			ttl := map[bool]time.Duration{false: time.Hour, true: 2 * time.Second}[direct]
			_, err := late.guard(GuardOptions{}).Do(e.ctx(), e.op(), (&counted{}).body) // connections and scripts
			require.NoError(t, err)

			late.store.opts.Timeout = 3 * time.Second // also of giving back
			require.NoError(t, server.Freeze())
			op, body := Op{Key: e.key(), Resource: "account"}, &counted{}
			_, err = late.guard(GuardOptions{LeaseTTL: ttl}).Do(e.ctx(), op, body.body)
			require.ErrorIs(t, err, ErrUnavailable)
			require.NoError(t, server.Thaw())

			eventually(t, "the late begin was executed", func() bool {
				info, err := e.store.Inspect(e.ctx(), "account")
				return err == nil && info.Last != 0
			})
			_, err = e.guard(GuardOptions{Wait: patience}).Do(e.ctx(), op, body.body)
			require.NoError(t, err)
			require.EqualValues(t, 1, body.runs.Load())
		})
	}
}

// A connection whose other end has gone silently takes half of the budget at most: the
// other half is for one that has not.
func TestOneDeadConnectionDoesNotUseUpTheBudget(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, Options{Timeout: 10 * time.Second})
	hit := r.proxy.Add(devstack.Rule{Match: devstack.Named("evalsha"), Nth: 1, Fault: devstack.DelayReply(time.Minute)})
	lease, err := r.far.TryAcquire(r.ctx(), "r", LeaseOptions{})
	require.NoError(t, err)
	<-hit.Struck()
	require.True(t, lease.Token().Valid())
}

// FailOpen does not run a body beside a holder that it has been told of: Redis went away
// while this caller waited for it.
func TestFailOpenDoesNotRunBesideAKnownHolder(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, Options{Timeout: 5 * time.Second})
	op, body := r.op(), &counted{}
	r.claim(r.guard(GuardOptions{}), op)
	guard, err := NewGuard(r.far, GuardOptions{FailOpen: true, Wait: time.Minute})
	require.NoError(t, err)
	answer := make(chan error, 1)
	go func() {
		_, err := guard.Do(r.ctx(), op, body.body)
		answer <- err
	}()
	eventually(t, "it waits", func() bool { return r.waiters(op.resource()) == 1 })
	require.NoError(t, r.proxy.Refuse())
	r.proxy.Reset()
	err = <-answer
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, ErrBusy)
	require.Zero(t, body.runs.Load())
}
