//go:build unix

package crash_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// endlessLease is a lease that no test lives to see the end of: where a test passes
// with it, nobody has waited for a TTL.
const endlessLease = 10 * time.Minute

// rig is one test's database, task queue, workflows and worker processes. The
// workflows themselves run in the test's process: it is activities that are broken.
type rig struct {
	*testing.T

	order   order
	db      *pgxpool.Pool
	client  client.Client
	live    map[int]*devstack.Child // by number
	heard   chan heard
	batches []Batch
	runs    []client.WorkflowRun
}

// heard is a line that a worker process has printed.
type heard struct {
	worker int
	line   string
}

var rigs atomic.Int64

func newRig(t *testing.T, o order) *rig {
	t.Helper()
	temporal, err := sharedTemporal()
	require.NoError(t, err)
	if o.Redis == "" {
		r, err := sharedRedis()
		require.NoError(t, err)
		o.Redis = r.Addr()
	}
	if o.LeaseTTL == 0 {
		o.LeaseTTL = endlessLease
	}
	o.Temporal, o.Postgres = temporal.Addr(), database(t)
	o.Queue = fmt.Sprintf("crash%d-%d", os.Getpid(), rigs.Add(1))
	r := &rig{T: t, order: o, live: map[int]*devstack.Child{}, heard: make(chan heard, 1000)}
	r.client = temporal.ClientForTest(t)
	r.db, err = pgxpool.New(t.Context(), o.Postgres)
	require.NoError(t, err)
	t.Cleanup(r.db.Close)
	w := worker.New(r.client, o.Queue, worker.Options{LocalActivityWorkerOnly: true})
	w.RegisterWorkflowWithOptions(runBatch, workflow.RegisterOptions{Name: "batch"})
	w.RegisterWorkflowWithOptions(runRehosted, workflow.RegisterOptions{Name: "rehosted"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return r
}

// spawn starts a worker process and returns when it works.
func (r *rig) spawn() *devstack.Child {
	r.Helper()
	r.order.Worker++
	o, n := r.order, r.order.Worker
	text, err := json.Marshal(o)
	require.NoError(r, err)
	c := devstack.ChildForTest(r, devstack.ChildConfig{Env: []string{childEnv + "=" + string(text)}})
	line, err := c.Line(r.patience())
	require.NoError(r, err)
	require.Equal(r, "ready", line)
	r.live[n] = c
	go func() {
		for {
			line, err := c.Line(context.Background())
			if err != nil {
				return
			}
			r.heard <- heard{n, line}
		}
	}()
	return c
}

// patience is how long anything may take that happens for sure.
func (r *rig) patience() context.Context {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Minute)
	r.Cleanup(cancel)
	return ctx
}

// next waits for a line that begins with one of the words.
func (r *rig) next(words ...string) heard {
	r.Helper()
	ctx := r.patience()
	for {
		select {
		case <-ctx.Done():
			require.FailNow(r, "no worker has said any of", "%v", words)
		case h := <-r.heard:
			for _, word := range words {
				if strings.HasPrefix(h.line, word) {
					return h
				}
			}
		}
	}
}

// start starts batches of some steps each.
func (r *rig) start(batches, steps int) {
	r.Helper()
	for id := range batches {
		for _, table := range []string{"accounts", "progress"} {
			_, err := r.db.Exec(r.Context(), "INSERT INTO "+table+" (batch) VALUES ($1)", id)
			require.NoError(r, err)
		}
		r.batches = append(r.batches, Batch{id, steps})
	}
	for _, b := range r.batches {
		r.runs = append(r.runs, r.workflow(b))
	}
}

func (r *rig) workflow(b Batch) client.WorkflowRun {
	r.Helper()
	run, err := r.client.ExecuteWorkflow(r.Context(), client.StartWorkflowOptions{TaskQueue: r.order.Queue}, r.kind(), b)
	require.NoError(r, err)
	return run
}

func (r *rig) kind() string {
	if r.order.OwnQueue {
		return "rehosted"
	}
	return "batch"
}

// last is the last step of a batch.
func (b Batch) last() Step { return Step{b.ID, b.Steps} }

// finish waits for every workflow, and for the right result of each.
func (r *rig) finish() {
	r.Helper()
	ctx := r.patience()
	for i, run := range r.runs {
		var total int64
		require.NoError(r, run.Get(ctx, &total))
		require.Equal(r, r.batches[i].last().total(), total)
	}
}

// finished reports whether the batches have been at their last step. Without the kit
// one may have been taken back from it.
func (r *rig) finished() bool {
	n := 0
	for _, b := range r.batches {
		if one[bool](r, `SELECT EXISTS (SELECT FROM progress WHERE batch = $1 AND step >= $2)
			OR EXISTS (SELECT FROM lost WHERE batch = $1 AND from_step >= $2)`, b.ID, b.Steps) {
			n++
		}
	}
	return n == len(r.batches)
}

// passed waits until a batch is beyond a step.
func (r *rig) passed(s Step) {
	r.Helper()
	require.Eventually(r, func() bool {
		return one[int](r, "SELECT step FROM progress WHERE batch = $1", s.Batch) > s.Number
	}, 2*time.Minute, 20*time.Millisecond)
}

// one reads one value.
func one[V any](r *rig, sql string, args ...any) (v V) {
	r.Helper()
	require.NoError(r, r.db.QueryRow(r.Context(), sql, args...).Scan(&v))
	return v
}

// books is what the database holds at the end, beside what it should.
type books struct {
	Balance, Total int64
	Lost           int // writes that took a batch back
}

func (r *rig) books() (got, want books) {
	r.Helper()
	for _, b := range r.batches {
		want.Balance += b.last().total()
	}
	want.Total = want.Balance
	got.Balance = one[int64](r, "SELECT sum(balance)::bigint FROM accounts")
	got.Total = one[int64](r, "SELECT sum(total)::bigint FROM progress")
	got.Lost = one[int](r, "SELECT count(*) FROM lost")
	return got, want
}

// guarded is the order of a worker that does everything right.
func guarded() order {
	return order{Guarded: true, Fenced: true}
}
