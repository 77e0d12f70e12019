package testsuite

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/pprof"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/converter"

	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// ErrCrashed is the error of a run whose process has died.
var ErrCrashed = errors.New("testsuite: the process has died")

// Run is one attempt of an activity, from its delivery to its end. Its methods that tell
// how it went wait for that end, but for Steps.
type Run struct {
	kit   *Kit
	call  *Call
	point Point
	what  action

	frozen   chan struct{} // closed when it has come to its point
	thawed   chan struct{} // closed when it may go on
	done     chan struct{}
	returned chan struct{} // closed when the body has returned
	thaw     sync.Once
	arrive   sync.Once

	mu        sync.Mutex
	phase     Phase
	steps     []*Step
	effects   int
	reached   bool
	dead      bool
	events    []primitives.Event
	conns     map[*pgx.Conn]struct{} // that it has a transaction on
	bodyRan   bool
	bodyErr   error
	goroutine string // the body's
	attempt   primitives.Attempt
	result    converter.EncodedValue
	err       error
	outliers  []string // where goroutines stand that have outlived the body
}

// action is what happens at the point of a run.
type action int

const (
	goOn action = iota
	freeze
	crash
)

type runKey struct{}

func runFrom(ctx context.Context) *Run {
	r, _ := ctx.Value(runKey{}).(*Run)
	return r
}

func (c *Call) start(p Point, what action) *Run {
	c.kit.t.Helper()
	r := &Run{
		kit: c.kit, call: c, point: p, what: what, phase: Beginning, conns: map[*pgx.Conn]struct{}{},
		frozen: make(chan struct{}), thawed: make(chan struct{}), done: make(chan struct{}), returned: make(chan struct{}),
		err: ErrCrashed,
	}
	c.kit.Interceptor() // fails the test here, and not in the run's goroutine
	c.kit.mu.Lock()
	c.kit.runs[r] = struct{}{}
	c.kit.mu.Unlock()
	go r.live()
	return r
}

// live is the life of the run's process.
func (r *Run) live() {
	defer r.end()
	ctx := context.WithValue(context.Background(), runKey{}, r)
	pprof.Do(ctx, pprof.Labels(runLabel, r.label()), r.execute)
}

func (r *Run) execute(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil { // the environment's own, about how it is used
			r.finish(nil, fmt.Errorf("testsuite: the test environment panicked: %v", p))
		}
	}()
	env := r.kit.activityEnvironment(ctx, r.call.id.apply)
	if reflect.TypeOf(r.call.fn).Kind() == reflect.Func && !r.kit.knows(r.call.fn) {
		env.RegisterActivityWithOptions(r.call.fn, registerAnew())
	}
	run := env.ExecuteActivity
	if r.call.local != nil {
		run = env.ExecuteLocalActivity
		header, err := r.call.local.header(r.kit, r.call.fn, r.call.args)
		if err != nil {
			r.finish(nil, err)
			return
		}
		env.SetHeader(header)
	}
	r.finish(run(r.call.fn, r.call.args...))
}

// knows reports whether a function was registered under a name of its own.
func (k *Kit) knows(fn any) bool {
	p := reflect.ValueOf(fn).Pointer()
	for _, reg := range k.registrations() {
		if v := reflect.ValueOf(reg.activity); v.Kind() == reflect.Func && v.Pointer() == p {
			return true
		}
	}
	return false
}

func (r *Run) finish(result converter.EncodedValue, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.dead {
		r.result, r.err = result, err
	}
}

func (r *Run) end() {
	if r.call.watched {
		outliers := r.outlive()
		r.mu.Lock()
		r.outliers = outliers
		r.mu.Unlock()
	}
	r.kit.mu.Lock()
	delete(r.kit.runs, r)
	r.kit.mu.Unlock()
	close(r.done)
}

// Wait waits for the run's end. A run that does not come to it fails the test.
func (r *Run) Wait() {
	r.kit.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.kit.t.Fatalf("testsuite: %s has not ended after %s", r, patience)
	}
}

// waitFrozen waits for the point or the end.
func (r *Run) waitFrozen() {
	r.kit.t.Helper()
	select {
	case <-r.frozen:
	case <-r.done:
	case <-time.After(patience):
		r.kit.t.Fatalf("testsuite: %s has neither ended nor come to its point %s after %s", r, r.point, patience)
	}
}

// Done is closed at the run's end.
func (r *Run) Done() <-chan struct{} { return r.done }

// Frozen reports whether the run is frozen at its point.
func (r *Run) Frozen() bool {
	select {
	case <-r.done:
		return false
	case <-r.thawed:
		return false
	case <-r.frozen:
		return r.what == freeze
	default:
		return false
	}
}

// Thaw lets a frozen run go on, and returns at its end. It does nothing with a run that
// is not frozen.
func (r *Run) Thaw() {
	r.kit.t.Helper()
	r.goOn()
	r.Wait()
}

func (r *Run) goOn() { r.thaw.Do(func() { close(r.thawed) }) }

// Err is the error that Temporal gets, or nil.
func (r *Run) Err() error {
	r.Wait()
	return r.err
}

// Result reads the result that Temporal gets into what v points to. It returns Err if
// there is none.
func (r *Run) Result(v any) error {
	if err := r.Err(); err != nil {
		return err
	}
	return r.result.Get(v)
}

// BodyRan reports whether the body has been started.
func (r *Run) BodyRan() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bodyRan
}

// Token is the fencing token that the run was granted; invalid if none.
func (r *Run) Token() fence.Token {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.attempt.Token
}

// Outcome is how the run began; empty if it was refused or is not guarded.
func (r *Run) Outcome() primitives.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == primitives.EventBegan || e.Kind == primitives.EventUnguarded {
			return e.Outcome
		}
	}
	return ""
}

// Events are what the guard has told of the run so far.
func (r *Run) Events() []primitives.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Steps are what the run has sent so far.
func (r *Run) Steps() []Step {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Step, len(r.steps))
	for i, s := range r.steps {
		list[i] = *s
	}
	return list
}

// Key is the idempotency key of the run's operation; invalid before the guard has
// answered.
func (r *Run) Key() (key primitives.Key) {
	for _, e := range r.Events() {
		if e.Key.Valid() {
			key = e.Key
		}
	}
	return key
}

// Resource is the resource of the run's operation; empty if it is not known, as for a
// replay that no run of the kit has gone before.
func (r *Run) Resource() string {
	if t := r.Token(); t.Resource != "" {
		return t.Resource
	}
	return r.call.resource
}

// Record is what is stored about the run's operation now.
func (r *Run) Record() (primitives.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return r.kit.store.Status(ctx, primitives.Op{Key: r.Key(), Resource: r.Resource()})
}

// String names the run in messages.
func (r *Run) String() string {
	name := fmt.Sprint(r.call.fn)
	if reflect.TypeOf(r.call.fn).Kind() == reflect.Func {
		name = functionName(r.call.fn)
	}
	return fmt.Sprintf("%s (attempt %d of %s)", name, r.call.id.attempt, r.call.id.workflow)
}
