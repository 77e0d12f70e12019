package interceptor

import (
	"context"
	"encoding/json"
	"fmt"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/primitives"
)

// pending is what somebody else needs to complete an activity: Temporal's task token,
// the claim on the record, and what payloads may be bound to. It may lie about for days
// and is a wire format.
type pending struct {
	Version      string          `json:"version"`
	TaskToken    []byte          `json:"task_token"`
	Claim        json.RawMessage `json:"claim"`
	Dynamic      bool            `json:"dynamic,omitempty"` // guarded by ForDynamic
	Namespace    string          `json:"namespace"`
	Workflow     string          `json:"workflow,omitempty"`
	WorkflowType string          `json:"workflow_type,omitempty"`
	ActivityType string          `json:"activity_type"`
	TaskQueue    string          `json:"task_queue"`
}

const pendingVersion = "fencekit/pending/1"

func (p pending) context() converter.ActivitySerializationContext {
	return converter.ActivitySerializationContext{
		Namespace: p.Namespace, WorkflowID: p.Workflow, WorkflowType: p.WorkflowType,
		ActivityType: p.ActivityType, TaskQueue: p.TaskQueue,
	}
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
	c := callFrom(ctx)
	switch {
	case c == nil:
		return nil, &primitives.OptionError{Field: "ctx", Rule: "is not that of a guarded activity"}
	case c.info.IsLocalActivity:
		return nil, &primitives.OptionError{Field: "ctx", Rule: "is that of a local activity, which nobody else can complete"}
	}
	claim, err := c.attempt.ClaimText() // not that of a guard inside the body
	if err != nil {
		return nil, err
	}
	sc := c.codec.context
	return json.Marshal(pending{
		Version: pendingVersion, TaskToken: c.info.TaskToken, Claim: claim, Dynamic: c.plan == c.kit.dynamic,
		Namespace: sc.Namespace, Workflow: sc.WorkflowID, WorkflowType: sc.WorkflowType,
		ActivityType: sc.ActivityType, TaskQueue: sc.TaskQueue,
	})
}

// Complete completes an activity whose body has returned activity.ErrResultPending,
// with what [Pending] returned there: the result is stored for replays, and then
// reported to Temporal. With a failure, the operation is given up instead, so that
// Temporal's next attempt runs the body again, and the failure is reported; under
// Policy.MemoiseFailures a non-retryable one is stored, too.
//
// It works in any process that has an interceptor with the same Redis, guards and
// converters. Nothing is reported if the result could not be stored:
// primitives.ErrUnavailable, call it again; fence.ErrLeaseLost, a newer attempt has
// begun and this result is too late. Errors of the client come after the result was
// stored: repeat the call, or leave it to Temporal's next attempt, which replays. What
// was stored first counts: a repeat with another result reports the first one.
func (k *Interceptor) Complete(ctx context.Context, c client.Client, text []byte, result any, failure error) error {
	p, plan, err := k.parsePending(text)
	if err != nil {
		return err
	}
	claim, err := plan.guard.ParseClaim(p.Claim)
	if err != nil {
		return err
	}
	if claim.Key().Namespace() != readable(p.ActivityType) {
		return &primitives.OptionError{Field: "pending", Rule: "holds the claim of another activity"}
	}
	data, failureConverter := k.converters.get()
	codec := bound(data, failureConverter, p.context())
	before, err := k.store.Status(ctx, primitives.Op{Key: claim.Key(), Resource: claim.Token().Resource})
	if err != nil {
		return err
	}
	if before.Token == claim.Token().Value && (before.State == primitives.Done || before.State == primitives.Failed) {
		result, failure, err = codec.stored(before)
	} else {
		err = settle(ctx, claim, plan, codec, result, failure)
	}
	if err != nil {
		return err
	}
	return c.CompleteActivityWithOptions(ctx, client.CompleteActivityOptions{
		TaskToken: p.TaskToken, Result: result, Err: failure, Namespace: p.Namespace,
		WorkflowID: p.Workflow, WorkflowType: p.WorkflowType,
		ActivityType: p.ActivityType, TaskQueue: p.TaskQueue,
	})
}

func (k *Interceptor) parsePending(text []byte) (p pending, plan *plan, err error) {
	if err := json.Unmarshal(text, &p); err != nil {
		return p, nil, &primitives.OptionError{Field: "pending", Rule: fmt.Sprintf("is not what Pending returned: %v", err)}
	}
	if p.Version != pendingVersion {
		return p, nil, &primitives.OptionError{Field: "pending", Rule: fmt.Sprintf("is of version %q, not %q", p.Version, pendingVersion)}
	}
	if plan = k.plans[p.ActivityType]; p.Dynamic {
		plan = k.dynamic
	}
	if plan == nil {
		return p, nil, &primitives.OptionError{Field: "pending",
			Rule: fmt.Sprintf("is of activity %q, which this interceptor does not guard", p.ActivityType)}
	}
	return p, plan, nil
}

// stored is what an earlier call has stored, for the client to encode.
func (c codec) stored(r primitives.Record) (result any, failure, err error) {
	switch {
	case r.Memo == nil:
		return nil, nil, fmt.Errorf("fencekit: it is completed already, and the result was too large to keep: %w", primitives.ErrResultUnavailable)
	case r.State == primitives.Failed:
		failure, err = c.decodeFailure(r.Memo)
		return nil, failure, err
	}
	payloads, err := c.decode(r.Memo)
	if err != nil || payloads == nil {
		return nil, nil, err
	}
	var value converter.RawValue
	err = c.data.FromPayloads(payloads, &value)
	return value, nil, err
}

// settle ends the claim.
func settle(ctx context.Context, claim *primitives.Claim, p *plan, c codec, result any, failure error) error {
	if failure != nil {
		if a, ok := failure.(*temporal.ApplicationError); ok && p.MemoiseFailures && a.NonRetryable() { //nolint:errorlint // Temporal looks at the top only
			if memo, ok := c.encodeFailure(failure); ok {
				return claim.Fail(ctx, memo)
			}
		}
		return claim.Abort(ctx)
	}
	_, memo, err := c.encode(result)
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
