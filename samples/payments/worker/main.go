// Command worker is the worker of the sample payments.
package main

import (
	"context"
	"flag"
	"net/http/httptest"
	"os"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
	"github.com/fencekit/fencekit-go/samples/payments"
)

func main() {
	provider := flag.String("provider", "", "URL of the provider; default: one inside this process")
	crash := flag.Bool("crash", false, "fail as hard as a worker can when a charge was made")
	flag.Parse()
	stack.Work(func(_ context.Context, s *stack.Stack) (worker.Worker, error) {
		acts := &payments.Activities{Provider: payments.Client{URL: *provider}}
		if *provider == "" {
			acts.Provider.URL = httptest.NewServer(&payments.Provider{}).URL
		}
		if *crash {
			acts.AfterCharge = func() {
				if *provider != "" {
					os.Exit(1)
				}
				panic("crashed, after the charge") // the provider is to survive
			}
		}
		kit, err := interceptor.New(interceptor.Options{
			Redis:  s.Redis,
			Store:  primitives.Options{Prefix: "payments"},
			Guards: payments.Guards(acts),
		})
		if err != nil {
			return nil, err
		}
		c, err := s.Dial(func(o *client.Options) { o.Plugins = []client.Plugin{kit.Plugin()} })
		if err != nil {
			return nil, err
		}
		w := worker.New(c, payments.TaskQueue, worker.Options{})
		payments.Register(w, acts)
		return w, nil
	})
}
