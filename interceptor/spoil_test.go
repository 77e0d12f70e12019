package interceptor_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
)

// workTwice runs a body, and then a replay of it.
func workTwice(e *env) {
	e.Helper()
	var runs atomic.Int64
	e.worker(named("work", func(context.Context, string) (string, error) {
		runs.Add(1)
		return "done", nil
	}))
	for range 2 {
		out, err := e.run(once("work", "x"))
		require.NoError(e, err)
		require.Equal(e, "done", out)
	}
	require.EqualValues(e, 1, runs.Load())
}

func business() interceptor.Guard {
	return interceptor.For("work", interceptor.Policy{LeaseTTL: forever, Scope: interceptor.ScopeNamespace})
}

func TestPanickingMetricsBreakNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t, business())
	m := e.metered()
	m.spoil = true
	workTwice(e)
	require.Zero(t, m.count(interceptor.MetricCalls))
}

type spoiltLog struct{ *lines }

func (l spoiltLog) spoil(msg string) {
	if strings.HasPrefix(msg, "fencekit:") {
		panic("spoilt log")
	}
}

func (l spoiltLog) Debug(msg string, f ...any) { l.spoil(msg); l.lines.Debug(msg, f...) }
func (l spoiltLog) Info(msg string, f ...any)  { l.spoil(msg); l.lines.Info(msg, f...) }
func (l spoiltLog) Warn(msg string, f ...any)  { l.spoil(msg); l.lines.Warn(msg, f...) }
func (l spoiltLog) Error(msg string, f ...any) { l.spoil(msg); l.lines.Error(msg, f...) }

func TestPanickingLoggerBreaksNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t, business())
	s, err := sharedTemporal()
	require.NoError(t, err)
	e.client = s.ClientForTest(t, func(o *client.Options) { o.Logger = spoiltLog{e.logs} })
	workTwice(e)
}

type spoiltObserver struct{}

func (spoiltObserver) Observe(context.Context, primitives.Event) { panic("spoilt observer") }

func TestPanickingObserverBreaksNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t, business())
	e.opts.Observer = spoiltObserver{}
	workTwice(e)
}

// spoiltHook is a hook of the Redis client that panics while it is on.
type spoiltHook struct {
	on      atomic.Bool
	panics  atomic.Int64
	renewal atomic.Int64
}

func (h *spoiltHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *spoiltHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.spoil(&h.panics)
		return next(ctx, cmd)
	}
}

func (h *spoiltHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.spoil(&h.renewal)
		return next(ctx, cmds)
	}
}

func (h *spoiltHook) spoil(n *atomic.Int64) {
	if h.on.Load() {
		n.Add(1)
		panic("spoilt hook")
	}
}

// A hook that panics where the kit renews, in a goroutine of its own, must not end the
// process; where a call begins, Redis is unavailable.
func TestPanickingRedisHookBreaksNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever, RenewEvery: 20 * time.Millisecond}))
	hook := &spoiltHook{}
	rdb := redis.NewClient(e.rdb.Options())
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(hook)
	e.opts.Redis, e.opts.Store.Timeout = rdb, time.Second
	s := newStage(e, "work")
	e.worker(s.register)

	hook.on.Store(true)
	_, err := e.run(once("work", "x"))
	require.Equal(t, interceptor.TypeUnavailable, failure(t, err).Type())
	require.Positive(t, hook.panics.Load())
	s.over()

	hook.on.Store(false)
	run := e.start(staged("work", "y", forever))
	r := s.next()
	hook.on.Store(true)
	eventually(t, "renewals that panic", func() bool { return hook.renewal.Load() > 3 })
	hook.on.Store(false)
	require.NoError(t, r.ctx.Err())
	r.give("done")
	require.NoError(t, run.Get(e.ctx(), nil))
}
