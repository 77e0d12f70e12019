// Package payments charges cards through somebody else's API: an effect that no fence
// protects and that must not happen twice.
package payments

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
)

// TaskQueue is where the workers look for work.
const TaskQueue = "payments"

// Order is what is to be paid.
type Order struct {
	ID    string
	Cents int64
}

// Charge is a charge as the provider has it.
type Charge struct {
	ID    string
	Cents int64
}

// Pay charges an order. Any number of workflows may be started for one order.
func Pay(ctx workflow.Context, order Order) (Charge, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout:    30 * time.Second,
		ScheduleToCloseTimeout: time.Hour,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second},
	})
	var charge Charge
	err := workflow.ExecuteActivity(ctx, "ChargeCard", order).Get(ctx, &charge)
	if !isOutcomeUnknown(err) {
		return charge, err
	}
	// A worker died between asking the provider and hearing from it. The body is not
	// run again; whether the charge happened, only the provider can tell.
	workflow.GetLogger(ctx).Warn("the charge was interrupted, asking the provider", "Order", order.ID)
	err = workflow.ExecuteActivity(ctx, "FindCharge", order).Get(ctx, &charge)
	return charge, err
}

func isOutcomeUnknown(err error) bool {
	var a *temporal.ApplicationError
	return errors.As(err, &a) && a.Type() == interceptor.TypeOutcomeUnknown
}
