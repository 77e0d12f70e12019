// Package enforce has the database refuse what goes past the fence: a forgotten
// helper, and a worker that nobody has guarded.
package enforce

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// The task queues: one worker has the kit, the other was forgotten.
const (
	TaskQueue        = "enforce"
	ForgottenWorkers = "enforce-unguarded"
)

// Order says which of the activities is to ship which order, and on which queue.
type Order struct{ ID, Activity, Queue string }

// Ship ships an order.
func Ship(ctx workflow.Context, o Order) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           o.Queue,
		StartToCloseTimeout: time.Minute, ScheduleToCloseTimeout: time.Hour,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, // to see the error, which stays
	})
	return workflow.ExecuteActivity(ctx, o.Activity, o).Get(ctx, nil)
}
