package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/goleak"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives"
)

// The servers for all tests that do not break them.
var (
	sharedRedis = devstack.Shared(func(ctx context.Context) (*devstack.Redis, error) {
		return devstack.StartRedis(ctx, devstack.RedisConfig{})
	})
	sharedTemporal = devstack.Shared(func(ctx context.Context) (*devstack.Temporal, error) {
		return devstack.StartTemporal(ctx, devstack.TemporalConfig{})
	})
)

func TestMain(m *testing.M) {
	code := m.Run()
	_ = devstack.StopShared()
	if err := leaked(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines are left when all tests are over:", err)
		code = 1
	}
	os.Exit(code)
}

// leaked finds goroutines that outlive the tests. What waits for go-redis to give up
// on a server that hangs ends by itself, but late.
func leaked() (err error) {
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); {
		// A workflow task that timed out, as after a stall, may leave its coroutine behind.
		if err = goleak.Find(goleak.IgnoreTopFunction("go.temporal.io/sdk/internal.(*coroutineState).initialYield")); err == nil {
			return nil
		}
	}
	return err
}

// env is one test's own task queue, Redis prefix and interceptor options, on the shared
// servers.
type env struct {
	testing.TB
	queue  string
	rdb    *redis.Client
	client client.Client
	opts   interceptor.Options
	logs   *lines
}

var queues atomic.Int64

// newEnv prepares an env; change e.opts before e.worker.
func newEnv(t testing.TB, guards ...interceptor.Guard) *env {
	t.Helper()
	r, err := sharedRedis()
	require.NoError(t, err)
	s, err := sharedTemporal()
	require.NoError(t, err)
	queue := fmt.Sprintf("t%d-%d", os.Getpid(), queues.Add(1))
	rdb := redis.NewClient(&redis.Options{Addr: r.Addr(), ContextTimeoutEnabled: true, ReadTimeout: stall, WriteTimeout: stall})
	t.Cleanup(func() { _ = rdb.Close() })
	e := &env{TB: t, queue: queue, rdb: rdb, logs: &lines{}}
	e.client = s.ClientForTest(t, func(o *client.Options) { o.Logger = e.logs })
	e.opts = interceptor.Options{Redis: rdb, Store: primitives.Options{Prefix: queue, Timeout: stall}, Guards: guards}
	return e
}

// stall is what a client waits for a machine that stands still for some seconds, as
// those of a CI do: the tests go on after that as if nothing had been.
const stall = 30 * time.Second

// tooLong is for one call of a test. What comes later than that never comes.
const tooLong = 3 * time.Minute

var errTooLong = fmt.Errorf("a call of the test itself, by e.ctx(), had no answer within %v", tooLong)

// ctx is for one call that the test makes.
func (e *env) ctx() context.Context {
	ctx, cancel := context.WithTimeoutCause(e.Context(), tooLong, errTooLong)
	e.Cleanup(func() {
		if errors.Is(context.Cause(ctx), errTooLong) {
			e.Log(errTooLong)
		}
		cancel()
	})
	return ctx
}

func (e *env) interceptor() *interceptor.Interceptor {
	e.Helper()
	k, err := interceptor.New(e.opts)
	require.NoError(e, err)
	return k
}

// worker starts a worker with the interceptor on it; it stops with the test.
func (e *env) worker(register func(worker.Registry), edits ...func(*worker.Options)) worker.Worker {
	e.Helper()
	return e.workerWith(e.interceptor(), register, edits...)
}

func (e *env) workerWith(k *interceptor.Interceptor, register func(worker.Registry), edits ...func(*worker.Options)) worker.Worker {
	e.Helper()
	o := worker.Options{DeadlockDetectionTimeout: stall} // a second is too short for a machine that stands still
	o.Interceptors = append(o.Interceptors, k)
	for _, edit := range edits {
		edit(&o)
	}
	var w worker.Worker
	e.insist(func() error { // one that could not start cannot try again
		w = worker.New(e.client, e.queue, o)
		w.RegisterWorkflowWithOptions(runOne, workflow.RegisterOptions{Name: "run-one"})
		register(w)
		return w.Start()
	})
	e.Cleanup(w.Stop)
	return w
}

// insist makes a call of the server until there is an answer.
func (e *env) insist(call func() error) {
	e.Helper()
	require.NoError(e, insist(call))
}

// insist repeats a call that had no answer in time. It may have been heard all the same,
// so that an error of a later one, such as that it is done already, is an answer, too.
func insist(call func() error) error {
	err := call()
	if !unanswered(err) {
		return err
	}
	for end := time.Now().Add(time.Minute); unanswered(err) && time.Now().Before(end); time.Sleep(soon) {
		err = call()
	}
	if unanswered(err) {
		return err
	}
	return nil
}

// unanswered reports whether err is that of a server which stands still, or has just
// come up.
func unanswered(err error) bool {
	var (
		late    *serviceerror.DeadlineExceeded
		away    *serviceerror.Unavailable
		unready *serviceerror.NamespaceNotFound
	)
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &late) || errors.As(err, &away) || errors.As(err, &unready)
}

// plan is what the workflow run-one does: one activity.
type plan struct {
	Activity string
	Args     []any
	Key      string // by WithKey
	Local    bool
	Options  workflow.ActivityOptions
}

// runOne runs one activity and returns its result as it came.
func runOne(ctx workflow.Context, p plan) (any, error) {
	o := p.Options
	if o.StartToCloseTimeout == 0 {
		o.StartToCloseTimeout = time.Minute
	}
	if o.ScheduleToCloseTimeout == 0 {
		o.ScheduleToCloseTimeout = time.Hour
	}
	ctx = workflow.WithActivityOptions(ctx, o)
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: o.StartToCloseTimeout, ScheduleToCloseTimeout: o.ScheduleToCloseTimeout, RetryPolicy: o.RetryPolicy})
	if p.Key != "" {
		var err error
		if ctx, err = interceptor.WithKey(ctx, p.Key); err != nil {
			return nil, err
		}
	}
	var out any
	run := workflow.ExecuteActivity
	if p.Local {
		run = workflow.ExecuteLocalActivity
	}
	err := run(ctx, p.Activity, p.Args...).Get(ctx, &out)
	return out, err
}

// start starts run-one.
func (e *env) start(p plan) client.WorkflowRun {
	e.Helper()
	run, err := e.execute(client.StartWorkflowOptions{}, "run-one", p)
	require.NoError(e, err)
	return run
}

// execute starts a workflow on e's queue, and only once, however often it has to ask.
func (e *env) execute(o client.StartWorkflowOptions, name string, args ...any) (run client.WorkflowRun, err error) {
	o.TaskQueue, o.ID = e.queue, fmt.Sprintf("%s-%d", e.queue, queues.Add(1))
	o.WorkflowIDReusePolicy = enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE
	var last error
	err = insist(func() error {
		run, last = e.client.ExecuteWorkflow(e.ctx(), o, name, args...)
		return last
	})
	return run, errors.Join(err, last)
}

// terminate and cancel end a run from outside.
func (e *env) terminate(run client.WorkflowRun) {
	e.Helper()
	e.insist(func() error { return e.client.TerminateWorkflow(e.ctx(), run.GetID(), run.GetRunID(), "test") })
}

func (e *env) cancel(run client.WorkflowRun) {
	e.Helper()
	e.insist(func() error { return e.client.CancelWorkflow(e.ctx(), run.GetID(), run.GetRunID()) })
}

// run runs it to its end.
func (e *env) run(p plan) (out any, err error) {
	e.Helper()
	err = e.start(p).Get(e.ctx(), &out)
	return out, err
}

// call is an activity by name, with its arguments.
func call(name string, args ...any) plan { return plan{Activity: name, Args: args} }

// failure is the application error in a workflow's error.
func failure(t testing.TB, err error) *temporal.ApplicationError {
	t.Helper()
	var activity *temporal.ActivityError
	require.ErrorAs(t, err, &activity)
	var a *temporal.ApplicationError
	require.ErrorAs(t, err, &a)
	return a
}

// lines is a logger that keeps what it is told.
type lines struct {
	mu  sync.Mutex
	all []string
}

var _ log.Logger = (*lines)(nil)

func (l *lines) add(level, msg string, fields ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, level+" "+msg+" "+fmt.Sprint(fields...))
}

func (l *lines) Debug(msg string, f ...any) { l.add("DEBUG", msg, f...) }
func (l *lines) Info(msg string, f ...any)  { l.add("INFO", msg, f...) }
func (l *lines) Warn(msg string, f ...any)  { l.add("WARN", msg, f...) }
func (l *lines) Error(msg string, f ...any) { l.add("ERROR", msg, f...) }

// with are the lines that contain text.
func (l *lines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// eventually waits for something that no signal announces. It asks on the goroutine of
// the test, so that ok may require, too.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); !ok(); <-tick.C {
		if time.Now().After(end) {
			require.Fail(t, "waited in vain", what)
		}
	}
}

// named registers an activity under a name.
func named(name string, fn any) func(worker.Registry) {
	if reflect.TypeOf(fn).Kind() != reflect.Func {
		panic("not a function")
	}
	return func(w worker.Registry) { w.RegisterActivityWithOptions(fn, registerAs(name)) }
}
