package interceptor_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// stage is an activity whose every run waits until the test says what it returns. It
// takes no notice of its context, as a zombie does, until the test ends.
type stage struct {
	e    *env
	name string
	runs chan *entrance
}

// entrance is one run of its body.
type entrance struct {
	ctx     context.Context
	info    activity.Info
	attempt primitives.Attempt
	answer  chan answer
}

type answer struct {
	value string
	err   error
}

func newStage(e *env, name string) *stage {
	return &stage{e: e, name: name, runs: make(chan *entrance, 100)}
}

func (s *stage) body(ctx context.Context, _ string) (string, error) {
	a, _ := interceptor.Attempt(ctx)
	r := &entrance{ctx: ctx, info: activity.GetInfo(ctx), attempt: a, answer: make(chan answer, 1)}
	s.runs <- r
	select {
	case a := <-r.answer:
		return a.value, a.err
	case <-s.e.Context().Done(): // the test has failed
		return "", s.e.Context().Err()
	}
}

// register is for a worker.
func (s *stage) register(w worker.Registry) {
	w.RegisterActivityWithOptions(s.body, registerAs(s.name))
}

// next is the next run to begin.
func (s *stage) next() *entrance {
	s.e.Helper()
	select {
	case r := <-s.runs:
		return r
	case <-time.After(2 * time.Minute):
		s.e.Fatal("the body does not run")
		return nil
	}
}

// later is the next run with a higher token. On a machine that stands still, an attempt
// may get to its body after the one that has taken over from it.
func (s *stage) later(than *entrance) *entrance {
	s.e.Helper()
	for {
		if r := s.next(); r.token() > than.token() {
			return r
		}
	}
}

// over asserts that no run has begun that the test has not met.
func (s *stage) over() {
	s.e.Helper()
	require.Empty(s.e, s.runs, "runs of the body")
}

// giveFurther lets every further run return value: those that Temporal begins because a
// machine stood still for longer than an attempt may take.
func (s *stage) giveFurther(value string) {
	done := s.e.Context().Done()
	go func() {
		for {
			select {
			case r := <-s.runs:
				r.give(value)
			case <-done:
				return
			}
		}
	}()
}

// oneAtATime has an attempt wait, before the guard sees it, until the one before has
// returned from its guard, or until early is closed.
func oneAtATime(early <-chan struct{}) func(*worker.Options) {
	turn := make(chan struct{}, 1)
	return before(&around{do: func(ctx context.Context, in *executeInput, next executeNext) (any, error) {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-early:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		return next(ctx, in)
	}})
}

// heartbeatsOften has the SDK send heartbeats each second, whatever their timeout.
func heartbeatsOften(o *worker.Options) { o.MaxHeartbeatThrottleInterval = time.Second }

func (r *entrance) give(value string) { r.answer <- answer{value: value} }
func (r *entrance) fail(err error)    { r.answer <- answer{err: err} }

// zombie is the context of a body that does not stop.
func (r *entrance) zombie() context.Context { return context.WithoutCancel(r.ctx) }

func (r *entrance) token() fence.Value { return r.attempt.Token.Value }

// ends waits for the end of the run's context and returns its cause.
func (r *entrance) ends(t testing.TB) error {
	t.Helper()
	await(t, r.ctx.Done(), "the end of the body's context")
	return context.Cause(r.ctx)
}

func await[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(2 * time.Minute):
		require.Fail(t, "waited in vain", what)
	}
	return v
}

// heard is an observer that keeps what it is told.
type heard struct {
	mu      sync.Mutex
	all     []primitives.Event
	started time.Time // when the first attempt that was busy started, for the server
}

func (h *heard) Observe(ctx context.Context, e primitives.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, e)
	if h.started.IsZero() && activity.IsActivity(ctx) && errors.Is(e.Err, primitives.ErrBusy) {
		h.started = activity.GetInfo(ctx).StartedTime
	}
}

// busy are the refusals because somebody else is at work.
func (h *heard) busy() (found []primitives.Event) {
	for _, e := range h.kind(primitives.EventRefused) {
		if errors.Is(e.Err, primitives.ErrBusy) {
			found = append(found, e)
		}
	}
	return found
}

// began are the beginnings with an outcome.
func (h *heard) began(o primitives.Outcome) (found []primitives.Event) {
	for _, e := range h.kind(primitives.EventBegan) {
		if e.Outcome == o {
			found = append(found, e)
		}
	}
	return found
}

// firstBusy is when the first attempt that was busy started, for the server.
func (h *heard) firstBusy() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.started
}

// kind are the events of one kind.
func (h *heard) kind(k primitives.EventKind) (found []primitives.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.all {
		if e.Kind == k {
			found = append(found, e)
		}
	}
	return found
}

// watch has e's observer record.
func (e *env) watch() *heard {
	h := &heard{}
	e.opts.Observer = h
	return h
}

// store is a store on the Redis of e, as an operator or another program has one.
func (e *env) store() *primitives.Store {
	e.Helper()
	s, err := primitives.New(e.opts.Redis, e.opts.Store)
	require.NoError(e, err)
	return s
}

// resource has a policy lock a fixed resource.
func resource(name string) interceptor.ResourceFunc {
	return interceptor.ResourceFrom(func(string) string { return name })
}

const (
	forever = 10 * time.Minute // a lease whose end no test waits for
	soon    = 50 * time.Millisecond
)

// staged is a call of a stage with one argument, which retries soon.
func staged(name, arg string, timeout time.Duration) plan {
	p := call(name, arg)
	p.Options = workflow.ActivityOptions{
		StartToCloseTimeout: timeout,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: soon, BackoffCoefficient: 1},
	}
	return p
}
