// Package asynccompletion has an activity whose result comes later, from a person: the
// body returns at once, and another process completes it.
package asynccompletion

import (
	"time"

	"go.temporal.io/sdk/workflow"
)

// TaskQueue is where the workers look for work.
const TaskQueue = "asynccompletion"

// Refund is what somebody has to approve.
type Refund struct{ Order string }

// Decision is what they say.
type Decision struct {
	Approved bool
	By       string
}

// Decide has a refund decided on. Any number of workflows may ask for one order's.
func Decide(ctx workflow.Context, r Refund) (Decision, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 24 * time.Hour, // so long the person may take
	})
	var d Decision
	err := workflow.ExecuteActivity(ctx, "AskPerson", r).Get(ctx, &d)
	return d, err
}
