package testsuite_test

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/testsuite"
)

// exampleT stands for the *testing.T of a test.
type exampleT struct {
	mu   sync.Mutex
	last []func()
}

func (t *exampleT) Helper() {}
func (t *exampleT) Cleanup(fn func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, fn)
}
func (t *exampleT) Errorf(format string, args ...any) {
	// The statement's place is left out, and what differs from run to run.
	for line := range strings.Lines(fmt.Sprintf(format, args...)) {
		if strings.HasPrefix(line, "this write") || strings.HasPrefix(line, "statement") || strings.HasPrefix(line, "cause") {
			fmt.Println(strings.TrimSpace(line))
		}
	}
}
func (t *exampleT) FailNow()              {}
func (t *exampleT) Fatalf(string, ...any) { panic("the example cannot be run") }
func (t *exampleT) Skipf(string, ...any)  { panic("the example cannot be run") }
func (t *exampleT) done() {
	for i := len(t.last) - 1; i >= 0; i-- {
		t.last[i]()
	}
}

// Greeter is a struct of activities.
type Greeter struct{ Greeted int }

// Greet counts how often it runs.
func (g *Greeter) Greet(_ context.Context, name string) (string, error) {
	g.Greeted++
	return "hello " + name, nil
}

func Example() {
	t := &exampleT{} // in a test: its t
	defer t.done()
	acts := &Greeter{}
	kit := testsuite.New(t, testsuite.Options{Guards: []interceptor.Guard{interceptor.For(acts.Greet, interceptor.Policy{})}})

	run := kit.Execute(acts.Greet, "Jo")
	again := run.NextAttempt() // Temporal has lost the result, and tries again
	var out string
	err := again.Result(&out)
	testsuite.RequireExecutedOnce(t, run, again)
	testsuite.RequireReplayed(t, again)
	fmt.Println(out, err, acts.Greeted)
	// Output: hello Jo <nil> 1
}

// The worker dies after the body has returned and before the result is stored.
func ExampleCall_CrashAt() {
	t := &exampleT{}
	defer t.done()
	acts := &Greeter{}
	kit := testsuite.New(t, testsuite.Options{Guards: []interceptor.Guard{interceptor.For(acts.Greet, interceptor.Policy{})}})

	dead := kit.Call(acts.Greet, "Jo").CrashAt(testsuite.BeforeComplete)
	fmt.Println(dead.Err())
	next := dead.NextAttempt()
	fmt.Println(next.Err(), next.Outcome(), acts.Greeted)
	// Output:
	// testsuite: the process has died
	// <nil> takeover 2
}

// Bank is a struct of activities on Postgres.
type Bank struct{ DB *pgxpool.Pool }

// Close writes without a fence.
func (b *Bank) Close(ctx context.Context, id int64) error {
	_, err := b.DB.Exec(ctx, "UPDATE accounts SET status = 'closed' WHERE id = $1", id)
	return err
}

// CloseFenced writes with one.
func (b *Bank) CloseFenced(ctx context.Context, id int64) error {
	return accounts.Update(ctx, b.DB, pgxfence.Change{
		Key: pgxfence.Values{"id": id}, Set: pgxfence.Values{"status": "closed"},
	})
}

func ExampleProveFenced() {
	database, stop := exampleDatabase()
	defer stop()
	t := &exampleT{}
	defer t.done()
	kit := testsuite.New(t, testsuite.Options{Postgres: database})
	bank := &Bank{DB: kit.Pool()}
	account := interceptor.Policy{Resource: interceptor.ResourceFrom(func(id int64) string { return fmt.Sprint("account/", id) })}
	kit.Guard(interceptor.For(bank.Close, account), interceptor.For(bank.CloseFenced, account))

	proof := testsuite.Proof{
		Input: int64(1),
		Reset: func(ctx context.Context) error {
			_, err := database.Exec(ctx, "UPDATE accounts SET status = 'open', fence_token = NULL")
			return err
		},
		State: func(ctx context.Context) (any, error) {
			var status string
			err := database.QueryRow(ctx, "SELECT status FROM accounts WHERE id = 1").Scan(&status)
			return status, err
		},
	}
	proof.Activity = bank.CloseFenced
	fmt.Printf("%+v\n", testsuite.ProveFenced(t, kit, proof))
	proof.Activity = bank.Close
	testsuite.ProveFenced(t, kit, proof)
	// Output:
	// {Steps:3 Runs:8}
	// this write got through the fence
	// statement 2 (postgres): UPDATE accounts SET status = 'closed' WHERE id = $1
	// cause: unfenced write: it carries no fencing token. Write by pgxfence.Table.Update and its neighbours, or in pgxfence.InTx
}

// exampleDatabase is a database with the tables of the tests.
func exampleDatabase() (pool *pgxpool.Pool, stop func()) {
	ctx := context.Background()
	name, err := server.CreateDatabase(ctx, template)
	if err != nil {
		panic(err)
	}
	if pool, err = pgxpool.New(ctx, server.URL(name)); err != nil {
		panic(err)
	}
	return pool, func() {
		pool.Close()
		_ = server.DropDatabase(ctx, name)
	}
}
