package interceptor_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
)

// What a guard adds to a call of an activity, the parts of go-redis and of the primitives
// included: some 123 of a Guard.Do. The rest is the key, the memo, the name of the holder,
// metrics and log lines. Measured are 224, and 139 for a replay, which runs no body and
// one script; with the race detector 261 and 180, and a fifth is to spare.
func TestAGuardedActivityAllocatesNoMoreThanStated(t *testing.T) { //nolint:paralleltest // counts allocations
	server, err := sharedRedis()
	require.NoError(t, err)
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled, o.ReadTimeout = true, stall })
	kit, err := interceptor.New(interceptor.Options{
		Redis: rdb, Store: primitives.Options{Prefix: fmt.Sprintf("allocations-%d-%d", os.Getpid(), queues.Add(1)), Timeout: stall},
		Guards: []interceptor.Guard{
			interceptor.For("guarded", interceptor.Policy{}), // the environment stamps each call with a scheduled time of its own
			interceptor.For("replayed", interceptor.Policy{Scope: interceptor.ScopeNamespace}),
		},
	})
	require.NoError(t, err)
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.SetWorkerOptions(worker.Options{Interceptors: []sdk.WorkerInterceptor{kit}})
	runs := 0
	for _, name := range []string{"plain", "guarded", "replayed"} {
		env.RegisterActivityWithOptions(func(_ context.Context, in string) (string, error) {
			runs++
			return in, nil
		}, activity.RegisterOptions{Name: name})
	}
	const calls = 300
	allocations := func(name string, wantRuns int) float64 {
		call := func() {
			if _, err := env.ExecuteActivity(name, "input"); err != nil {
				t.Error(err)
			}
		}
		call() // connects, and makes the scripts known; or is what the others replay
		runs = 0
		n := testing.AllocsPerRun(calls, call)
		require.Equal(t, wantRuns, runs, name)
		return n
	}
	all := calls + 1 // AllocsPerRun calls once more
	plain := allocations("plain", all)
	guarded, replayed := allocations("guarded", all)-plain, allocations("replayed", 0)-plain
	t.Logf("plain %.0f; a guard adds %.0f, and %.0f to a replay", plain, guarded, replayed)
	require.LessOrEqual(t, guarded, 312.0)
	require.LessOrEqual(t, replayed, 216.0)
}
