package interceptor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
)

// replayer is the SDK's, with these interceptors.
func replayer(t testing.TB, register func(worker.WorkflowReplayer), interceptors ...sdk.WorkerInterceptor) worker.WorkflowReplayer {
	t.Helper()
	r, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{Interceptors: interceptors})
	require.NoError(t, err)
	register(r)
	return r
}

// recorded is the whole history of a run.
func (e *env) recorded(run client.WorkflowRun) *historypb.History {
	e.Helper()
	return &historypb.History{Events: e.history(run, enumspb.EVENT_TYPE_UNSPECIFIED)}
}

// children are the runs that a workflow has started.
func (e *env) children(run client.WorkflowRun) (found []client.WorkflowRun) {
	e.Helper()
	for _, event := range e.history(run, enumspb.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED) {
		child := event.GetChildWorkflowExecutionStartedEventAttributes().GetWorkflowExecution()
		found = append(found, e.client.GetWorkflow(e.ctx(), child.GetWorkflowId(), child.GetRunId()))
	}
	return found
}

// made counts what a workflow's commands have left in a history.
func made(h *historypb.History) map[string]int {
	counts := map[string]int{}
	for _, event := range h.GetEvents() {
		if m := event.GetMarkerRecordedEventAttributes(); m != nil {
			counts["marker "+m.GetMarkerName()]++
		}
		switch event.GetEventType() {
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, enumspb.EVENT_TYPE_TIMER_STARTED,
			enumspb.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED, enumspb.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED,
			enumspb.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES, enumspb.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
			counts[event.GetEventType().String()]++
		}
	}
	return counts
}

// Histories from before the interceptor, with it, and from workers of both kinds, are
// replayed by both kinds: it makes no command of its own, and needs none.
func TestHistoriesReplayWithAndWithoutTheInterceptor(t *testing.T) {
	t.Parallel()
	with, without := []func(*worker.Options){}, []func(*worker.Options){bare}
	for name, c := range map[string]struct{ first, second []func(*worker.Options) }{
		"before": {without, without}, "after": {with, with}, "put on": {without, with}, "taken off": {with, without},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("note", interceptor.Policy{}))
			var n notes
			run, numbers := e.everywhere(&n, c.first, c.second)
			require.Len(t, numbers, 2*callsEverywhere)
			require.Equal(t, map[string]int{
				"marker LocalActivity":                 callsEverywhere - 1, // the child has one
				"marker SideEffect":                    1,                   // by the session, as two of the activities
				"ActivityTaskScheduled":                callsEverywhere - 1 + 2,
				"StartChildWorkflowExecutionInitiated": 1,
			}, made(e.recorded(run)), "commands are the workflow's own")
			children := e.children(run)
			require.Len(t, children, 1)
			for name, interceptors := range map[string][]sdk.WorkerInterceptor{"with": {e.interceptor()}, "without": nil} {
				r := replayer(t, func(r worker.WorkflowReplayer) {
					r.RegisterWorkflowWithOptions(everywhere, workflow.RegisterOptions{Name: "everywhere"})
					r.RegisterWorkflowWithOptions(noteBoth, workflow.RegisterOptions{Name: "child"})
				}, interceptors...)
				for _, run := range append(children, run) {
					require.NoError(t, r.ReplayWorkflowHistory(e.logs, e.recorded(run)), name)
				}
			}
			local, regular := n.count()
			require.Equal(t, 2*callsEverywhere, local+regular, "a replay runs nothing")
		})
	}
}

// A history that does not belong to the code fails the replay, with the interceptor as
// without: the test above can fail.
func TestAReplayOfOtherCodeFails(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("note", interceptor.Policy{}))
	var n notes
	e.worker(n.register)
	run, err := e.execute(client.StartWorkflowOptions{}, "child")
	require.NoError(t, err)
	require.NoError(t, run.Get(e.ctx(), nil))
	for _, interceptors := range [][]sdk.WorkerInterceptor{{e.interceptor()}, nil} {
		r := replayer(t, func(r worker.WorkflowReplayer) {
			r.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
				if _, err := noteLocal(ctx); err != nil {
					return err
				}
				_, err := noteBoth(ctx) // one local call too many
				return err
			}, workflow.RegisterOptions{Name: "child"})
		}, interceptors...)
		require.ErrorContains(t, r.ReplayWorkflowHistory(e.logs, e.recorded(run)), "TMPRL1100") // non-determinism
	}
}

// invoice is an argument of moderate size: about 2 KB as JSON.
type invoice struct {
	ID, Customer, Currency, Country string
	Due                             time.Time
	Paid                            *time.Time
	Lines                           []invoiceLine
	Labels                          map[string]string
}

type invoiceLine struct {
	SKU, Text string
	Count     int
	Price     float64
}

func newInvoice(n int) invoice {
	in := invoice{ID: fmt.Sprint("inv-", n), Customer: "customer-42", Currency: "EUR", Country: "NL",
		Due: time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC), Labels: map[string]string{}}
	for i := range 20 {
		in.Lines = append(in.Lines, invoiceLine{SKU: fmt.Sprint("sku-", i), Text: "a line of an invoice, of some length", Count: i, Price: 1.5})
		in.Labels[fmt.Sprint("label-", i)] = "value"
	}
	return in
}

const localCalls = 1000

// settleAll makes many local calls, all different.
func settleAll(ctx workflow.Context) error {
	ctx = noteOptions(ctx)
	for n := range localCalls {
		if err := workflow.ExecuteLocalActivity(ctx, "settle", newInvoice(n)).Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkReplay is a replay of a workflow with 1,000 local calls, of which "settle" is
// guarded and so digested anew, beside the same without the interceptor, in turns.
func BenchmarkReplay(b *testing.B) {
	e := newEnv(b, interceptor.For("settle", interceptor.Policy{}))
	name := workflow.RegisterOptions{Name: "settle-all"}
	e.worker(func(w worker.Registry) {
		w.RegisterWorkflowWithOptions(settleAll, name)
		w.RegisterActivityWithOptions(func(invoice) error { return nil }, registerAs("settle"))
	}, bare)
	run, err := e.execute(client.StartWorkflowOptions{}, "settle-all")
	require.NoError(b, err)
	require.NoError(b, run.Get(e.ctx(), nil))
	h := e.recorded(run)
	register := func(r worker.WorkflowReplayer) { r.RegisterWorkflowWithOptions(settleAll, name) }
	kinds := [][]sdk.WorkerInterceptor{nil, {e.interceptor()}}
	replay := func(kind int) time.Duration {
		r, began := replayer(b, register, kinds[kind]...), time.Now()
		require.NoError(b, r.ReplayWorkflowHistory(e.logs, h))
		return time.Since(began)
	}
	replay(0) // what comes first is slower
	var took [2]time.Duration
	for round := 0; b.Loop(); round++ {
		for i := range kinds {
			kind := (i + round) % 2
			took[kind] += replay(kind)
		}
	}
	for i, name := range []string{"without-ms", "with-ms"} {
		b.ReportMetric(float64(took[i].Milliseconds())/float64(b.N), name)
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "ratio")
	b.ReportMetric(0, "ns/op")
}
