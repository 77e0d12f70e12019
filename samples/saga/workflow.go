// Package saga moves money between two accounts, takes it back if that fails, and lets the
// same transfer be submitted again.
package saga

import (
	"slices"
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

// Move moves the money. If a step fails, it is undone, and those before it, in reverse
// order: also one that failed may have happened.
func Move(ctx workflow.Context, t Transfer) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout:    5 * time.Second,
		ScheduleToCloseTimeout: time.Hour,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond},
	})
	var undo []string
	for _, step := range []struct{ do, undo string }{
		{"Withdraw", "UndoWithdraw"},
		{"Deposit", "UndoDeposit"},
		{"Notify", ""},
	} {
		if step.undo != "" {
			undo = append(undo, step.undo)
		}
		if err := workflow.ExecuteActivity(ctx, step.do, t).Get(ctx, nil); err != nil {
			return compensate(ctx, undo, t, err)
		}
	}
	return nil
}

// compensate runs each compensation until it succeeds, also in a workflow that was
// cancelled, and returns why.
func compensate(ctx workflow.Context, undo []string, t Transfer, why error) error {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	o := workflow.GetActivityOptions(ctx)
	o.ScheduleToCloseTimeout = 0
	ctx = workflow.WithActivityOptions(ctx, o)
	for _, name := range slices.Backward(undo) {
		if err := workflow.ExecuteActivity(ctx, name, t).Get(ctx, nil); err != nil {
			return err
		}
	}
	return why
}
