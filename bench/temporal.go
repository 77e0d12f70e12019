package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/internal/devstack"
)

// activities is what the third kind of table measures: one activity that does nothing,
// under a Temporal server, with and without a guard.
type activities struct {
	client client.Client
	rdb    *redis.Client
	queue  string
}

// effort is what one call has cost: time, while others are under way too, and processor
// time of the worker and Redis, which a busy machine changes less.
type effort struct{ time, cpu time.Duration }

const (
	workflowsAtOnce = 8
	plainActivity   = "plain"
	guardedActivity = "guarded"  // each call is an operation of its own
	replayActivity  = "replayed" // all calls are one operation
)

// Load is what a workflow of the benchmark does: activities one after another.
type Load struct {
	Activity string
	Local    bool
	Calls    int
}

// load is the name of a row, and what it runs.
type load struct {
	name string
	Load
	beside int // the row that it is compared with
}

// loads are as large as is needed for a round of some 100 ms.
func loads() []load {
	return []load{
		{"activity", Load{Activity: plainActivity, Calls: 5}, 0},
		{"guarded", Load{Activity: guardedActivity, Calls: 5}, 0},
		{"guarded, replayed", Load{Activity: replayActivity, Calls: 5}, 0},
		{"local activity", Load{Activity: plainActivity, Local: true, Calls: 20}, 3},
		{"local, guarded", Load{Activity: guardedActivity, Local: true, Calls: 20}, 3},
		{"local, guarded, replayed", Load{Activity: replayActivity, Local: true, Calls: 20}, 3},
	}
}

func runLoad(ctx workflow.Context, l Load) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: time.Minute})
	run := workflow.ExecuteActivity
	if l.Local {
		run = workflow.ExecuteLocalActivity
	}
	for range l.Calls {
		if err := run(ctx, l.Activity, "input").Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// temporalTable prints how guarded activities compare with others.
func temporalTable(ctx context.Context, rounds int) (err error) {
	server, err := devstack.StartTemporal(ctx, devstack.TemporalConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	r, err := devstack.StartRedis(ctx, devstack.RedisConfig{Own: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Stop()) }()
	c, err := server.Client()
	if err != nil {
		return err
	}
	a := &activities{
		client: c, queue: fmt.Sprintf("bench-%d", time.Now().UnixNano()),
		rdb: r.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true }),
	}
	w, err := a.worker()
	if err != nil {
		return err
	}
	defer w.Stop()
	took, err := a.interleave(ctx, rounds)
	if err == nil {
		printLoads(rounds, took)
	}
	return err
}

// worker is tuned as one would for throughput: enough pollers. Eager activities, the SDK's
// default, are off in the dev server.
func (a *activities) worker() (worker.Worker, error) {
	kit, err := interceptor.New(interceptor.Options{Redis: a.rdb, Guards: []interceptor.Guard{
		interceptor.For(guardedActivity, interceptor.Policy{}),
		interceptor.For(replayActivity, interceptor.Policy{Scope: interceptor.ScopeNamespace}),
	}})
	if err != nil {
		return nil, err
	}
	w := worker.New(a.client, a.queue, worker.Options{
		MaxConcurrentWorkflowTaskPollers: 8, MaxConcurrentActivityTaskPollers: 8,
		Interceptors: []sdk.WorkerInterceptor{kit},
	})
	w.RegisterWorkflowWithOptions(runLoad, workflow.RegisterOptions{Name: "load"})
	for _, name := range []string{plainActivity, guardedActivity, replayActivity} {
		w.RegisterActivityWithOptions(func(_ context.Context, in string) (string, error) { return in, nil },
			activity.RegisterOptions{Name: name})
	}
	return w, w.Start()
}

// interleave takes turns, as [server.interleave] does.
func (a *activities) interleave(ctx context.Context, rounds int) ([][]effort, error) {
	all := loads()
	took := make([][]effort, len(all))
	for round := range rounds + 1 { // the first one warms up and does not count
		for i, l := range all {
			d, err := a.round(ctx, l.Load)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l.name, err)
			}
			if round > 0 {
				took[i] = append(took[i], d)
			}
		}
	}
	return took, nil
}

// round is the effort for one activity, while many workflows call it.
func (a *activities) round(ctx context.Context, l Load) (effort, error) {
	cpu, err := a.cpu(ctx)
	if err != nil {
		return effort{}, err
	}
	start := time.Now()
	if err := a.run(ctx, l); err != nil {
		return effort{}, err
	}
	took := time.Since(start)
	after, err := a.cpu(ctx)
	calls := time.Duration(workflowsAtOnce * l.Calls)
	return effort{took / calls, (after - cpu) / calls}, err
}

func (a *activities) run(ctx context.Context, l Load) error {
	runs := make([]client.WorkflowRun, workflowsAtOnce)
	for i := range runs {
		var err error
		if runs[i], err = a.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: a.queue}, "load", l); err != nil {
			return err
		}
	}
	for _, run := range runs {
		if err := run.Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

func (a *activities) cpu(ctx context.Context) (time.Duration, error) {
	own, err := ownCPU()
	if err != nil {
		return 0, err
	}
	server, err := redisCPU(ctx, a.rdb)
	return own + server, err
}

func printLoads(rounds int, took [][]effort) {
	times, cpus := make([][]time.Duration, len(took)), make([][]time.Duration, len(took))
	for i := range took {
		for _, e := range took[i] {
			times[i], cpus[i] = append(times[i], e.time), append(cpus[i], e.cpu)
		}
	}
	fmt.Printf("Activities that do nothing, %d rounds of %d workflows at once\n\n", rounds, workflowsAtOnce)
	fmt.Println("| call | time | × unguarded (quartiles) | CPU of worker and Redis | × unguarded (quartiles) |\n|---|---|---|---|---|")
	for i, l := range loads() {
		fmt.Printf("| %s | %s | %s | %s | %s |\n", l.name, median(times[i]).Round(time.Microsecond), ratioOf(times[i], times[l.beside]),
			median(cpus[i]).Round(time.Microsecond), ratioOf(cpus[i], cpus[l.beside]))
	}
	fmt.Println()
}
