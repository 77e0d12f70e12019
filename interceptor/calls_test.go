package interceptor_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/internal/devstack"
)

// notes is the activity note, which counts its runs and returns the number of each.
type notes struct {
	mu    sync.Mutex
	runs  int
	local int // of them
}

func (n *notes) note(ctx context.Context, _ string) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.runs++
	if activity.GetInfo(ctx).IsLocalActivity {
		n.local++
	}
	return n.runs, nil
}

func (n *notes) count() (local, regular int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.local, n.runs - n.local
}

// register is for a worker. It has the workflows of this file, too.
func (n *notes) register(w worker.Registry) {
	w.RegisterActivityWithOptions(n.note, registerAs("note"))
	w.RegisterWorkflowWithOptions(everywhere, workflow.RegisterOptions{Name: "everywhere"})
	w.RegisterWorkflowWithOptions(noteBoth, workflow.RegisterOptions{Name: "child"})
	w.RegisterWorkflowWithOptions(noteAndWait, workflow.RegisterOptions{Name: "note-and-wait"})
}

// withSessions has a worker take the activities of sessions.
func withSessions(o *worker.Options) { o.EnableSessionWorker = true }

// bare takes the interceptor from a worker.
func bare(o *worker.Options) { o.Interceptors = nil }

func noteOptions(ctx workflow.Context) workflow.Context {
	retries := &temporal.RetryPolicy{InitialInterval: soon, BackoffCoefficient: 1}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute, RetryPolicy: retries})
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: time.Minute, RetryPolicy: retries})
}

// noteLocal makes the local call that all in a test make.
func noteLocal(ctx workflow.Context) (n int, err error) {
	err = workflow.ExecuteLocalActivity(noteOptions(ctx), "note", "x").Get(ctx, &n)
	return n, err
}

// noteBoth makes it once as a local and once as a regular call.
func noteBoth(ctx workflow.Context) (numbers []int, err error) {
	local, err := noteLocal(ctx)
	if err != nil {
		return nil, err
	}
	var regular int
	err = workflow.ExecuteActivity(noteOptions(ctx), "note", "x").Get(ctx, &regular)
	return []int{local, regular}, err
}

// everywhere makes equal calls from all places that a workflow's code has, in two halves,
// and returns what they gave.
func everywhere(ctx workflow.Context) (numbers []int, err error) {
	updates, signals := 0, 0
	err = workflow.SetUpdateHandler(ctx, "update", func(ctx workflow.Context) error {
		got, err := noteBoth(ctx)
		numbers, updates = append(numbers, got...), updates+1
		return err
	})
	if err != nil {
		return nil, err
	}
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			workflow.GetSignalChannel(ctx, "signal").Receive(ctx, nil)
			got, failed := noteBoth(ctx)
			numbers, signals = append(numbers, got...), signals+1
			if failed != nil {
				err = failed
			}
		}
	})
	steps := []func(workflow.Context) ([]int, error){noteBoth, noteAtOnce, noteNothing, noteInChild, noteInSession, noteBoth}
	for i, step := range steps {
		got, err := step(ctx)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, got...)
		if half := i / 3; i%3 == 2 { // at the end of each half
			if err := workflow.Await(ctx, func() bool { return updates >= 2*(half+1) && signals > half }); err != nil {
				return nil, err
			}
			workflow.GetSignalChannel(ctx, "go on").Receive(ctx, nil)
		}
	}
	return numbers, err
}

func noteNothing(workflow.Context) ([]int, error) { return nil, nil }

// noteAtOnce makes the calls in two coroutines.
func noteAtOnce(ctx workflow.Context) (numbers []int, err error) {
	all := workflow.NewWaitGroup(ctx)
	for range 2 {
		all.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer all.Done()
			got, failed := noteBoth(ctx)
			numbers = append(numbers, got...)
			if failed != nil {
				err = failed
			}
		})
	}
	all.Wait(ctx)
	return numbers, err
}

func noteInChild(ctx workflow.Context) (numbers []int, err error) {
	err = workflow.ExecuteChildWorkflow(ctx, "child").Get(ctx, &numbers)
	return numbers, err
}

func noteInSession(ctx workflow.Context) ([]int, error) {
	in, err := workflow.CreateSession(noteOptions(ctx), &workflow.SessionOptions{ExecutionTimeout: time.Hour, CreationTimeout: time.Minute})
	if err != nil {
		return nil, err
	}
	defer workflow.CompleteSession(in)
	return noteBoth(in)
}

// The calls of [everywhere]: those of its own code, of two coroutines, a child, a session,
// four updates and two signals, local and regular.
const callsEverywhere = 2 + 2 + 1 + 1 + 4 + 2

// half sends what a half of [everywhere] waits for: two updates at once and a signal.
func (e *env) half(run client.WorkflowRun) {
	e.Helper()
	var updates sync.WaitGroup
	failed := make([]error, 2)
	for i := range failed {
		updates.Go(func() {
			h, err := e.client.UpdateWorkflow(e.Context(), client.UpdateWorkflowOptions{WorkflowID: run.GetID(), UpdateName: "update",
				UpdateID: fmt.Sprint(queues.Add(1)), WaitForStage: client.WorkflowUpdateStageCompleted})
			if err == nil {
				err = h.Get(e.Context(), nil)
			}
			failed[i] = err
		})
	}
	e.signal(run, "signal")
	updates.Wait()
	require.Equal(e, make([]error, 2), failed)
}

func (e *env) signal(run client.WorkflowRun, name string) {
	e.Helper()
	e.insist(func() error { return e.client.SignalWorkflow(e.ctx(), run.GetID(), run.GetRunID(), name, nil) })
}

// everywhere runs [everywhere] and returns what its calls gave. Another worker goes on at
// its half, which has nothing cached: it replays.
func (e *env) everywhere(n *notes, first, second []func(*worker.Options)) (run client.WorkflowRun, numbers []int) {
	e.Helper()
	w := e.worker(n.register, append(first, withSessions)...)
	run, err := e.execute(client.StartWorkflowOptions{}, "everywhere")
	require.NoError(e, err)
	e.half(run)
	w.Stop()
	e.signal(run, "go on")
	e.worker(n.register, append(second, withSessions)...)
	e.half(run)
	e.signal(run, "go on")
	require.NoError(e, run.Get(e.ctx(), &numbers))
	return run, numbers
}

// Equal calls from everywhere in a workflow: under ScopeExecution each of them is itself,
// also those that a worker makes which had to replay the others; under the wider scopes
// they are one, in each run, workflow id or at all.
func TestCallsFromEverywhere(t *testing.T) {
	t.Parallel()
	for scope, runs := range map[interceptor.Scope]int{
		interceptor.ScopeExecution: 2 * callsEverywhere, interceptor.ScopeRun: 2, interceptor.ScopeWorkflow: 2, interceptor.ScopeNamespace: 1,
	} {
		for name, eager := range map[string]bool{"eager": true, "not eager": false} {
			t.Run(scope.String()+", "+name, func(t *testing.T) {
				t.Parallel()
				e := newEnv(t, interceptor.For("note", interceptor.Policy{Scope: scope, Wait: 10 * time.Second}))
				if eager {
					ids := e.eager()
					defer func() { require.NotEmpty(t, ids) }()
				}
				var n notes
				_, numbers := e.everywhere(&n, nil, nil)
				require.Len(t, numbers, 2*callsEverywhere)
				different := map[int]bool{}
				for _, number := range numbers {
					different[number] = true
				}
				local, regular := n.count()
				t.Log(local, "local and", regular, "regular runs")
				require.Len(t, different, runs, numbers)
				require.Equal(t, runs, local+regular)
				if scope == interceptor.ScopeExecution {
					require.Equal(t, callsEverywhere, local)
				}
			})
		}
	}
}

// noteAndWait makes a local call, and then waits while an update makes its own.
func noteAndWait(ctx workflow.Context) (numbers []int, err error) {
	updated := false
	err = workflow.SetUpdateHandler(ctx, "update", func(ctx workflow.Context) (int, error) {
		n, err := noteLocal(ctx)
		updated = true
		return n, err
	})
	if err != nil {
		return nil, err
	}
	for range 2 {
		n, err := noteLocal(ctx)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, n)
	}
	return numbers, workflow.Await(ctx, func() bool { return updated })
}

// The handler of an update that starts its workflow is not called from the workflow's own
// code, and its local calls are counted with the others.
func TestAnUpdateThatStartsItsWorkflow(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("note", interceptor.Policy{}))
	var n notes
	e.worker(n.register)
	start := e.client.NewWithStartWorkflowOperation(client.StartWorkflowOptions{ID: e.queue, TaskQueue: e.queue,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL}, "note-and-wait")
	h, err := e.client.UpdateWithStartWorkflow(e.ctx(), client.UpdateWithStartWorkflowOptions{StartWorkflowOperation: start,
		UpdateOptions: client.UpdateWorkflowOptions{UpdateName: "update", WaitForStage: client.WorkflowUpdateStageCompleted}})
	require.NoError(t, err)
	var updated int
	require.NoError(t, h.Get(e.ctx(), &updated))
	run, err := start.Get(e.ctx())
	require.NoError(t, err)
	var numbers []int
	require.NoError(t, run.Get(e.ctx(), &numbers))
	require.ElementsMatch(t, []int{1, 2, 3}, append(numbers, updated))
}

// A workflow task fails after three equal local calls, the last two of which are not in
// history: when it is tried again, each of them is given its own result, for each has the
// number that it had.
func TestLocalCallsAreNumberedTheSameInAReplay(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("note", interceptor.Policy{}))
	var n notes
	tries := 0
	e.worker(and(n.register, func(w worker.Registry) {
		w.RegisterWorkflowWithOptions(func(ctx workflow.Context) (numbers []int, err error) {
			for i := range 3 {
				n, err := noteLocal(ctx)
				if err != nil {
					return nil, err
				}
				numbers = append(numbers, n)
				if i == 0 { // the first is in history from here on
					if err := workflow.Sleep(ctx, time.Millisecond); err != nil {
						return nil, err
					}
				}
			}
			tries++
			if tries < 3 {
				panic("the workflow task fails")
			}
			return numbers, nil
		}, workflow.RegisterOptions{Name: "panics"})
	}))
	run, err := e.execute(client.StartWorkflowOptions{}, "panics")
	require.NoError(t, err)
	var numbers []int
	require.NoError(t, run.Get(e.ctx(), &numbers))
	require.Equal(t, 3, tries)
	require.Equal(t, []int{1, 2, 3}, numbers)
	local, _ := n.count()
	require.Equal(t, 3, local)
}

// sharedEager is a Temporal that gives a worker the activities that it has just scheduled,
// which is off by default.
var sharedEager = devstack.Shared(func(ctx context.Context) (*devstack.Temporal, error) {
	return devstack.StartTemporal(ctx, devstack.TemporalConfig{DynamicConfig: []string{"system.enableActivityEagerExecution=true"}})
})

// eager puts e on that server, and tells the ids of the activities that came so.
func (e *env) eager() <-chan string {
	e.Helper()
	s, err := sharedEager()
	require.NoError(e, err)
	ids := make(chan string, 100)
	e.client = s.ClientForTest(e, func(o *client.Options) {
		o.Logger = e.logs
		o.ConnectionOptions.DialOptions = append(o.ConnectionOptions.DialOptions, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, c *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := next(ctx, method, req, reply, c, opts...)
				if r, ok := reply.(*workflowservice.RespondWorkflowTaskCompletedResponse); ok && err == nil {
					for _, task := range r.GetActivityTasks() {
						ids <- task.GetActivityId()
					}
				}
				return err
			}))
	})
	return ids
}

// The first attempt of an activity comes with the answer to the workflow task that has
// scheduled it, the second by its queue: they are one call.
func TestAnEagerAttemptAndItsRetry(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever}))
	eager := e.eager()
	s := newStage(e, "work")
	e.worker(s.register)
	run := e.start(staged("work", "x", forever))
	first := s.next()
	require.Equal(t, first.info.ActivityID, await(t, eager, "the eager attempt"))
	first.fail(temporal.NewApplicationError("not yet", "NotYet"))
	second := s.next()
	require.Empty(t, eager)
	second.give("done")
	require.NoError(t, run.Get(e.ctx(), nil))
	require.Equal(t, first.attempt.Key, second.attempt.Key)
	require.Equal(t, first.idempotencyKey(t), second.idempotencyKey(t))
	require.Greater(t, second.token(), first.token())
}

// idempotencyKey is what the run sends to somebody else.
func (r *entrance) idempotencyKey(t testing.TB) string {
	t.Helper()
	key, err := interceptor.IdempotencyKey(r.ctx, "charge")
	require.NoError(t, err)
	return key
}
