package crash_test

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// Batch is the input of the workflow: steps one after another, each an activity that
// adds to an account and moves the batch's progress on.
type Batch struct{ ID, Steps int }

// Step is the input of the activity.
type Step struct{ Batch, Number int }

// amount is what a step adds.
func (s Step) amount() int64 { return int64(1000*(s.Batch+1) + s.Number) }

// total is what all steps up to this one add. Written as an absolute value it is right
// only for whoever is the newest writer.
func (s Step) total() (sum int64) {
	for n := 1; n <= s.Number; n++ {
		sum += Step{s.Batch, n}.amount()
	}
	return sum
}

// attemptLimit is how long Temporal waits for an attempt before it starts the next one.
const attemptLimit = 2 * time.Second

// runBatch returns the last step's result.
func runBatch(ctx workflow.Context, b Batch) (total int64, err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: attemptLimit,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 1},
	})
	for n := 1; n <= b.Steps; n++ {
		if err := workflow.ExecuteActivity(ctx, "step", Step{b.ID, n}).Get(ctx, &total); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// runRehosted is a batch that is begun on the queue of the first worker, once, and, as that
// does not end in time, run on the second one's: what a workflow does whose session is
// lost. The second worker's activities are others than the first one's.
func runRehosted(ctx workflow.Context, b Batch) (total int64, err error) {
	on := func(worker int) workflow.Context {
		return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue: hostQueue(workflow.GetInfo(ctx).TaskQueueName, worker), StartToCloseTimeout: attemptLimit,
			RetryPolicy: &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 1, MaximumAttempts: int32(2 - worker)},
		})
	}
	if err := workflow.ExecuteActivity(on(1), "step", Step{b.ID, 1}).Get(ctx, nil); !temporal.IsTimeoutError(errors.Unwrap(err)) {
		return 0, fmt.Errorf("the first worker has not been given up: %w", err)
	}
	for n := 1; n <= b.Steps; n++ {
		if err := workflow.ExecuteActivity(on(2), "step", Step{b.ID, n}).Get(ctx, &total); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// hostQueue is the queue of one worker.
func hostQueue(queue string, worker int) string { return fmt.Sprint(queue, "-", worker) }
