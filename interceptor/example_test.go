package interceptor_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

type Order struct {
	ID      string
	Account string
	Cents   int64
}

// Charge writes under the token that the guard has given it.
func Charge(ctx context.Context, o Order) (string, error) {
	token, err := fence.FromContext(ctx)
	if err != nil {
		return "", err
	}
	fmt.Println("charging", o.Cents, "cents to", token.Resource)
	return "receipt for " + o.ID, nil
}

// One charge for an order, whichever workflow asks for it, and one at a time for an
// account.
func Example() {
	m, err := miniredis.Run() // in production: a Redis server
	if err != nil {
		panic(err)
	}
	defer m.Close()
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr(), ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()

	kit, err := interceptor.New(interceptor.Options{
		Redis: rdb,
		Guards: []interceptor.Guard{
			interceptor.For(Charge, interceptor.Policy{
				Scope:    interceptor.ScopeNamespace,
				Key:      interceptor.KeyFrom(func(o Order) any { return o.ID }),
				Resource: interceptor.ResourceFrom(func(o Order) string { return "account/" + o.Account }),
			}),
		},
	})
	if err != nil {
		panic(err)
	}

	// In production: worker.New(client, "queue", worker.Options{Interceptors: ...}).
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.SetWorkerOptions(worker.Options{Interceptors: []sdk.WorkerInterceptor{kit}})
	env.RegisterActivity(Charge)
	for range 2 {
		value, err := env.ExecuteActivity(Charge, Order{ID: "o-1", Account: "42", Cents: 950})
		if err != nil {
			panic(err)
		}
		var receipt string
		if err := value.Get(&receipt); err != nil {
			panic(err)
		}
		fmt.Println(receipt)
	}
	// Output:
	// charging 950 cents to account/42
	// receipt for o-1
	// receipt for o-1
}
