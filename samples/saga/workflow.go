// Package saga moves money between two accounts, takes it back if that fails, and lets the
// same transfer be submitted again.
package saga

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// TaskQueue is where the workers look for work.
const TaskQueue = "saga"

// Transfer is what to move.
type Transfer struct {
	ID       string // the business's own
	From, To string
	Cents    int64
}

// WorkflowID makes Temporal run one saga of a transfer at a time: what one of two undoes,
// the other could be going on with.
func (t Transfer) WorkflowID() string { return "transfer/" + t.ID }

// Move moves the money. What has been done is undone in reverse order if it fails.
func Move(ctx workflow.Context, t Transfer) (err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout:    5 * time.Second,
		ScheduleToCloseTimeout: time.Hour,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond},
	})
	for _, step := range []struct{ do, undo string }{
		{"Withdraw", "UndoWithdraw"},
		{"Deposit", "UndoDeposit"},
		{"Notify", ""},
	} {
		if step.undo != "" { // before the step: one that failed may have happened all the same
			defer func() {
				if err != nil {
					err = compensate(ctx, step.undo, t, err)
				}
			}()
		}
		if err = workflow.ExecuteActivity(ctx, step.do, t).Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// compensate runs a compensation until it succeeds, also in a workflow that was cancelled.
func compensate(ctx workflow.Context, undo string, t Transfer, why error) error {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	o := workflow.GetActivityOptions(ctx)
	o.ScheduleToCloseTimeout = 0
	ctx = workflow.WithActivityOptions(ctx, o)
	if err := workflow.ExecuteActivity(ctx, undo, t).Get(ctx, nil); err != nil {
		return err
	}
	return why
}
