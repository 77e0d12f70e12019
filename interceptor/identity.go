package interceptor

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"unicode"
	"unicode/utf8"

	"go.temporal.io/sdk/activity"

	"github.com/fencekit/fencekit-go/primitives"
)

// identity is what a key is the digest of. Its members are a wire format: never change
// what they hold.
type identity struct {
	Namespace string `json:"namespace"`
	Type      string `json:"type"`
	Scope     string `json:"scope"`
	Call      string `json:"call,omitempty"` // of ScopeExecution: who made it
	Workflow  string `json:"workflow,omitempty"`
	Run       string `json:"run,omitempty"`
	Activity  string `json:"activity,omitempty"`
	Scheduled int64  `json:"scheduled,omitempty"` // in nanoseconds since 1970
	Number    int    `json:"number,omitempty"`
	Input     string `json:"input,omitempty"`
}

// What identifies a call itself, whatever its policy. An activity id repeats, within a
// run and over runs; the time at which the server has scheduled the call does not, and
// all its attempts have it. A local activity has neither: see [localCall].
const (
	regularCall    = "regular"
	localActivity  = "local"
	standaloneCall = "standalone"
)

func (c *call) identify() (identity, error) {
	info := c.info
	id := identity{Namespace: info.Namespace, Type: info.ActivityType.Name, Scope: ScopeExecution.String(),
		Workflow: info.WorkflowExecution.ID, Run: info.WorkflowExecution.RunID}
	switch {
	case info.IsLocalActivity:
		id.Call, id.Input, id.Number = localActivity, c.local.Input, c.local.Number
	case info.WorkflowExecution.ID == "": // nobody's activity: it is its own run and workflow
		id.Call, id.Workflow, id.Run = standaloneCall, info.ActivityID, info.ActivityRunID
		if id.Run == "" {
			return id, errors.New("activity.Info.ActivityRunID is empty, so the call cannot be told from others")
		}
	default:
		id.Call, id.Activity, id.Scheduled = regularCall, info.ActivityID, info.ScheduledTime.UnixNano()
		if info.ScheduledTime.Unix() <= 0 {
			return id, errors.New("activity.Info.ScheduledTime is missing, so the call cannot be told from others; " +
				"in a test, testsuite.New(t, testsuite.Options{...}) of this module stamps it")
		}
	}
	return id, nil
}

// within leaves out what does not count in a wider scope.
func (id identity) within(scope Scope, input string) identity {
	if scope == ScopeExecution {
		return id
	}
	shared := identity{Namespace: id.Namespace, Type: id.Type, Scope: scope.String(), Input: input}
	if id.Call == standaloneCall && scope != ScopeNamespace { // its id is no workflow's
		shared.Call = standaloneCall
	}
	switch scope {
	case ScopeRun:
		shared.Workflow, shared.Run = id.Workflow, id.Run
	case ScopeWorkflow:
		shared.Workflow = id.Workflow
	}
	return shared
}

func (id identity) key() (primitives.Key, error) {
	return primitives.NewKey(readable(id.Type), id)
}

// process tells this process from all others.
var process = sync.OnceValue(rand.Text)

// execution is the same for all attempts of a call. Attempts of a local activity are
// ordered by the clock of the worker, so that only those of one process can be.
func (c *call) execution(id identity) (primitives.Execution, error) {
	k, err := id.key()
	e := primitives.Execution{ID: k.String(), Started: c.info.StartedTime, Attempt: int(c.info.Attempt)}
	if c.info.IsLocalActivity {
		e.ID += " " + process()
	}
	return e, err
}

// op is the operation that the call asks for. Its errors are key errors: nothing in
// them shows a part of the input.
func (c *call) op(ctx context.Context, args []any) (op primitives.Op, err error) {
	explicit, err := c.explicitKey(ctx)
	if err != nil {
		return op, err
	}
	var t taken
	if c.info.IsLocalActivity {
		c.local, err = localFromHeader(ctx, c.info.ActivityType.Name)
		t = c.local.taken
	} else {
		in := input{plan: c.plan, args: args}
		t, err = in.take(explicit)
	}
	if err != nil {
		return op, err
	}
	id, err := c.identify()
	if err != nil {
		return op, err
	}
	if op.Execution, err = c.execution(id); err != nil {
		return op, err
	}
	if op.Key, err = id.within(c.plan.Scope, t.Key).key(); err != nil {
		return op, err
	}
	if op.Fingerprint, err = primitives.ParseFingerprint(t.Compared); err != nil {
		return op, err
	}
	if t.Unchecked {
		c.plan.unchecked.Do(func() { c.warnUnchecked(ctx) })
	}
	op.Resource, op.Name, op.Holder = string(t.Resource), id.Type, c.holder()
	return op, nil
}

// explicitKey is the key that the workflow's author has given to the call, if any.
func (c *call) explicitKey(ctx context.Context) (string, error) {
	key, given, err := keyFromHeader(ctx)
	if err == nil && given && c.plan.Scope == ScopeExecution {
		err = errors.New("the call has a key by WithKey, which does nothing under ScopeExecution: set Policy.Scope")
	}
	return key, err
}

// warnUnchecked says, once for each policy, that other input under one key cannot be noticed.
func (c *call) warnUnchecked(ctx context.Context) {
	safely(func() {
		activity.GetLogger(ctx).Warn("fencekit: what the key does not cover of an input cannot be compared, so other input " +
			"under the same key is not noticed; Policy.Compare can pick what to compare, or nothing")
	})
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
