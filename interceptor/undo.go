package interceptor

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/fencekit/fencekit-go/primitives"
)

// Undone is a call that a compensation undoes.
type Undone struct {
	// Key is what the effects of that call are known by: what [Attempt] has as its Key in
	// the body that is undone. An effect of pgxfence.Once that was made under it can be
	// looked up, and the one that takes it back be made under it, once.
	Key primitives.Key
}

// IdempotencyKey is what the function [IdempotencyKey] returns in the body that is undone,
// so that the other side can be asked what became of a request.
func (u Undone) IdempotencyKey(name string) (string, error) { return idempotencyKey(u.Key, name) }

// Undo says, in the body of a compensation, that it undoes what a call of another activity
// has done: once the compensation is completed, in the same step, that call is undone, and
// the next one like it runs its body instead of being replayed. Nothing is undone if the
// compensation fails, or if somebody has had its resource since its lease was lost.
//
//	func (a *Bank) UndoWithdraw(ctx context.Context, t Transfer) error {
//		undone, err := interceptor.Undo(ctx, a.Withdraw, t)
//		if err != nil {
//			return err
//		}
//		key := undone.Key.String()
//		_, err = pgxfence.Lookup[int64](ctx, a.db, pgxfence.Effect{Key: key, Name: "withdraw"})
//		if errors.Is(err, pgxfence.ErrNotFound) {
//			return nil // it did not happen, or was taken back
//		}
//		if err != nil {
//			return err
//		}
//		return a.book(ctx, pgxfence.Effect{Key: key, Name: "undo withdraw"}, t.From, t.Cents)
//	}
//
// The activity is its function or its name, and args are those of the call: from them its
// own policy, in the same [Interceptor], makes the key, within the workflow or run of the
// compensation. For a call whose key came from [WithKey], see [UndoKey].
//
// The call may have been done, have failed or been interrupted; one that never was is
// undone, too, and no error, because a saga compensates steps that may not have happened.
// What it has done is for the compensation to find out: by Undone.Key.
//
// The rules, each a *primitives.OptionError that names what breaks it:
//   - Both activities have one Policy.Resource, which excludes the call while the
//     compensation runs.
//   - The compensation has [ScopeExecution]: in a wider scope its second call, after the
//     operation was done again, would be a replay of its first.
//   - The activity has a wider scope. Under ScopeExecution each call runs anyway.
//   - It does not FailOpen: a body that runs unguarded does not know what was undone.
//   - ctx is that of a guarded body that was begun with Redis, before it has called
//     [Pending].
//
// A call that has failed as [TypeMismatch] has not happened, and its key is that of another
// call, which must not be undone: Undo then returns an error that matches
// primitives.ErrMismatch, and there is nothing to take back. It is final if the body returns
// it. A call that runs without a lease, by primitives.Store.TryBegin, is a
// *primitives.BusyError. Arguments without a safe key are a *primitives.KeyError. Other errors are those of
// primitives.Store.Status. All but the first are retried if the body returns them, until a
// release mends what is wrong: money is on the way.
func Undo(ctx context.Context, activity any, args ...any) (Undone, error) {
	return undo(ctx, activity, args, "")
}

// UndoKey is [Undo] of a call whose key the workflow has set by [WithKey].
func UndoKey(ctx context.Context, activity any, key string, args ...any) (Undone, error) {
	k, err := primitives.NewKey("explicit", key)
	if err != nil {
		return Undone{}, err
	}
	return undo(ctx, activity, args, k.String())
}

func undo(ctx context.Context, activity any, args []any, explicit string) (Undone, error) {
	c := callFrom(ctx)
	if c == nil {
		return Undone{}, &primitives.OptionError{Field: "ctx", Rule: "is not that of a guarded activity"}
	}
	name, err := activityName(activity)
	if err != nil {
		return Undone{}, err
	}
	p, err := c.undoable(name)
	if err != nil {
		return Undone{}, err
	}
	if args, err = c.asDecoded(name, p, activity, args); err != nil {
		return Undone{}, err
	}
	op, err := c.other(name, p, args, explicit)
	if err != nil {
		return Undone{}, err
	}
	if c.attempt.Token.Valid() && op.Resource != c.attempt.Token.Resource {
		return Undone{}, &primitives.OptionError{Field: "Policy.Resource", Rule: fmt.Sprintf(
			"of %s and that of %s differ for these calls: a call is undone under its own resource", name, c.info.ActivityType.Name)}
	}
	key, err := c.attempt.Undo(ctx, op)
	var mismatch *primitives.MismatchError
	if errors.As(err, &mismatch) {
		err = never(TypeMismatch, primitives.ErrMismatch, fmt.Errorf("%w: the call to be undone has not happened, and what has is another one's", mismatch))
	}
	return Undone{key}, err
}

// undoable is the plan of an activity whose calls this one can undo.
func (c *call) undoable(name string) (*plan, error) {
	p := c.kit.plans[name]
	if p == nil {
		p = c.kit.dynamic
	}
	if p == nil {
		return nil, &primitives.OptionError{Field: "activity", Rule: fmt.Sprintf("%s is not guarded by this interceptor: there is nothing to undo", name)}
	}
	for _, rule := range []struct {
		broken      bool
		field, rule string
	}{
		{c.plan.Scope != ScopeExecution, "Policy.Scope", fmt.Sprintf(
			"of the compensation %s is %s: its next call would be a replay of this one", c.info.ActivityType.Name, c.plan.Scope)},
		{p.Scope == ScopeExecution, "Policy.Scope", fmt.Sprintf("of %s is execution: each call runs, so there is nothing to undo", name)},
		{p.FailOpen, "Policy.FailOpen", fmt.Sprintf("of %s is set: a body that runs unguarded does not know what was undone", name)},
		{c.info.WorkflowExecution.ID == "" && p.Scope != ScopeNamespace, "Policy.Scope", fmt.Sprintf(
			"of %s is %s, and the compensation is part of no workflow", name, p.Scope)},
	} {
		if rule.broken {
			return nil, &primitives.OptionError{Field: rule.field, Rule: rule.rule}
		}
	}
	return p, nil
}

// other is what a call of another activity, in the same workflow and run, asks for.
func (c *call) other(name string, p *plan, args []any, explicit string) (op primitives.Op, err error) {
	in := input{plan: p, args: args}
	t, err := in.take(explicit)
	if err != nil {
		return op, err
	}
	id := identity{Namespace: c.info.Namespace, Type: name,
		Workflow: c.info.WorkflowExecution.ID, Run: c.info.WorkflowExecution.RunID}
	if op.Fingerprint, err = primitives.ParseFingerprint(t.Compared); err != nil {
		return op, err
	}
	op.Resource = string(t.Resource)
	op.Key, err = id.within(p.Scope, t.Key).key()
	return op, err
}

// asDecoded are the arguments as a worker gives them to the activity, from which the key
// of the call was made.
func (c *call) asDecoded(name string, p *plan, activity any, args []any) ([]any, error) {
	types := p.params
	if t := reflect.TypeOf(activity); t.Kind() == reflect.Func {
		types = paramsOf(t)
	}
	dynamic := p == c.kit.dynamic
	switch {
	case dynamic:
	case types == nil: // known to the worker only
		if i := slices.Index(args, nil); i >= 0 {
			return nil, &primitives.OptionError{Field: "args", Rule: fmt.Sprintf(
				"have a nil as argument %d, whose type is not known: name %s by its function", i+1, name)}
		}
		return args, nil
	default:
		if err := fits(types, args); err != nil {
			return nil, err
		}
	}
	payloads, err := c.codec.data.ToPayloads(args...)
	if err != nil {
		return nil, &primitives.OptionError{Field: "args", Rule: "cannot be encoded by the data converter"}
	}
	if dynamic {
		return []any{encodedArgs{c.codec.data, payloads}}, nil
	}
	values, into := make([]reflect.Value, len(args)), make([]any, len(args))
	for i := range args {
		values[i] = reflect.New(types[i])
		into[i] = values[i].Interface()
	}
	if err = c.codec.data.FromPayloads(payloads, into...); err != nil {
		return nil, &primitives.OptionError{Field: "args", Rule: "cannot be decoded by the data converter"}
	}
	decoded := make([]any, len(args))
	for i, v := range values {
		decoded[i] = v.Elem().Interface()
	}
	return decoded, nil
}

// fits compares arguments with the parameters of the activity.
func fits(types []reflect.Type, args []any) error {
	if len(args) != len(types) {
		return &primitives.OptionError{Field: "args", Rule: fmt.Sprintf("are %d, the activity takes %d", len(args), len(types))}
	}
	for i, arg := range args {
		if t := reflect.TypeOf(arg); t == nil && !nillable(types[i]) || t != nil && !t.AssignableTo(types[i]) {
			return &primitives.OptionError{Field: "args", Rule: fmt.Sprintf("have a %T as argument %d, the activity takes a %s", arg, i+1, types[i])}
		}
	}
	return nil
}

// encodedArgs are arguments as a dynamic activity gets them.
type encodedArgs struct {
	data     converter.DataConverter
	payloads *commonpb.Payloads
}

var _ converter.EncodedValues = encodedArgs{}

// HasValues implements converter.EncodedValues.
func (a encodedArgs) HasValues() bool { return len(a.payloads.GetPayloads()) > 0 }

// Get implements converter.EncodedValues.
func (a encodedArgs) Get(into ...any) error { return a.data.FromPayloads(a.payloads, into...) }

// Payloads tells how many they are, as the SDK's own do.
func (a encodedArgs) Payloads() *commonpb.Payloads { return a.payloads }
