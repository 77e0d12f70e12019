// Package localactivity guards a local activity: one that runs inside of a workflow
// task, and so is repeated whenever that task is.
package localactivity

import (
	"time"

	"go.temporal.io/sdk/workflow"
)

// TaskQueue is where the workers look for work.
const TaskQueue = "localactivity"

// Invoice is what gets a number.
type Invoice struct{ Order string }

// Number gives an invoice its number. If the worker dies before the workflow task is
// reported, Temporal runs the task again, and the local activity in it.
func Number(ctx workflow.Context, i Invoice) (int64, error) {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: 5 * time.Second})
	var acts *Activities
	var n int64
	err := workflow.ExecuteLocalActivity(ctx, acts.NextNumber, i).Get(ctx, &n)
	return n, err
}
