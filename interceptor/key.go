package interceptor

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"unicode"
	"unicode/utf8"

	"go.temporal.io/sdk/activity"

	"github.com/fencekit/fencekit-go/primitives"
)

// identity is what a key is the digest of, besides the input. Its members are a wire
// format: never change what they hold.
type identity struct {
	Namespace string `json:"namespace"`
	Type      string `json:"type"`
	Scope     string `json:"scope"`
	Workflow  string `json:"workflow,omitempty"`
	Run       string `json:"run,omitempty"`
	Activity  string `json:"activity,omitempty"`
	Input     string `json:"input"`
}

// scoped is the identity without the input. The activity id repeats from run to run,
// so it never stands without the run's.
func scoped(scope Scope, info activity.Info) identity {
	id := identity{Namespace: info.Namespace, Type: info.ActivityType.Name, Scope: scope.String()}
	workflow, run := info.WorkflowExecution.ID, info.WorkflowExecution.RunID
	if workflow == "" { // nobody's activity: it is its own run
		workflow, run = info.ActivityID, info.ActivityRunID
	}
	switch scope {
	case ScopeExecution:
		id.Workflow, id.Run, id.Activity = workflow, run, info.ActivityID
	case ScopeRun:
		id.Workflow, id.Run = workflow, run
	case ScopeWorkflow:
		id.Workflow = workflow
	case ScopeNamespace:
	}
	return id
}

// execution is the same for all attempts of one scheduled activity.
func execution(info activity.Info) primitives.Execution {
	id := scoped(ScopeExecution, info)
	return primitives.Execution{
		ID:      strconv.Quote(id.Namespace) + strconv.Quote(id.Workflow) + strconv.Quote(id.Run) + strconv.Quote(id.Activity),
		Started: info.StartedTime,
		Attempt: int(info.Attempt),
	}
}

// op is the operation that the call asks for. Its errors are key errors: nothing in
// them shows a part of the input.
func (c *call) op(ctx context.Context, args []any) (op primitives.Op, err error) {
	id := scoped(c.plan.Scope, c.info)
	// All attempts of a local activity share the caller's values, which a body may have
	// changed, or be changing. Where the ids are enough, the input counts at first only.
	shared := c.info.IsLocalActivity && c.plan.Scope == ScopeExecution
	if !shared || c.info.Attempt == 1 {
		if id.Input, op.Fingerprint, err = c.input(ctx, args); err != nil {
			return op, err
		}
	}
	if shared {
		id.Input, op.Fingerprint = "", primitives.Fingerprint{}
	}
	if op.Key, err = primitives.NewKey(readable(id.Type), id); err != nil {
		return op, err
	}
	if c.plan.Resource.set {
		if op.Resource, err = c.plan.Resource.of(args); err != nil {
			return op, fmt.Errorf("the function of Policy.Resource: %w", err)
		}
		if op.Resource == "" {
			return op, errors.New("the function of Policy.Resource returned an empty name")
		}
	}
	op.Name, op.Holder, op.Execution = id.Type, c.holder(), execution(c.info)
	return op, nil
}

// input is the part of the key that comes from the input, and the fingerprint of the
// whole input if that is only a part of it.
func (c *call) input(ctx context.Context, args []any) (digest string, whole primitives.Fingerprint, err error) {
	in, err := c.keyable(args)
	if err != nil {
		return "", whole, err
	}
	explicit, given, err := c.explicit(ctx)
	switch {
	case err != nil:
		return "", whole, err
	case given:
		digest = "explicit " + explicit
	case c.plan.Key.set:
		if digest, err = c.picked(args); err != nil {
			return "", whole, err
		}
	default:
		digest, err = digestOf(c.plan.Scope, in)
		return digest, whole, err
	}
	whole, err = primitives.NewFingerprint(in)
	return digest, whole, err
}

// picked is the digest of what the key function picks.
func (c *call) picked(args []any) (string, error) {
	v, err := c.plan.Key.of(args)
	if err != nil {
		return "", fmt.Errorf("the function of Policy.Key: %w", err)
	}
	k, err := primitives.NewKey("key", v)
	if err != nil {
		return "", err
	}
	return k.String(), nil
}

// digestOf is the digest of the whole input. With nothing else to tell operations apart,
// it must tell something itself.
func digestOf(scope Scope, input []any) (string, error) {
	if scope == ScopeNamespace {
		k, err := primitives.NewKey("input", input)
		if err != nil {
			return "", err
		}
		return k.String(), nil
	}
	f, err := primitives.NewFingerprint(input)
	return f.String(), err
}

// readable is the part of a key that people can read: the activity type, if a key can
// hold it.
func readable(name string) string {
	if name == "" || len(name) > 200 || !utf8.ValidString(name) {
		return "activity"
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return "activity"
		}
	}
	return name
}

// keyable is the arguments as primitives.NewKey must see them: typed, because an
// interface would hide that a large float is one, and raw payloads by their content.
func (c *call) keyable(args []any) ([]any, error) {
	in := make([]any, 0, len(args))
	for i, arg := range args {
		raw, ok, err := payloadsOf(arg)
		switch {
		case err != nil:
			return nil, err
		case ok:
			in = append(in, raw...)
		case c.plan.isTyped(i, arg):
			in = append(in, typed(arg))
		default:
			in = append(in, arg)
		}
	}
	return in, nil
}

// isTyped reports whether the type of an argument is the activity's own. A float that
// was decoded for an interface may be a rounded integer; one whose parameter is not
// known may be such a float.
func (p *plan) isTyped(i int, arg any) bool {
	if i < len(p.params) {
		return p.params[i].Kind() != reflect.Interface
	}
	_, float := arg.(float64)
	return !float
}

// typed is a pointer to arg.
func typed(arg any) any {
	if arg == nil {
		return nil
	}
	p := reflect.New(reflect.TypeOf(arg))
	p.Elem().Set(reflect.ValueOf(arg))
	return p.Interface()
}
