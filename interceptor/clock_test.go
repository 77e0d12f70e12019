package interceptor_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// B18: the clock of Redis jumps by a day while the body runs. Its lease is over for
// Redis, so somebody else begins; the token and the renewal tell the first one.
func TestClockOfRedisJumps(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr(), ContextTimeoutEnabled: true, ReadTimeout: stall})
	t.Cleanup(func() { _ = rdb.Close() })
	e := &env{TB: t, logs: &lines{}, opts: interceptor.Options{
		Redis: rdb, Store: primitives.Options{Prefix: "clock", Timeout: stall},
		Guards: []interceptor.Guard{interceptor.For("sign", interceptor.Policy{
			LeaseTTL: forever, RenewEvery: 100 * time.Millisecond, NoTakeover: true, Scope: interceptor.ScopeNamespace})},
	}}
	db, s := e.bank(), newStage(e, "sign")
	execute := func(into chan<- error) {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		env.SetWorkerOptions(worker.Options{Interceptors: []sdk.WorkerInterceptor{e.interceptor()}})
		env.RegisterActivityWithOptions(s.body, registerAs("sign"))
		_, err := env.ExecuteActivity("sign", "x")
		into <- err
	}
	a, b := make(chan error, 1), make(chan error, 1)
	go execute(a)
	first := s.next()
	m.SetTime(time.Now().Add(24 * time.Hour))
	m.FastForward(24 * time.Hour)
	go execute(b)
	second := s.next()

	require.Greater(t, second.token(), first.token())
	require.NoError(t, db.sign(second.ctx, "second"))
	require.ErrorIs(t, first.ends(t), fence.ErrLeaseLost)
	require.ErrorIs(t, db.sign(first.zombie(), "first"), fence.ErrStale)
	first.give("first")
	require.Error(t, await(t, a, "the first"))
	second.give("second")
	require.NoError(t, await(t, b, "the second"))
}
