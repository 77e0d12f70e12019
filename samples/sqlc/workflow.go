// Package sqlc runs the queries that sqlc generates under a fence: the generated code
// takes a pgx.Tx and knows nothing of tokens.
package sqlc

import (
	"time"

	"go.temporal.io/sdk/workflow"
)

// TaskQueue is where the workers look for work.
const TaskQueue = "sqlc"

// Closing says which account to close, and where its money goes.
type Closing struct{ Account, To string }

// Close empties an account and closes it.
func Close(ctx workflow.Context, c Closing) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute, ScheduleToCloseTimeout: time.Hour,
	})
	if err := workflow.ExecuteActivity(ctx, "MoveAll", c).Get(ctx, nil); err != nil {
		return err
	}
	return workflow.ExecuteActivity(ctx, "SetClosed", c).Get(ctx, nil)
}
