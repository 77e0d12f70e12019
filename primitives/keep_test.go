package primitives

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// lossBy waits until the lease is lost and wants to be told no later than its deadline,
// give or take a loaded machine.
func lossBy(t testing.TB, held context.Context, l *Lease) *LostError {
	t.Helper()
	<-held.Done()
	late := time.Since(l.Deadline())
	var lost *LostError
	require.ErrorAs(t, context.Cause(held), &lost)
	require.ErrorIs(t, context.Cause(held), fence.ErrLeaseLost)
	require.Less(t, late, time.Minute)
	return lost
}

func TestKeepCarriesTheTokenAndStops(t *testing.T) {
	behaviour(t, func(e *env) {
		l := e.hold("r")
		held, stop := l.Keep(e.ctx())
		token, err := fence.ForResource(held, "r")
		require.NoError(e, err)
		require.Equal(e, l.Token(), token)
		stop()
		stop()
		require.Equal(e, context.Canceled, context.Cause(held))
		require.NoError(e, l.Release(e.ctx()))
	})
}

// brisk is a lease that outlives every stall of a loaded machine, and is renewed often.
func (e *env) brisk(resource string) *Lease {
	e.Helper()
	l := e.hold(resource)
	l.every = 200 * time.Millisecond
	return l
}

// A kept lease's end moves on, here and in Redis.
func TestKeepRenews(t *testing.T) {
	behaviour(t, func(e *env) {
		l := e.brisk("r")
		first := l.Deadline()
		name := e.store.names.resource("r").lease()
		require.NoError(e, e.rdb.PExpire(e.ctx(), name, 10*time.Second).Err())
		held, stop := l.Keep(e.ctx())
		defer stop()
		eventually(e, "two renewals", func() bool { return l.Deadline().After(first.Add(250 * time.Millisecond)) })
		require.NoError(e, context.Cause(held))
		require.Greater(e, e.rdb.PTTL(e.ctx(), name).Val(), 10*time.Second)
	})
}

// counter counts what a client sends, in commands and in round trips, and may fail it.
type counter struct {
	commands, pipelines, scripts atomic.Int64
	broken                       atomic.Bool
}

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.commands.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.pipelines.Add(1)
		c.scripts.Add(int64(len(cmds)))
		if c.broken.Load() {
			for _, cmd := range cmds {
				cmd.SetErr(context.DeadlineExceeded)
			}
			return context.DeadlineExceeded
		}
		return next(ctx, cmds)
	}
}

func (e *env) count() *counter {
	c := &counter{}
	e.store.client.(interface{ AddHook(redis.Hook) }).AddHook(c)
	return c
}

// Renewals end with stop, and with the loss of the lease; then the timer is stopped too.
func TestRenewalsEndWithTheBody(t *testing.T) {
	behaviour(t, func(e *env) {
		c := e.count()
		idle := func() bool {
			e.store.keeper.mu.Lock()
			defer e.store.keeper.mu.Unlock()
			return e.store.keeper.next.IsZero() && len(e.store.keeper.all) == 0
		}
		stopped, lost := e.brisk("stopped"), e.brisk("lost")
		heldLost, stopLost := lost.Keep(e.ctx())
		defer stopLost()
		_, stop := stopped.Keep(e.ctx())
		eventually(e, "a renewal", func() bool { return c.pipelines.Load() > 0 })
		stop()
		e.expire("lost")
		require.Equal(e, "renew", lossBy(e, heldLost, lost).Step)
		eventually(e, "the keeper is idle", idle)
		require.NoError(e, stopped.Release(e.ctx()))

		sent := c.pipelines.Load()
		held, stopAgain := e.brisk("again").Keep(e.ctx())
		eventually(e, "renewals start again", func() bool { return c.pipelines.Load() > sent })
		require.NoError(e, context.Cause(held))
		stopAgain()
		eventually(e, "the keeper is idle", idle)
	})
}

// Many leases of one store share their round trips, also on a cluster.
func TestManyLeasesAreRenewedInFewRoundTrips(t *testing.T) {
	timed(t, func(e *env) {
		const many = 100
		c := e.count()
		var leases []*Lease
		for i := range many {
			leases = append(leases, e.brisk(fmt.Sprint("r", i)))
		}
		first := leases[many-1].Deadline()
		for _, l := range leases {
			_, stop := l.Keep(e.ctx())
			defer stop()
		}
		eventually(e, "all are renewed", func() bool {
			for _, l := range leases {
				if !l.Deadline().After(first) {
					return false
				}
			}
			return true
		})
		require.GreaterOrEqual(e, c.scripts.Load(), int64(many))
		require.Less(e, c.pipelines.Load(), c.scripts.Load()/4, "%d round trips for %d renewals", c.pipelines.Load(), c.scripts.Load())
	})
}

// Renewals survive a script cache that was emptied.
func TestRenewalsSurviveAnEmptyScriptCache(t *testing.T) {
	behaviour(t, func(e *env) {
		c := e.count()
		l := e.brisk("r")
		first := l.Deadline()
		e.store.scripts = unloaded(e)
		held, stop := l.Keep(e.ctx())
		defer stop()
		eventually(e, "a renewal", func() bool { return l.Deadline().After(first) })
		require.NoError(e, context.Cause(held))
		require.GreaterOrEqual(e, c.pipelines.Load(), int64(2), "the digest was known")
	})
}

// unloaded are scripts that no server has seen: what SCRIPT FLUSH leads to, without
// disturbing the tests that share the server.
func unloaded(e *env) *scripts {
	own := *e.store.scripts
	own.renew = newScript("renew", "-- "+newNonce()+"\n"+own.renew.src)
	return &own
}

// B08: connections that are killed cost a retry, not the lease.
func TestRenewalsSurviveKilledConnections(t *testing.T) {
	t.Parallel()
	server := devstack.RedisForTest(t, devstack.RedisConfig{Own: true})
	e := newEnv(t, server.Client(func(o *redis.Options) { o.MaxRetries = -1 }), true)
	l := e.brisk("r")
	held, stop := l.Keep(e.ctx())
	defer stop()
	admin := server.Client()
	for range 3 {
		before := l.Deadline()
		require.NoError(t, admin.ClientKillByFilter(e.ctx(), "TYPE", "normal", "SKIPME", "yes").Err())
		eventually(t, "a renewal after the kill", func() bool { return l.Deadline().After(before) })
	}
	require.NoError(t, context.Cause(held))
}

// B08: errors without an answer are retried until the deadline, and then it is lost.
func TestRenewalsAreRetriedUntilTheDeadline(t *testing.T) {
	timed(t, func(e *env) {
		c := e.count()
		l, err := e.store.TryAcquire(e.ctx(), "r", LeaseOptions{TTL: 8 * time.Second})
		require.NoError(e, err)
		l.every = 500 * time.Millisecond
		c.broken.Store(true)
		first := l.Deadline()
		held, stop := l.Keep(e.ctx())
		defer stop()
		eventually(e, "it is tried again", func() bool { return c.pipelines.Load() >= 2 })
		c.broken.Store(false)
		eventually(e, "a renewal", func() bool { return l.Deadline().After(first) })
		c.broken.Store(true)
		require.Equal(e, "deadline", lossBy(e, held, l).Step)
		require.False(e, time.Now().Before(l.Deadline()), "it was given up too early")
	})
}

// B09: Redis hangs for longer than the lease, and so does the client's command; the
// holder is told by its own clock.
func TestTheDeadlineHoldsWhileRedisHangs(t *testing.T) {
	t.Parallel()
	for _, contextTimeouts := range []bool{true, false} {
		t.Run(fmt.Sprint("ContextTimeoutEnabled ", contextTimeouts), func(t *testing.T) {
			t.Parallel()
			server := devstack.RedisForTest(t, devstack.RedisConfig{Own: true})
			e := newEnv(t, server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = contextTimeouts }), true)
			l, err := e.store.TryAcquire(e.ctx(), "r", LeaseOptions{TTL: 5 * time.Second})
			require.NoError(t, err)
			require.NoError(t, e.rdb.ClientPause(e.ctx(), 10*time.Minute).Err())
			held, stop := l.Keep(e.ctx())
			defer stop()
			require.Equal(t, "deadline", lossBy(t, held, l).Step)
			impatient := server.Client(func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = 50*time.Millisecond, -1 })
			require.Error(t, impatient.Ping(e.ctx()).Err(), "Redis answers: the test proves nothing")
		})
	}
}

// F20: Redis forgets everything in mid-lease: the next renewal tells, nothing is created
// again, and a result is refused once somebody else has come.
func TestAFlushInMidLeaseIsALoss(t *testing.T) {
	t.Parallel()
	server := devstack.RedisForTest(t, devstack.RedisConfig{Own: true})
	e := newEnv(t, server.Client(), true)
	op := Op{Key: e.key(), Resource: "r"}
	guard := e.guard(GuardOptions{LeaseTTL: 2 * time.Minute, RenewEvery: 300 * time.Millisecond})
	start, err := guard.Begin(e.ctx(), op)
	require.NoError(t, err)
	held, stop := start.Claim.Keep(e.ctx())
	defer stop()
	require.NoError(t, e.rdb.FlushAll(e.ctx()).Err())
	<-held.Done()
	var lost *LostError
	require.ErrorAs(t, context.Cause(held), &lost)
	require.Equal(t, "renew", lost.Step)
	require.True(t, time.Now().Before(start.Claim.Deadline()), "only the deadline told")
	require.Empty(t, e.stored())

	next, err := guard.Begin(e.ctx(), op)
	require.NoError(t, err)
	require.Greater(t, next.Claim.Token().Value, start.Claim.Token().Value)
	require.ErrorIs(t, start.Claim.Complete(e.ctx(), []byte("old")), ErrSuperseded)
}

// A node of a cluster that hangs takes its own leases with it, and no others.
func TestAFrozenNodeDoesNotStopTheOthersRenewals(t *testing.T) {
	t.Parallel()
	cluster := started(t, func() (*devstack.Cluster, error) { return startCluster(t.Context()) })
	defer cluster.Stop() //nolint:errcheck // the test is over
	e := newEnv(t, cluster.Client(func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true }), true)
	ctx := e.ctx()
	type keptLease struct {
		*Lease
		held context.Context
	}
	byNode := map[*devstack.Redis][]keptLease{}
	var stops []context.CancelFunc
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	for i := 0; len(byNode) < 3 || i < 12; i++ {
		l, err := e.store.TryAcquire(ctx, fmt.Sprint("r", i), LeaseOptions{TTL: 10 * time.Second})
		require.NoError(t, err)
		l.every = 300 * time.Millisecond
		node, err := cluster.PrimaryOfKey(ctx, l.names.lease())
		require.NoError(t, err)
		held, stop := l.Keep(ctx)
		stops = append(stops, stop)
		byNode[node] = append(byNode[node], keptLease{l, held})
	}
	var frozen *devstack.Redis
	for node := range byNode {
		frozen = node
	}
	require.NoError(t, frozen.Freeze())
	defer frozen.Thaw() //nolint:errcheck // the test is over
	var wg sync.WaitGroup
	for _, k := range byNode[frozen] {
		wg.Go(func() { <-k.held.Done() })
	}
	wg.Wait()
	for node, leases := range byNode {
		for _, k := range leases {
			if node == frozen {
				require.Equal(t, "deadline", lossBy(t, k.held, k.Lease).Step)
			} else {
				require.NoError(t, context.Cause(k.held))
			}
		}
	}
}
