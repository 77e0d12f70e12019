package payments

import (
	"context"
	"time"

	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
)

// Activities talk to the provider.
type Activities struct {
	Provider Client

	// AfterCharge is called when the provider has answered: the worst moment to
	// crash. Default: nothing.
	AfterCharge func()
}

// LeaseTTL is how long a crashed charge keeps others waiting, before they are told
// that its outcome is unknown.
const LeaseTTL = 5 * time.Second

// Guards say how the activities are guarded. FindCharge only reads and needs none.
func Guards(acts *Activities) []interceptor.Guard {
	return []interceptor.Guard{
		interceptor.For(acts.ChargeCard, interceptor.Policy{
			// Once for each order, whichever workflow asks. The amount is no part of
			// the key: asking for the same order with another amount is a mismatch.
			Scope: interceptor.ScopeNamespace,
			Key:   interceptor.KeyFrom(func(o Order) any { return o.ID }),
			// Never again after a crash in the middle of it.
			AtMostOnce: true,
			LeaseTTL:   LeaseTTL,
			// As long as anybody may ask for an order.
			Retention: 30 * 24 * time.Hour,
		}),
	}
}

// Register registers workflow and activities on a worker.
func Register(w worker.Registry, acts *Activities) {
	w.RegisterWorkflow(Pay)
	w.RegisterActivity(acts)
}

// ChargeCard charges the order.
func (a *Activities) ChargeCard(ctx context.Context, o Order) (Charge, error) {
	// The same for every attempt of this order, so that the provider can tell a
	// repetition from a second charge.
	key, err := interceptor.IdempotencyKey(ctx, "charge")
	if err != nil {
		return Charge{}, err
	}
	charge, err := a.Provider.Charge(ctx, key, o)
	if err == nil && a.AfterCharge != nil {
		a.AfterCharge()
	}
	return charge, err
}

// FindCharge asks the provider for the order's charge.
func (a *Activities) FindCharge(ctx context.Context, o Order) (Charge, error) {
	return a.Provider.Find(ctx, o.ID)
}
