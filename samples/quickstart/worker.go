package main

import (
	"context"
	"os"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
	"github.com/fencekit/fencekit-go/samples/internal/timeline"
)

// runWorker is a worker's process. The queue is the run's own: another demo on the same
// servers must not get its tasks.
func runWorker(ctx context.Context, name, queue string, unguarded bool) error {
	s, err := stack.Connect(ctx, stack.Config{Temporal: true, Postgres: true})
	if err != nil {
		return err
	}
	defer s.Close()
	stage := newStage(name, os.Stdin, os.Stdout)
	acts := &Activities{Worker: name, Books: plainBooks{s.Postgres}, Stage: stage}
	plugins := []client.Plugin{}
	if !unguarded {
		fenced := fencedBooks{plainBooks{s.Postgres}}
		acts.Books = fenced
		kit, err := interceptor.New(interceptor.Options{
			Redis:    s.Redis,
			Store:    primitives.Options{Prefix: prefix},
			Guards:   []interceptor.Guard{interceptor.For(activityName, policy(fenced))},
			Observer: stage,
		})
		if err != nil {
			return err
		}
		plugins = append(plugins, kit.Plugin())
	}
	c, err := s.Dial(func(o *client.Options) { o.Plugins, o.Identity = plugins, name })
	if err != nil {
		return err
	}
	w := worker.New(c, queue, worker.Options{
		DisableWorkflowWorker:              true, // the process that runs the show has that
		MaxConcurrentActivityExecutionSize: 1,
		MaxHeartbeatThrottleInterval:       300 * time.Millisecond,
	})
	w.RegisterActivityWithOptions(acts.PayInvoices, activity.RegisterOptions{Name: activityName})
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	stage.tell(timeline.Event{Kind: timeline.Ready})
	<-ctx.Done()
	return nil
}
