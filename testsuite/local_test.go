package testsuite_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/interceptor"
	sdktest "go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/testsuite"
)

type parcel struct{ ID string }

// careless fails at first, and changes what its argument points to.
type careless struct{ runs int }

func (c *careless) Pay(_ context.Context, p *parcel) (string, error) {
	c.runs++
	p.ID = "changed"
	if c.runs == 1 {
		return "", errors.New("not yet")
	}
	return "paid", nil
}

// All deliveries of a local call are that call, although its body changes what its argument
// points to; two calls of equal input are two.
func TestLocalCallsInTheKit(t *testing.T) {
	t.Parallel()
	for _, p := range []interceptor.Policy{{}, {Scope: interceptor.ScopeRun}, {Scope: interceptor.ScopeNamespace,
		Key: interceptor.KeyFrom(func(o *parcel) any { return o.ID })}} {
		t.Run(p.Scope.String(), func(t *testing.T) {
			t.Parallel()
			c := &careless{}
			kit := testsuite.New(t, testsuite.Options{Guards: []interceptor.Guard{interceptor.For(c.Pay, p)}})
			first := kit.Call(c.Pay, &parcel{"A1"}).Local().Execute()
			require.Error(t, first.Err())
			second := first.NextAttempt()
			testsuite.RequireExecuted(t, second)
			require.Equal(t, first.Key(), second.Key())
			for _, again := range []*testsuite.Run{second.NextAttempt(), second.Duplicate(), second.AfterReset()} {
				testsuite.RequireReplayed(t, again)
			}
			require.Equal(t, 2, c.runs)
			kit.Call(c.Pay, &parcel{"A1"}).Local().Execute()
			want := 3
			if p.Scope == interceptor.ScopeNamespace {
				want = 2
			}
			require.Equal(t, want, c.runs, "another call")
		})
	}
}

// A local call and a regular one share a business key.
func TestLocalAndRegularCallsInTheKit(t *testing.T) {
	t.Parallel()
	kit, c := newCounter(t, interceptor.Policy{Scope: interceptor.ScopeNamespace})
	kit.Execute(c.Count, "jo")
	testsuite.RequireReplayed(t, kit.Call(c.Count, "jo").Local().Execute())
	require.EqualValues(t, 1, c.runs.Load())
}

// Without the kit nothing says which local call it is, and the error says what does.
func TestALocalCallWithoutTheKit(t *testing.T) {
	t.Parallel()
	c := &counter{}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	guard, err := interceptor.New(interceptor.Options{Redis: rdb, Guards: []interceptor.Guard{interceptor.For(c.Count, interceptor.Policy{})}})
	require.NoError(t, err)
	var suite sdktest.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.SetWorkerOptions(worker.Options{Interceptors: []sdk.WorkerInterceptor{guard}})
	env.RegisterActivity(c.Count)
	_, err = env.ExecuteLocalActivity(c.Count, "jo")
	require.ErrorContains(t, err, interceptor.TypeKeyError)
	require.ErrorContains(t, err, "testsuite.New")
	require.Zero(t, c.runs.Load())
}
