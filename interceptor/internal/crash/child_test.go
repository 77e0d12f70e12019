package crash_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives"
)

// childEnv names the variable that makes the test binary a worker: it holds an order.
const childEnv = "FENCEKIT_CRASH_CHILD"

// order is what a worker process is told.
type order struct {
	Temporal, Redis, Postgres string // where they are
	Queue                     string // of tasks, and the prefix in Redis
	Worker                    int    // its number
	OwnQueue                  bool   // its tasks come by a queue of its own, as a session's do

	Guarded bool // by the interceptor
	Fenced  bool // it writes by pgxfence

	LeaseTTL   time.Duration
	RenewEvery time.Duration
	ByKey      bool // the key is the step, whichever workflow asks

	// Points are where the first run of a step stops until the parent says go. The
	// key is "batch/step".
	Points map[string]string
}

const (
	pointRead   = "read"   // the progress has been read and not been written
	pointEffect = "effect" // everything has been written and nothing been returned
	pointExit   = "exit"   // the same, and the process exits there as kill -9 would have it
)

// runChild is the main function of a worker process. It works until it is killed, or
// its standard input ends.
func runChild(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	pool, err := pgxpool.New(context.Background(), o.Postgres+"&pool_max_conns=20")
	if err != nil {
		return err
	}
	defer pool.Close()
	redis.SetLogger(silence{}) // it complains of every dial to a killed server
	rdb := redis.NewClient(&redis.Options{Addr: o.Redis, ContextTimeoutEnabled: true})
	defer rdb.Close()
	c, err := client.NewLazyClient(client.Options{
		HostPort: o.Temporal, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		ConnectionOptions: client.ConnectionOptions{GetSystemInfoTimeout: time.Minute}})
	if err != nil {
		return err
	}
	defer c.Close()
	options := worker.Options{DisableWorkflowWorker: true}
	if o.Guarded {
		kit, err := o.interceptor(rdb)
		if err != nil {
			return err
		}
		options.Interceptors = []sdk.WorkerInterceptor{kit}
	}
	p := &process{order: o, pool: pool, gates: map[string]chan struct{}{}}
	w := worker.New(c, o.tasks(), options)
	w.RegisterActivityWithOptions(p.step, activity.RegisterOptions{Name: "step"})
	if err := w.Start(); err != nil {
		return err
	}
	fmt.Println("ready")
	p.listen()
	w.Stop()
	return nil
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// tasks is the worker's task queue.
func (o order) tasks() string {
	if o.OwnQueue {
		return hostQueue(o.Queue, o.Worker)
	}
	return o.Queue
}

// told prints how calls begin and end, for tests that wait for it.
type told struct{}

func (told) Observe(_ context.Context, e primitives.Event) { fmt.Println(e.Kind, e.Err) }

func (o order) interceptor(rdb *redis.Client) (*interceptor.Interceptor, error) {
	policy := interceptor.Policy{
		LeaseTTL: o.LeaseTTL, RenewEvery: o.RenewEvery,
		Resource: interceptor.ResourceFrom(func(s Step) string { return fmt.Sprint("batch/", s.Batch) }),
	}
	if o.ByKey {
		policy.Scope = interceptor.ScopeNamespace
		policy.Key = interceptor.KeyFrom(func(s Step) any { return []int{s.Batch, s.Number} })
	}
	opts := interceptor.Options{
		Redis: rdb, Store: primitives.Options{Prefix: o.Queue, Timeout: 10 * time.Second},
		Guards: []interceptor.Guard{interceptor.For("step", policy)},
	}
	if o.OwnQueue {
		opts.Observer = told{}
	}
	return interceptor.New(opts)
}

// process is the worker's side of a test.
type process struct {
	order

	pool *pgxpool.Pool

	mu    sync.Mutex
	gates map[string]chan struct{} // by point
}

// listen opens the gates that the parent names.
func (p *process) listen() {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		close(p.gate(in.Text()))
	}
}

func (p *process) gate(name string) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gates[name] == nil {
		p.gates[name] = make(chan struct{})
	}
	return p.gates[name]
}

// step is the activity. It pays no attention to the end of its context, as a library
// that takes none would, so that nothing but the store stops a stale run.
func (p *process) step(ctx context.Context, s Step) (total int64, err error) {
	r := &run{process: p, ctx: context.WithoutCancel(ctx), step: s}
	defer func() {
		if ended := r.end(); err == nil {
			err = ended
		}
		if r.stopped != "" {
			fmt.Printf("ended %s %v\n", r.stopped, err)
		}
	}()
	for _, do := range []func() error{
		r.begin, r.credit, r.work, r.read, r.stop(pointRead), r.work, r.write, r.stop(pointEffect), r.stop(pointExit), r.work,
	} {
		if err := do(); err != nil {
			return 0, err
		}
	}
	return s.total(), nil
}

// run is one run of the activity's body.
type run struct {
	*process

	ctx     context.Context
	step    Step
	id      int64
	stopped string // the point where it waited
}

func (r *run) begin() error {
	a, _ := interceptor.Attempt(r.ctx)
	return r.pool.QueryRow(r.ctx, "INSERT INTO runs (batch, step, worker, attempt, outcome, token) VALUES ($1, $2, $3, $4, $5, $6) RETURNING id",
		r.step.Batch, r.step.Number, r.Worker, activity.GetInfo(r.ctx).Attempt, string(a.Outcome), int64(a.Token.Value)).Scan(&r.id)
}

// credit adds to the account, which is not safe to repeat.
func (r *run) credit() error {
	const add = "UPDATE accounts SET balance = balance + $2 WHERE batch = $1"
	if !r.Fenced {
		_, err := r.pool.Exec(r.ctx, add, r.step.Batch, r.step.amount())
		return err
	}
	key := fmt.Sprintf("%d/%d", r.step.Batch, r.step.Number)
	// A frozen process must not hold the row for longer than it takes to retry.
	e := pgxfence.Effect{Key: key, Name: "credit", Tx: pgxfence.TxOptions{IdleTimeout: attemptLimit / 2}}
	_, err := pgxfence.Once(r.ctx, r.pool, e, func(tx pgx.Tx) (int64, error) {
		_, err := tx.Exec(r.ctx, add, r.step.Batch, r.step.amount())
		return r.step.amount(), err
	})
	return err
}

var progress = pgxfence.Table{Name: pgx.Identifier{"progress"}}

func (r *run) change() pgxfence.Change {
	return pgxfence.Change{Key: pgxfence.Values{"batch": r.step.Batch}}
}

// read looks how far the batch is. Behind this step it has never been.
func (r *run) read() (err error) {
	var at int
	if r.Fenced {
		c := r.change()
		c.Returning = []string{"step"}
		at, err = pgxfence.Claim(r.ctx, r.pool, progress, c, pgx.RowTo[int])
	} else {
		err = r.pool.QueryRow(r.ctx, "SELECT step FROM progress WHERE batch = $1", r.step.Batch).Scan(&at)
	}
	if err == nil && at < r.step.Number-1 {
		_, err = r.pool.Exec(r.ctx, "INSERT INTO lost VALUES ($1, $2, $3)", r.step.Batch, r.step.Number-1, at)
	}
	return err
}

// write moves the batch to this step, by an absolute value.
func (r *run) write() error {
	if r.Fenced {
		c := r.change()
		c.Set = pgxfence.Values{"step": r.step.Number, "total": r.step.total()}
		return progress.Update(r.ctx, r.pool, c)
	}
	_, err := r.pool.Exec(r.ctx, "UPDATE progress SET step = $2, total = $3 WHERE batch = $1", r.step.Batch, r.step.Number, r.step.total())
	return err
}

// work takes a while, so that faults meet it.
func (r *run) work() error {
	time.Sleep(time.Duration(20+rand.IntN(80)) * time.Millisecond)
	return nil
}

// stop stops at a point that the order names, once in the whole test.
func (r *run) stop(point string) func() error {
	return func() error {
		name := fmt.Sprintf("%d/%d", r.step.Batch, r.step.Number)
		if r.Points[name] != point {
			return nil
		}
		tag, err := r.pool.Exec(r.ctx, "INSERT INTO points VALUES ($1) ON CONFLICT DO NOTHING", point)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		if point == pointExit {
			os.Exit(137)
		}
		r.stopped = point
		fmt.Println("at", point)
		<-r.gate(point)
		return nil
	}
}

// end notes that the body has returned, with a result or an error: what has begun and
// not ended was interrupted.
func (r *run) end() error {
	_, err := r.pool.Exec(r.ctx, "UPDATE runs SET ended = clock_timestamp() WHERE id = $1", r.id)
	return err
}
