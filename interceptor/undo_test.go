package interceptor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives"
)

// transfer is what a saga moves, from account 1 to account 2.
type transfer struct {
	ID    string
	Cents int64
}

// teller has the activities of a saga.
type teller struct {
	db     *bank
	plain  bool        // Refund does not say what it undoes
	ledger bool        // Withdraw has Policy.Ledger
	closed atomic.Bool // account 2
	dies   atomic.Bool // the next Refund
}

func (*teller) policy(account string) interceptor.Policy {
	return interceptor.Policy{
		Scope:    interceptor.ScopeNamespace,
		Key:      interceptor.KeyFrom(func(t transfer) any { return t.ID }),
		Resource: interceptor.ResourceFrom(func(transfer) string { return account }),
	}
}

func (s *teller) add(ctx context.Context, key, name string, account, cents int64) error {
	_, err := pgxfence.Once(ctx, s.db.Pool, pgxfence.Effect{Key: key, Name: name}, func(tx pgx.Tx) (bool, error) {
		_, err := tx.Exec(ctx, `UPDATE accounts SET balance = balance + $2 WHERE id = $1`, account, cents)
		return true, err
	})
	return err
}

func (s *teller) Withdraw(ctx context.Context, t transfer) error {
	return s.add(ctx, attemptOf(ctx).Key.String(), "withdraw", 1, -t.Cents)
}

func (s *teller) Deposit(ctx context.Context, t transfer) error {
	if s.closed.Load() {
		return temporal.NewNonRetryableApplicationError("the account is closed", "Closed", nil)
	}
	return s.add(ctx, attemptOf(ctx).Key.String(), "deposit", 2, t.Cents)
}

// Refund takes back what was withdrawn, once for each withdrawal.
func (s *teller) Refund(ctx context.Context, t transfer) error {
	if s.plain {
		return s.add(ctx, attemptOf(ctx).Key.String(), "refund", 1, t.Cents)
	}
	undone, err := interceptor.Undo(ctx, s.Withdraw, t)
	if err != nil {
		return err
	}
	key := undone.Key.String()
	if _, err = pgxfence.Lookup[bool](ctx, s.db.Pool, pgxfence.Effect{Key: key, Name: "withdraw"}); err == nil {
		err = s.add(ctx, key, "refund", 1, t.Cents)
	} else if errors.Is(err, pgxfence.ErrNotFound) { // it never happened, or was taken back
		err = nil
	}
	if err == nil && s.dies.CompareAndSwap(true, false) {
		panic("before it is completed")
	}
	return err
}

// saga withdraws, deposits, and takes the withdrawal back if the deposit fails.
func saga(ctx workflow.Context, t transfer) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute, ScheduleToCloseTimeout: time.Hour})
	if err := workflow.ExecuteActivity(ctx, "Withdraw", t).Get(ctx, nil); err != nil {
		return err
	}
	failed := workflow.ExecuteActivity(ctx, "Deposit", t).Get(ctx, nil)
	if failed == nil {
		return nil
	}
	if err := workflow.ExecuteActivity(ctx, "Refund", t).Get(ctx, nil); err != nil {
		return err
	}
	return failed
}

func (s *teller) register(w worker.Registry) {
	w.RegisterActivity(s.Withdraw)
	w.RegisterActivity(s.Deposit)
	w.RegisterActivity(s.Refund)
	w.RegisterWorkflowWithOptions(saga, workflow.RegisterOptions{Name: "saga"})
}

func (s *teller) balances() (from, to int64) {
	s.db.e.Helper()
	require.NoError(s.db.e, s.db.QueryRow(s.db.e.ctx(), `SELECT a.balance, b.balance FROM accounts a, accounts b WHERE a.id = 1 AND b.id = 2`).Scan(&from, &to))
	return from, to
}

func (e *env) transfer(t transfer) error {
	e.Helper()
	run, err := e.execute(client.StartWorkflowOptions{}, "saga", t)
	require.NoError(e, err)
	return run.Get(e.ctx(), nil)
}

func newTeller(e *env, s *teller) *teller {
	e.Helper()
	s.db = e.bank()
	_, err := s.db.Exec(e.ctx(), `INSERT INTO accounts VALUES (2, 0, 'nobody', NULL)`)
	require.NoError(e, err)
	withdraw, refund := s.policy("account/1"), s.policy("account/1")
	refund.Scope, refund.Key = interceptor.ScopeExecution, interceptor.KeyFunc{}
	if s.ledger {
		withdraw.Ledger = pgxfence.Ledger[bool](s.db.Pool, "withdraw")
	}
	e.opts.Guards = append(e.opts.Guards, interceptor.For(s.Withdraw, withdraw),
		interceptor.For(s.Deposit, s.policy("account/2")), interceptor.For(s.Refund, refund))
	return s
}

// moves runs a transfer, and looks at both accounts after it.
func (s *teller) moves(t transfer, closed bool, from, to int64) {
	s.db.e.Helper()
	s.closed.Store(closed)
	err := s.db.e.transfer(t)
	if closed {
		require.Equal(s.db.e, "Closed", failure(s.db.e, err).Type())
	} else {
		require.NoError(s.db.e, err)
	}
	a, b := s.balances()
	require.Equal(s.db.e, []int64{from, to}, []int64{a, b})
}

// N15: a transfer fails and is compensated, twice; the same transfer is submitted again, and
// moves its money once. Control: a compensation that does not say what it undoes.
func TestN15ATransferThatWasUndoneMovesItsMoney(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*teller{"undone": {}, "with a ledger": {ledger: true}, "control": {plain: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			newTeller(e, s)
			e.worker(s.register)
			s.moves(transfer{"T1", 100}, true, 0, 0)
			if s.plain {
				s.moves(transfer{"T1", 100}, false, 0, 100) // out of nothing
				return
			}
			s.dies.Store(true)
			s.moves(transfer{"T1", 100}, true, 0, 0)
			s.moves(transfer{"T1", 70}, false, -70, 70) // mended input, as after any failure
			s.moves(transfer{"T1", 70}, false, -70, 70)
			s.moves(transfer{"T2", 1}, false, -71, 71)
		})
	}
}

// N15: a ledger has what was undone. While Redis cannot say, it does not count, and once
// Redis has forgotten, it does: then only another key, or a row that is gone, moves money.
func TestN15ALedgerAndARedisThatForgets(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	rdb := e.ownRedis()
	s := newTeller(e, &teller{ledger: true})
	e.worker(s.register)
	s.moves(transfer{"T1", 100}, true, 0, 0)
	require.NoError(t, rdb.FlushAll(e.ctx()).Err())
	s.moves(transfer{"T1", 100}, false, 0, 100)
	s.moves(transfer{"T1 again", 100}, false, -100, 200)
}

// undoing has an activity "work", which counts, and one that undoes it.
type undoing struct {
	*env

	runs counted
	undo func(ctx context.Context, arg string) (interceptor.Undone, error)
	seen chan interceptor.Undone
}

// shared is the resource of both.
func shared(p interceptor.Policy) interceptor.Policy {
	p.Resource = interceptor.ResourceFromArgs(func([]any) string { return "shared" })
	return p
}

func newUndoing(t *testing.T, work, undo interceptor.Policy) *undoing {
	t.Helper()
	u := &undoing{env: newEnv(t, interceptor.For("work", work), interceptor.For("undo", undo)), seen: make(chan interceptor.Undone, 99)}
	u.undo = func(ctx context.Context, arg string) (interceptor.Undone, error) {
		return interceptor.Undo(ctx, "work", arg)
	}
	return u
}

func (u *undoing) work(ctx context.Context, _ string) (int, error) { return u.runs.ran(ctx), nil }

func (u *undoing) start() {
	u.Helper()
	u.worker(and(named("work", u.work),
		named("undo", func(ctx context.Context, arg string) (string, error) {
			undone, err := u.undo(ctx, arg)
			if err == nil {
				u.seen <- undone
			}
			return "undone", err
		})))
}

// N15: in every scope that shares operations, for regular and local activities, and as often
// as it happens.
func TestN15UndoneCallsRunAgain(t *testing.T) {
	t.Parallel()
	for _, scope := range []interceptor.Scope{interceptor.ScopeRun, interceptor.ScopeWorkflow, interceptor.ScopeNamespace} {
		t.Run(scope.String(), func(t *testing.T) {
			t.Parallel()
			u := newUndoing(t, shared(interceptor.Policy{Scope: scope}), shared(interceptor.Policy{}))
			u.start()
			work, undo := call("work", "x"), call("undo", "x")
			_, got := u.steps(undo, work, work.local(), call("work", "y"), undo, work, work, undo.local(), undo, work.local(), call("work", "y"), work)
			require.Equal(t, []any{"undone", 1.0, 1.0, 2.0, "undone", 3.0, 3.0, "undone", "undone", 4.0, 2.0, 4.0}, got)
			keys := u.runs.keys
			require.NotEqual(t, keys[0], keys[2])
			require.NotEqual(t, keys[2], keys[3])
			<-u.seen // never run
			require.Equal(t, keys[0], (<-u.seen).Key)
			require.Equal(t, keys[2], (<-u.seen).Key)
		})
	}
}

// N15: the request of an undone call and that of the next have different keys, or the other
// side would answer with what it has taken back; the compensation knows the first.
func TestN15IdempotencyKeysOfUndoneCalls(t *testing.T) {
	t.Parallel()
	u := newUndoing(t, shared(oncePerNamespace), shared(interceptor.Policy{}))
	sent := make(chan string, 9)
	u.worker(and(
		named("work", func(ctx context.Context, _ string) error {
			key, err := interceptor.IdempotencyKey(ctx, "charge")
			if err == nil && attemptOf(ctx).Outcome == primitives.Begun {
				sent <- key
			}
			return err
		}),
		named("undo", func(ctx context.Context, arg string) error {
			undone, err := interceptor.Undo(ctx, "work", arg)
			if err != nil {
				return err
			}
			key, err := undone.IdempotencyKey("charge")
			sent <- "void " + key
			return err
		})))
	u.steps(call("work", "x"), call("undo", "x"), call("work", "x"), call("undo", "x"))
	first, voided, second, again := <-sent, <-sent, <-sent, <-sent
	require.Equal(t, []string{"void " + first, "void " + second}, []string{voided, again})
	require.NotEqual(t, first, second)
	_, err := interceptor.Undone{}.IdempotencyKey("")
	require.ErrorIs(t, err, primitives.ErrInvalid)
}

// N15: a call whose key the workflow has set is undone by that key, and only by it, though
// the compensation's own call came with another.
func TestN15UndoneByTheWorkflowsOwnKey(t *testing.T) {
	t.Parallel()
	u := newUndoing(t, shared(oncePerNamespace), shared(interceptor.Policy{}))
	u.undo = func(ctx context.Context, arg string) (interceptor.Undone, error) {
		return interceptor.UndoKey(ctx, "work", arg, "the input")
	}
	u.start()
	a, b := call("work", "the input").keyed("A"), call("work", "the input").keyed("B")
	_, got := u.steps(a, b, call("work", "the input"), call("undo", "A"), a, b, call("work", "the input"))
	require.Equal(t, []any{1.0, 2.0, 3.0, "undone", 4.0, 2.0, 3.0}, got)
}

type order struct {
	Ref    string
	Parts  map[string]any
	hidden int
}

// books has an activity whose arguments do not look alike before and after a converter.
type books struct{ runs counted }

func (b *books) Order(ctx context.Context, _ *order, _ any, _ []int) (int, error) {
	return b.runs.ran(ctx), nil
}

// N15: arguments count as the worker of the activity sees them: through the converter, of
// the parameters' types, and undecoded for a dynamic one.
func TestN15ArgumentsOfUndoneCalls(t *testing.T) {
	t.Parallel()
	b := &books{}
	e := newEnv(t, interceptor.For(b.Order, shared(oncePerNamespace)), interceptor.ForDynamic(shared(oncePerNamespace)),
		interceptor.For("undo", shared(interceptor.Policy{})), interceptor.For("undo dynamic", shared(interceptor.Policy{})))
	args := []any{&order{"A", map[string]any{"n": 1, "s": []string{"x"}}, 7}, map[string]int{"k": 5}, nil}
	e.worker(and(
		func(w worker.Registry) {
			w.RegisterActivity(b.Order)
			w.RegisterDynamicActivity(func(ctx context.Context, _ converter.EncodedValues) (int, error) {
				return b.runs.ran(ctx), nil
			}, activity.DynamicRegisterOptions{})
		},
		named("undo", func(ctx context.Context) error { _, err := interceptor.Undo(ctx, b.Order, args...); return err }),
		named("undo dynamic", func(ctx context.Context) error { _, err := interceptor.Undo(ctx, "any", args...); return err })))
	_, got := e.steps(call("Order", args...), call("any", args...), call("Order", args...), call("any", args...),
		call("undo"), call("undo dynamic"), call("Order", args...), call("any", args...))
	require.Equal(t, []any{1.0, 2.0, 1.0, 2.0, nil, nil, 3.0, 4.0}, got)
}

// N15: what cannot be undone is named by field and rule, without a part of the input.
func TestN15UndoRefuses(t *testing.T) {
	t.Parallel()
	wide := shared(oncePerNamespace)
	byRef := wide
	byRef.Key = interceptor.KeyFrom(func(ref string) any { return ref })
	open := wide
	open.FailOpen = true
	elsewhere := oncePerNamespace
	elsewhere.Resource = interceptor.ResourceFrom(func(string) string { return "elsewhere" })
	typed := func(context.Context, string, int) error { return nil }
	e := newEnv(t, interceptor.For("undo", shared(interceptor.Policy{})), interceptor.For("wide undo", wide),
		interceptor.For("wide", byRef), interceptor.For("open", open), interceptor.For("elsewhere", elsewhere),
		interceptor.For("alone", oncePerNamespace), interceptor.For("execution", shared(interceptor.Policy{})),
		interceptor.For(typed, wide))
	answers := make(chan error, 99)
	var ask func(ctx context.Context) error
	body := func(ctx context.Context, _ string) error { answers <- ask(ctx); return nil }
	e.worker(and(named("undo", body), named("wide undo", body), named("free", body)))
	undo := func(activity any, args ...any) func(context.Context) error {
		return func(ctx context.Context) error { _, err := interceptor.Undo(ctx, activity, args...); return err }
	}
	for _, c := range []struct {
		in   string
		ask  func(context.Context) error
		want string
	}{
		{"free", undo("wide", "secret"), "ctx: is not that of a guarded activity"},
		{"wide undo", undo("wide", "secret"), "Policy.Scope: of the compensation wide undo is namespace"},
		{"undo", undo("nobody", "secret"), "activity: nobody is not guarded"},
		{"undo", undo(""), "activity: is an empty name"},
		{"undo", undo(nil), "activity: must be a function or a name"},
		{"undo", undo("wide", nil), "args: have a nil as argument 1"},
		{"undo", undo("undo"), "Policy.Scope: of undo is execution"},
		{"undo", undo("execution", "secret"), "Policy.Scope: of execution is execution"},
		{"undo", undo("open", "secret"), "Policy.FailOpen: of open"},
		{"undo", undo("elsewhere", "secret"), "Policy.Resource: of elsewhere and that of undo differ"},
		{"undo", undo("alone", "secret"), "Policy.Resource: of alone and that of undo differ"},
		{"undo", undo(typed, "secret"), "args: are 1, the activity takes 2"},
		{"undo", undo(typed, "secret", "secret"), "args: have a string as argument 2, the activity takes a int"},
		{"undo", undo("wide", 7), "it takes a string as argument 1, the call has a int"},
		{"undo", undo("wide", ""), "it identifies nothing"},
		{"undo", func(ctx context.Context) error { _, err := interceptor.UndoKey(ctx, "wide", "", "secret"); return err }, "it identifies nothing"},
	} {
		ask = c.ask
		_, err := e.run(call(c.in, c.want))
		require.NoError(t, err)
		err = await(t, answers, c.want)
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "secret")
	}
}
