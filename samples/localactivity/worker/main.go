// Command worker is the worker of the sample localactivity.
package main

import (
	"context"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
	"github.com/fencekit/fencekit-go/samples/localactivity"
)

func main() {
	stack.Work(func(_ context.Context, s *stack.Stack) (worker.Worker, error) {
		acts := &localactivity.Activities{Redis: s.Redis, Counter: "localactivity-counter"}
		kit, err := interceptor.New(interceptor.Options{
			Redis:  s.Redis,
			Store:  primitives.Options{Prefix: "localactivity"},
			Guards: localactivity.Guards(acts),
		})
		if err != nil {
			return nil, err
		}
		c, err := s.Dial(func(o *client.Options) { o.Plugins = []client.Plugin{kit.Plugin()} })
		if err != nil {
			return nil, err
		}
		w := worker.New(c, localactivity.TaskQueue, worker.Options{})
		localactivity.Register(w, acts)
		return w, nil
	})
}
