package asynccompletion_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/samples/asynccompletion"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
)

func TestSomebodyElseCompletesIt(t *testing.T) {
	t.Parallel()
	s := stack.ForTest(t, stack.Config{Temporal: true, Postgres: true})
	require.NoError(t, asynccompletion.Prepare(t.Context(), s.Postgres))
	queue, acts := stack.Unique(asynccompletion.TaskQueue), &asynccompletion.Activities{DB: s.Postgres}
	kit, err := interceptor.New(interceptor.Options{
		Redis: s.Redis, Store: primitives.Options{Prefix: queue}, Guards: asynccompletion.Guards(acts),
	})
	require.NoError(t, err)
	c := s.WorkForTest(t, queue, kit, func(w worker.Registry) { asynccompletion.Register(w, acts) })

	first := decide(t, c, queue)
	want := asynccompletion.Decision{Approved: true, By: "jo"}
	// The question is there, and a moment later the body has returned.
	require.Eventually(t, func() bool {
		return asynccompletion.Answer(t.Context(), kit, c, s.Postgres, "A1", want) == nil
	}, time.Minute, 20*time.Millisecond)
	require.Equal(t, want, result(t, first))
	require.Equal(t, want, result(t, decide(t, c, queue)), "nobody is asked again")
}

func decide(t *testing.T, c client.Client, queue string) client.WorkflowRun {
	t.Helper()
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue},
		asynccompletion.Decide, asynccompletion.Refund{Order: "A1"})
	require.NoError(t, err)
	return run
}

func result(t *testing.T, run client.WorkflowRun) (d asynccompletion.Decision) {
	t.Helper()
	require.NoError(t, run.Get(t.Context(), &d))
	return d
}
