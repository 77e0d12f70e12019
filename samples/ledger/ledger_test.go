package ledger_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
	"github.com/fencekit/fencekit-go/samples/ledger"
)

// queueVariable makes the test binary a worker, and names its queue.
const queueVariable = "FENCEKIT_LEDGER_QUEUE"

func TestMain(m *testing.M) {
	if queue := os.Getenv(queueVariable); queue != "" {
		stack.Main(func(ctx context.Context) error { return dyingWorker(ctx, queue) })
		return
	}
	os.Exit(m.Run())
}

// dyingWorker tells when a deposit is committed, and does not get any further.
func dyingWorker(ctx context.Context, queue string) error {
	s, err := stack.Connect(ctx, stack.Config{Temporal: true, Postgres: true})
	if err != nil {
		return err
	}
	acts := &ledger.Activities{DB: s.Postgres, AfterCommit: func() {
		fmt.Println("committed")
		select {}
	}}
	kit, err := newKit(s, queue, acts)
	if err != nil {
		return err
	}
	c, err := s.Dial(func(o *client.Options) { o.Plugins = []client.Plugin{kit.Plugin()} })
	if err != nil {
		return err
	}
	w := worker.New(c, queue, worker.Options{})
	ledger.Register(w, acts)
	return w.Run(nil)
}

func newKit(s *stack.Stack, queue string, acts *ledger.Activities) (*interceptor.Interceptor, error) {
	return interceptor.New(interceptor.Options{
		Redis: s.Redis, Store: primitives.Options{Prefix: queue}, Guards: ledger.Guards(acts),
	})
}

// A worker is killed right after the commit. Temporal runs the activity again, and the
// balance has the deposit once.
func TestKilledAfterTheCommit(t *testing.T) {
	t.Parallel()
	s := stack.ForTest(t, stack.Config{Temporal: true, Postgres: true})
	require.NoError(t, ledger.Prepare(t.Context(), s.Postgres, "jo"))
	queue := stack.Unique(ledger.TaskQueue)
	doomed := devstack.ChildForTest(t, devstack.ChildConfig{Env: append(s.Env(), queueVariable+"="+queue)})

	c, err := s.Dial()
	require.NoError(t, err)
	run := book(t, c, queue)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	line, err := doomed.Line(ctx)
	require.NoError(t, err)
	require.Equal(t, "committed", line)
	require.NoError(t, doomed.Kill())

	acts := &ledger.Activities{DB: s.Postgres}
	kit, err := newKit(s, queue, acts)
	require.NoError(t, err)
	s.WorkForTest(t, queue, kit, func(w worker.Registry) { ledger.Register(w, acts) })
	require.Equal(t, ledger.Booking{Balance: 100}, result(t, run))
	require.Equal(t, ledger.Booking{Balance: 100}, result(t, book(t, c, queue)), "another workflow, the same deposit")

	var balance int64
	require.NoError(t, s.Postgres.QueryRow(t.Context(), "SELECT balance FROM ledger_accounts WHERE name = 'jo'").Scan(&balance))
	require.EqualValues(t, 100, balance)
}

func book(t *testing.T, c client.Client, queue string) client.WorkflowRun {
	t.Helper()
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue},
		ledger.Book, ledger.Deposit{ID: queue, Account: "jo", Cents: 100})
	require.NoError(t, err)
	return run
}

func result(t *testing.T, run client.WorkflowRun) (b ledger.Booking) {
	t.Helper()
	require.NoError(t, run.Get(t.Context(), &b))
	return b
}
