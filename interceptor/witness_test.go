package interceptor_test

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
)

// witness is an interceptor that sees what the kit answers before it crosses the wire,
// and an observer of what happens.
type witness struct {
	sdk.WorkerInterceptorBase

	mu      sync.Mutex
	answers []reply
	events  []primitives.Event
}

type reply struct {
	attempt int32
	result  any
	err     error
}

// attend puts a witness before the kit on e's workers.
func (e *env) attend() (w *witness, edit func(*worker.Options)) {
	w = &witness{}
	e.opts.Observer = w
	return w, func(o *worker.Options) { o.Interceptors = append([]sdk.WorkerInterceptor{w}, o.Interceptors...) }
}

func (w *witness) Observe(_ context.Context, e primitives.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// kinds counts the events of a kind.
func (w *witness) kinds(kind primitives.EventKind) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// all are the answers so far.
func (w *witness) all() []reply {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]reply(nil), w.answers...)
}

func (w *witness) InterceptActivity(_ context.Context, next sdk.ActivityInboundInterceptor) sdk.ActivityInboundInterceptor {
	i := &witnessed{witness: w}
	i.Next = next
	return i
}

type witnessed struct {
	sdk.ActivityInboundInterceptorBase

	witness *witness
}

func (i *witnessed) ExecuteActivity(ctx context.Context, in *sdk.ExecuteActivityInput) (any, error) {
	result, err := i.Next.ExecuteActivity(ctx, in)
	i.witness.mu.Lock()
	defer i.witness.mu.Unlock()
	i.witness.answers = append(i.witness.answers, reply{activity.GetInfo(ctx).Attempt, result, err})
	return result, err
}

// history are the events of a type in a workflow's history.
func (e *env) history(run client.WorkflowRun, kind enumspb.EventType) (found []*historypb.HistoryEvent) {
	e.Helper()
	all := e.client.GetWorkflowHistory(e.ctx(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for all.HasNext() {
		event, err := all.Next()
		require.NoError(e, err)
		if kind == enumspb.EVENT_TYPE_UNSPECIFIED || event.EventType == kind {
			found = append(found, event)
		}
	}
	return found
}

// results are what activities have returned to a workflow, as encoded.
func (e *env) results(run client.WorkflowRun) (found []*commonpb.Payloads) {
	e.Helper()
	for _, event := range e.history(run, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED) {
		found = append(found, event.GetActivityTaskCompletedEventAttributes().GetResult())
	}
	return found
}

// failures are the failures of a workflow's activities, as encoded.
func (e *env) failures(run client.WorkflowRun) (found []*failurepb.Failure) {
	e.Helper()
	for _, event := range e.history(run, enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED) {
		found = append(found, event.GetActivityTaskFailedEventAttributes().GetFailure())
	}
	return found
}

// written is everything in a workflow's history, as bytes.
func (e *env) written(run client.WorkflowRun) string {
	e.Helper()
	var b strings.Builder
	for _, event := range e.history(run, enumspb.EVENT_TYPE_UNSPECIFIED) {
		text, err := proto.Marshal(event)
		require.NoError(e, err)
		b.Write(text)
	}
	return b.String()
}

// keys are the names of the test's Redis keys.
func (e *env) keys() (names []string) {
	e.Helper()
	all := e.rdb.Scan(e.ctx(), 0, e.opts.Store.Prefix+":*", 1000).Iterator()
	for all.Next(e.ctx()) {
		names = append(names, all.Val())
	}
	require.NoError(e, all.Err())
	return names
}

// stored is everything in Redis: the names of the keys, and their values.
func (e *env) stored() string {
	e.Helper()
	var b strings.Builder
	for _, name := range e.keys() {
		fmt.Fprintf(&b, "%s: ", name)
		kind := e.rdb.Type(e.ctx(), name).Val()
		switch kind {
		case "none": // it has expired
		case "string":
			b.WriteString(e.rdb.Get(e.ctx(), name).Val())
		case "hash":
			for field, value := range e.rdb.HGetAll(e.ctx(), name).Val() {
				fmt.Fprintf(&b, "%s=%s ", field, value)
			}
		case "zset":
			b.WriteString(strings.Join(e.rdb.ZRange(e.ctx(), name, 0, -1).Val(), " "))
		case "list":
			b.WriteString(strings.Join(e.rdb.LRange(e.ctx(), name, 0, -1).Val(), " "))
		default:
			require.Fail(e, "a key of a type that the scan does not read", kind)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// records are the names of the operations' records.
func (e *env) records() (names []string) {
	e.Helper()
	for _, name := range e.keys() {
		if strings.Contains(name, ":op:") {
			names = append(names, name)
		}
	}
	return names
}

// runSteps is a workflow of several activities, one after another.
func runSteps(ctx workflow.Context, steps []plan) (results []any, err error) {
	for _, step := range steps {
		out, err := runOne(ctx, step)
		if err != nil {
			return nil, err
		}
		results = append(results, out)
	}
	return results, nil
}

// steps runs activities one after another in one workflow.
func (e *env) steps(plans ...plan) (run client.WorkflowRun, results []any) {
	e.Helper()
	run, err := e.client.ExecuteWorkflow(e.ctx(), client.StartWorkflowOptions{TaskQueue: e.queue}, runSteps, plans)
	require.NoError(e, err)
	require.NoError(e, run.Get(e.ctx(), &results))
	return run, results
}

// and registers several things.
func and(all ...func(worker.Registry)) func(worker.Registry) {
	return func(w worker.Registry) {
		w.RegisterWorkflow(runSteps)
		w.RegisterWorkflow(readFailure)
		for _, register := range all {
			register(w)
		}
	}
}

// once lets an activity fail at its first failure.
func (p plan) once() plan { return p.attempts(1) }

func (p plan) attempts(n int32) plan {
	p.Options.RetryPolicy = &temporal.RetryPolicy{MaximumAttempts: n, InitialInterval: 1e6, BackoffCoefficient: 1}
	return p
}

func (p plan) local() plan {
	p.Local = true
	return p
}

func (p plan) keyed(key string) plan {
	p.Key = key
	return p
}

// attemptOf is the attempt that a body has, which must be guarded.
func attemptOf(ctx context.Context) primitives.Attempt {
	a, ok := interceptor.Attempt(ctx)
	if !ok {
		panic("the body is not guarded")
	}
	return a
}
