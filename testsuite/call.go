package testsuite

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
)

// Call is an activity with its input and identity, ready to be run.
type Call struct {
	kit   *Kit
	fn    any
	args  []any
	id    identity
	local *localCall // nil if it is regular

	resource string // of an earlier delivery; empty if unknown
	watched  bool   // look for goroutines that outlive the body
	held     bool   // let what the body's goroutines send come after its return, if it does not wait for them
}

// Call prepares the first attempt of a newly scheduled activity: its function, or the
// name that it is registered under.
func (k *Kit) Call(fn any, args ...any) *Call {
	return &Call{kit: k, fn: fn, args: args, id: k.newIdentity()}
}

// Execute runs the first attempt of a newly scheduled activity to its end.
func (k *Kit) Execute(fn any, args ...any) *Run {
	k.t.Helper()
	return k.Call(fn, args...).Execute()
}

// Local makes it a local activity.
func (c *Call) Local() *Call {
	l := *c
	l.local = &localCall{}
	return &l
}

// Execute runs the call to its end.
func (c *Call) Execute() *Run {
	r := c.Start()
	r.Wait()
	return r
}

// Start runs the call in the background; see [Run.Wait].
func (c *Call) Start() *Run { return c.start(Point{}, goOn) }

// FreezeAt runs the call up to a point, where its process stops as by SIGSTOP, and
// returns then: see [Run.Thaw]. A run without the point is at its end.
func (c *Call) FreezeAt(p Point) *Run {
	r := c.start(p, freeze)
	r.waitFrozen()
	return r
}

// CrashAt runs the call up to a point, where its process dies as by SIGKILL: nothing is
// released, an open transaction ends with its connection, and nothing that the run, or a
// goroutine of it, tries to send afterwards is sent. The body's goroutine ends there, but
// for its deferred calls; at a Postgres statement it goes on with an error of that, or,
// where the point is after the statement, with its result, to whatever it can still do
// in memory. Run.Err is then [ErrCrashed]; a run without the point is at its end.
func (c *Call) CrashAt(p Point) *Run {
	r := c.start(p, crash)
	r.Wait()
	return r
}

// Delivery is how a call comes again.
type Delivery int

// The deliveries.
const (
	// NextAttempt: Temporal has given up the attempt and starts the next one.
	NextAttempt Delivery = iota
	// Duplicate: the same attempt arrives twice.
	Duplicate
	// OtherWorkflow: another workflow asks for the same.
	OtherWorkflow
	// AfterReset: the activity was reset; the attempt is 1 again, and started later.
	AfterReset
)

// String is the delivery for messages.
func (d Delivery) String() string {
	switch d {
	case NextAttempt:
		return "the next attempt"
	case Duplicate:
		return "a duplicate of the attempt"
	case OtherWorkflow:
		return "another workflow's call"
	case AfterReset:
		return "the attempt after a reset"
	}
	return fmt.Sprintf("delivery %d", int(d))
}

// Redeliver prepares the same call again.
func (r *Run) Redeliver(d Delivery) *Call {
	c := *r.call
	c.resource = r.Token().Resource
	if c.resource == "" {
		c.resource = r.call.resource
	}
	switch d {
	case NextAttempt:
		c.id.attempt++
		c.id.started = c.id.started.Add(time.Second)
	case AfterReset:
		c.id.attempt = 1
		c.id.started = c.id.started.Add(time.Second)
	case OtherWorkflow:
		c.id = r.kit.newIdentity()
	case Duplicate:
	}
	return &c
}

// NextAttempt runs the call again as the next attempt of the activity.
func (r *Run) NextAttempt() *Run { return r.Redeliver(NextAttempt).Execute() }

// Duplicate runs the call again as the same attempt.
func (r *Run) Duplicate() *Run { return r.Redeliver(Duplicate).Execute() }

// OtherWorkflow runs the call again for another workflow.
func (r *Run) OtherWorkflow() *Run { return r.Redeliver(OtherWorkflow).Execute() }

// AfterReset runs the call again as after a reset of the activity.
func (r *Run) AfterReset() *Run { return r.Redeliver(AfterReset).Execute() }

func registerAnew() activity.RegisterOptions {
	return activity.RegisterOptions{DisableAlreadyRegisteredCheck: true}
}
