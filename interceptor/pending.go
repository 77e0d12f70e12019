package interceptor

import (
	"context"
	"encoding/json"
	"fmt"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/fencekit/fencekit-go/primitives"
)

// pending is what somebody else needs to complete an activity: Temporal's task token,
// and the claim on the record.
type pending struct {
	TaskToken []byte          `json:"task_token"`
	Claim     json.RawMessage `json:"claim"`
	Plan      string          `json:"plan"`
	Dynamic   bool            `json:"dynamic,omitempty"`

	Context converter.ActivitySerializationContext `json:"context"`
}

// Pending returns what is needed to complete the activity that runs under ctx from
// elsewhere, after its body has returned activity.ErrResultPending: hand it over before
// that, and see [Interceptor.Complete]. Whoever has it can complete the activity:
// treat it as a secret. Until the attempt's deadline the operation is busy for others;
// then Temporal's next attempt takes it over.
//
// It is a *primitives.OptionError outside of a guarded activity, in one that runs
// unguarded, and in a local one, which cannot be completed from elsewhere.
func Pending(ctx context.Context) ([]byte, error) {
	c, a := callFrom(ctx), primitives.Attempt{}
	if c != nil {
		a, _ = Attempt(ctx)
	}
	switch {
	case c == nil:
		return nil, &primitives.OptionError{Field: "ctx", Rule: "is not that of a guarded activity"}
	case c.info.IsLocalActivity:
		return nil, &primitives.OptionError{Field: "ctx", Rule: "is that of a local activity, which nobody else can complete"}
	}
	claim, err := a.ClaimText()
	if err != nil {
		return nil, err
	}
	return json.Marshal(pending{
		TaskToken: c.info.TaskToken, Claim: claim, Plan: c.info.ActivityType.Name,
		Dynamic: c.plan == c.kit.dynamic, Context: c.codec.context,
	})
}

// Complete completes an activity whose body has returned activity.ErrResultPending,
// with what [Pending] returned there: the result is stored for replays, and then
// reported to Temporal. With a failure, the operation is given up instead, so that
// Temporal's next attempt runs the body again, and the failure is reported.
//
// It works in any process that has an interceptor with the same Redis, guards and
// converters. Nothing is reported if the result could not be stored:
// primitives.ErrUnavailable, call it again; fence.ErrLeaseLost, a newer attempt has
// begun and this result is too late. Errors of the client come after the result was
// stored: repeat the call, or leave it to Temporal's next attempt, which replays.
func (k *Interceptor) Complete(ctx context.Context, c client.Client, text []byte, result any, failure error) error {
	var p pending
	if err := json.Unmarshal(text, &p); err != nil {
		return &primitives.OptionError{Field: "pending", Rule: fmt.Sprintf("is not what Pending returned: %v", err)}
	}
	plan := k.plans[p.Plan]
	if p.Dynamic {
		plan = k.dynamic
	}
	if plan == nil {
		return &primitives.OptionError{Field: "pending", Rule: fmt.Sprintf("is of activity %q, which this interceptor does not guard", p.Plan)}
	}
	claim, err := plan.guard.ParseClaim(p.Claim)
	if err != nil {
		return err
	}
	if err := k.settle(ctx, claim, p, result, failure); err != nil {
		return err
	}
	return c.CompleteActivityWithOptions(ctx, client.CompleteActivityOptions{
		TaskToken: p.TaskToken, Result: result, Err: failure, Namespace: p.Context.Namespace,
		WorkflowID: p.Context.WorkflowID, WorkflowType: p.Context.WorkflowType,
		ActivityType: p.Context.ActivityType, TaskQueue: p.Context.TaskQueue,
	})
}

// settle ends the claim.
func (k *Interceptor) settle(ctx context.Context, claim *primitives.Claim, p pending, result any, failure error) error {
	if failure != nil {
		return claim.Abort(ctx)
	}
	data, failureConverter := k.converters.get()
	_, memo, err := bound(data, failureConverter, p.Context).encode(result)
	if err != nil {
		return err
	}
	return claim.Complete(ctx, memo)
}

// Memo encodes a result of an activity as a memo, for primitives.Store.Resolve: the way
// out of [TypeOutcomeUnknown] for an effect that an operator knows to have happened. A
// nil result is that of an activity that returns only an error.
func (k *Interceptor) Memo(activity string, result any) ([]byte, error) {
	data, failure := k.converters.get()
	_, memo, err := bound(data, failure, converter.ActivitySerializationContext{ActivityType: activity}).encode(result)
	return memo, err
}
