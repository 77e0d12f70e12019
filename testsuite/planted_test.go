package testsuite_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives/fence"
	"github.com/fencekit/fencekit-go/testsuite"
)

var (
	accounts = pgxfence.Table{Name: pgx.Identifier{"accounts"}}
	marks    = pgxfence.Table{Name: pgx.Identifier{"marks"}}
)

// order is the input of the planted activities.
type order struct {
	Account int64
	Amount  int64
	Price   float64
	ID      string
}

func accountOf(o order) string { return fmt.Sprintf("account/%d", o.Account) }

// policy is what most of them need: one resource for one account.
func policy() interceptor.Policy {
	return interceptor.Policy{Resource: interceptor.ResourceFrom(accountOf)}
}

func set(o order, values pgxfence.Values) pgxfence.Change {
	return pgxfence.Change{Key: pgxfence.Values{"id": o.Account}, Set: values}
}

// shop is one test's activity and its surroundings.
type shop struct {
	kit    *testsuite.Kit
	pool   *pgxpool.Pool
	client *http.Client
	api    string

	mu     sync.Mutex
	cached *fence.Token
	calls  map[string]int // of the API, by idempotency key
	writer sync.WaitGroup
}

func newShop(t testsuite.TB, database *pgxpool.Pool) *shop {
	s := &shop{kit: testsuite.New(t, testsuite.Options{Postgres: database}), calls: map[string]int{}}
	s.pool = s.kit.Pool()
	server := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(server.Close)
	s.api = server.URL
	s.client = &http.Client{Transport: s.kit.RoundTripper(server.Client().Transport)}
	return s
}

// serve is a payment API: requests with one key are one payment.
func (s *shop) serve(_ http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		key = fmt.Sprint("request ", len(s.calls))
	}
	s.calls[key]++
}

func (s *shop) reset(ctx context.Context) error {
	s.mu.Lock()
	s.calls = map[string]int{}
	s.mu.Unlock()
	return resetTables(ctx, s.pool)
}

type world struct {
	Balance [2]int64
	Status  string
	Mark    string
	Paid    int
}

func (s *shop) state(ctx context.Context) (any, error) {
	var w world
	err := s.pool.QueryRow(ctx, `SELECT (SELECT balance FROM accounts WHERE id = 1), (SELECT balance FROM accounts WHERE id = 2),
		(SELECT status FROM accounts WHERE id = 1), coalesce((SELECT v FROM marks WHERE id = 1), '')`).
		Scan(&w.Balance[0], &w.Balance[1], &w.Status, &w.Mark)
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Paid = len(s.calls)
	return w, err
}

func (s *shop) pay(ctx context.Context, key string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.api+"/charges", nil)
	if err != nil {
		return err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

type body = func(ctx context.Context, o order) error

// plant is a faulty activity and its corrected twin.
type plant struct {
	name          string
	cause         string // in the message
	faulty, right func(s *shop) body

	policies [2]func(s *shop) interceptor.Policy // of the faulty one and the right one; nil: policy
	rivals   []any
	inputs   [2]any // nil: the usual one
	same     [2][]any
	guard    [2]bool // false: not guarded at all; used with unguarded
	unguard  bool    // guard is meant
	prove    func(testsuite.T, *testsuite.Kit, testsuite.Proof) testsuite.Report
}

func read(ctx context.Context, s *shop, o order) (balance int64, err error) {
	err = s.pool.QueryRow(ctx, "SELECT balance FROM accounts WHERE id = $1", o.Account).Scan(&balance)
	return balance, err
}

var plants = []plant{
	{
		name: "unfenced raw UPDATE", cause: "unfenced write",
		faulty: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				_, err := s.pool.Exec(ctx, "UPDATE accounts SET status = 'settled' WHERE id = $1", o.Account)
				return err
			}
		},
		right: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				return accounts.Update(ctx, s.pool, set(o, pgxfence.Values{"status": "settled"}))
			}
		},
	},
	{
		name: "read before claim", cause: "read before claim",
		rivals: []any{order{Account: 1, Amount: 5}},
		faulty: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				balance, err := read(ctx, s, o)
				if err != nil {
					return err
				}
				return once(ctx, s, func(tx pgx.Tx) error {
					return accounts.Update(ctx, tx, set(o, pgxfence.Values{"balance": balance + o.Amount}))
				})
			}
		},
		right: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				return once(ctx, s, func(tx pgx.Tx) error {
					balance, err := pgxfence.Claim(ctx, tx, accounts, pgxfence.Change{Key: pgxfence.Values{"id": o.Account},
						Returning: []string{"balance"}}, pgx.RowTo[int64])
					if err != nil {
						return err
					}
					return accounts.Update(ctx, tx, set(o, pgxfence.Values{"balance": balance + o.Amount}))
				})
			}
		},
	},
	{
		name: "read, computed, written without ledger", cause: "relative change without a ledger",
		faulty: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				balance, err := pgxfence.Claim(ctx, s.pool, accounts, pgxfence.Change{Key: pgxfence.Values{"id": o.Account},
					Returning: []string{"balance"}}, pgx.RowTo[int64])
				if err != nil {
					return err
				}
				return accounts.Update(ctx, s.pool, set(o, pgxfence.Values{"balance": balance + o.Amount}))
			}
		},
		right: settled,
	},
	{
		name: "relative update without ledger", cause: "relative change without a ledger",
		faulty: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				_, err := pgxfence.Exec(ctx, s.pool, pgxfence.Own{
					SQL: `UPDATE accounts SET balance = balance + @amount, fence_token = @fence_token
						WHERE id = @id AND coalesce(fence_token, 0) <= @fence_token`,
					Args: pgx.NamedArgs{"amount": o.Amount, "id": o.Account}, Table: accounts, Key: pgxfence.Values{"id": o.Account},
				})
				return err
			}
		},
		right: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				return once(ctx, s, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance + $1 WHERE id = $2", o.Amount, o.Account)
					return err
				})
			}
		},
	},
	{
		name: "effect before begin", cause: "effect before begin", unguard: true, guard: [2]bool{false, true},
		faulty: func(s *shop) body {
			return func(ctx context.Context, o order) error { // and nobody has guarded it
				_, err := s.pool.Exec(ctx, "UPDATE accounts SET balance = balance + 1 WHERE id = $1", o.Account)
				return err
			}
		},
		right: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				return accounts.Update(ctx, s.pool, set(o, pgxfence.Values{"balance": 1}))
			}
		},
	},
	{
		name: "swallowed ErrStale", cause: "swallowed refusal",
		faulty: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				if err := accounts.Update(ctx, s.pool, set(o, pgxfence.Values{"status": "settled"})); err != nil && !errors.Is(err, fence.ErrStale) {
					return err
				}
				return nil
			}
		},
		right: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				return accounts.Update(ctx, s.pool, set(o, pgxfence.Values{"status": "settled"}))
			}
		},
	},
	{
		name: "background context", cause: "background context",
		faulty: func(s *shop) body {
			return func(_ context.Context, o order) error {
				_, err := s.pool.Exec(context.Background(), "UPDATE accounts SET status = 'settled' WHERE id = $1", o.Account)
				return err
			}
		},
		right: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				return accounts.Update(ctx, s.pool, set(o, pgxfence.Values{"status": "settled"}))
			}
		},
	},
	{
		name: "background context with a helper", cause: "background context",
		faulty: func(s *shop) body {
			return func(_ context.Context, o order) error {
				return accounts.Update(context.Background(), s.pool, set(o, pgxfence.Values{"status": "settled"}))
			}
		},
		right: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				return pgxfence.InTx(ctx, s.pool, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "UPDATE accounts SET status = 'settled' WHERE id = $1", o.Account)
					return err
				})
			}
		},
	},
	{
		name: "goroutine that outlives the body", cause: "goroutine that outlives the body",
		faulty: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				s.writer.Go(func() {
					_ = accounts.Update(context.WithoutCancel(ctx), s.pool, set(o, pgxfence.Values{"status": "settled"}))
				})
				return nil
			}
		},
		right: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				var err error
				var writer sync.WaitGroup
				writer.Go(func() { err = accounts.Update(ctx, s.pool, set(o, pgxfence.Values{"status": "settled"})) })
				writer.Wait()
				return err
			}
		},
	},
	{
		name: "float in key", cause: "key too fine",
		inputs:   [2]any{order{Account: 1, Price: 0.3}, order{Account: 1, Amount: cents(0.3)}},
		same:     [2][]any{{order{Account: 1, Price: tenth + 0.2}}, {order{Account: 1, Amount: cents(tenth + 0.2)}}},
		policies: [2]func(*shop) interceptor.Policy{business, business},
		faulty:   settled, right: settled,
	},
	{
		name: "token cached across attempts", cause: "cached token",
		faulty: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				s.mu.Lock()
				if s.cached == nil {
					t, err := fence.FromContext(ctx)
					if err != nil {
						return err
					}
					s.cached = &t
				}
				ctx = fence.NewContext(ctx, *s.cached)
				s.mu.Unlock()
				return accounts.Update(ctx, s.pool, set(o, pgxfence.Values{"status": "settled"}))
			}
		},
		right: settled,
	},
	{
		name: "wrong resource", cause: "wrong resource",
		rivals: []any{order{Account: 1, Amount: 10, ID: "b"}},
		policies: [2]func(*shop) interceptor.Policy{
			func(*shop) interceptor.Policy {
				return interceptor.Policy{Resource: interceptor.ResourceFrom(func(o order) string { return "order/" + o.ID })}
			},
		},
		faulty: settled, right: settled,
	},
	{
		name: "outside call without a key", cause: "outside effect without an idempotency key",
		faulty: func(s *shop) body {
			return func(ctx context.Context, _ order) error { return s.pay(ctx, "") }
		},
		right: func(s *shop) body {
			return func(ctx context.Context, _ order) error {
				key, err := interceptor.IdempotencyKey(ctx, "charge")
				if err != nil {
					return err
				}
				return s.pay(ctx, key)
			}
		},
	},
	{
		name: "outside call with a key for each attempt", cause: "another idempotency key",
		faulty: func(s *shop) body {
			return func(ctx context.Context, _ order) error {
				t, err := fence.FromContext(ctx)
				if err != nil {
					return err
				}
				return s.pay(ctx, t.Value.String())
			}
		},
		right: func(s *shop) body {
			return func(ctx context.Context, _ order) error {
				key, err := interceptor.IdempotencyKey(ctx, "charge")
				if err != nil {
					return err
				}
				return s.pay(ctx, key)
			}
		},
	},
	{
		name: "DELETE then INSERT", cause: "DELETE then INSERT",
		faulty: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				return errors.Join(
					fencedExec(ctx, s, o, `DELETE FROM marks WHERE id = @id AND coalesce(fence_token, 0) <= @fence_token`),
					fencedExec(ctx, s, o, `INSERT INTO marks (id, v, fence_token) VALUES (@id, 'new', @fence_token)
						ON CONFLICT (id) DO UPDATE SET v = 'new', fence_token = @fence_token`))
			}
		},
		right: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				if err := marks.Delete(ctx, s.pool, pgxfence.Change{Key: pgxfence.Values{"id": o.Account}}); err != nil && !errors.Is(err, pgxfence.ErrNotFound) {
					return err
				}
				return marks.Upsert(ctx, s.pool, set(o, pgxfence.Values{"v": "new"}))
			}
		},
	},
	{
		name: "raw write to Redis", cause: "primitives.Gate",
		faulty: func(s *shop) body {
			return func(ctx context.Context, _ order) error {
				return s.kit.Redis().Set(ctx, s.kit.Prefix()+":status", "settled", 0).Err()
			}
		},
		right: settled,
	},
	{
		name: "raw transaction", cause: "unfenced write",
		faulty: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "UPDATE accounts SET status = 'settled' WHERE id = $1", o.Account)
					return err
				})
			}
		},
		right: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				return pgxfence.InTx(ctx, s.pool, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "UPDATE accounts SET status = 'settled' WHERE id = $1", o.Account)
					return err
				})
			}
		},
	},
	{
		name: "outside call repeated after a crash", cause: "outside effect without an idempotency key",
		prove: testsuite.ProveIdempotent,
		faulty: func(s *shop) body {
			return func(ctx context.Context, _ order) error { return s.pay(ctx, "") }
		},
		right: func(s *shop) body {
			return func(ctx context.Context, _ order) error {
				key, err := interceptor.IdempotencyKey(ctx, "charge")
				if err != nil {
					return err
				}
				return s.pay(ctx, key)
			}
		},
	},
	{
		name: "relative update repeated after a crash", cause: "relative change without a ledger",
		prove: testsuite.ProveIdempotent,
		faulty: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				return pgxfence.InTx(ctx, s.pool, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance + 1 WHERE id = $1", o.Account)
					return err
				})
			}
		},
		right: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				return once(ctx, s, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance + 1 WHERE id = $1", o.Account)
					return err
				})
			}
		},
	},
}

func business(*shop) interceptor.Policy {
	p := policy()
	p.Scope = interceptor.ScopeNamespace
	return p
}

func cents(price float64) int64 { return int64(math.Round(price * 100)) }

var tenth = 0.1 // a variable: the compiler adds constants exactly

func settled(s *shop) body {
	return func(ctx context.Context, o order) error {
		return accounts.Update(ctx, s.pool, set(o, pgxfence.Values{"status": "settled"}))
	}
}

func once(ctx context.Context, s *shop, fn func(tx pgx.Tx) error) error {
	a, _ := interceptor.Attempt(ctx)
	_, err := pgxfence.Once(ctx, s.pool, pgxfence.Effect{Key: a.Key.String(), Name: "deposit"}, func(tx pgx.Tx) (bool, error) {
		return true, fn(tx)
	})
	return err
}

func fencedExec(ctx context.Context, s *shop, o order, sql string) error {
	_, err := pgxfence.Exec(ctx, s.pool, pgxfence.Own{SQL: sql, Args: pgx.NamedArgs{"id": o.Account}})
	return err
}

// prove proves one of the two.
func (p plant) run(t *fakeT, database *pgxpool.Pool, which int) (report testsuite.Report) {
	s := newShop(t, database)
	fn := p.faulty(s)
	if which == 1 {
		fn = p.right(s)
	}
	pol := policy()
	if make := p.policies[which]; make != nil {
		pol = make(s)
	}
	name := "settle"
	if p.unguard && !p.guard[which] {
		name = "something else"
	}
	s.kit.Guard(interceptor.For(name, pol))
	s.kit.Register(fn, registerAs("settle"))
	prove := p.prove
	if prove == nil {
		prove = testsuite.ProveFenced
	}
	defer s.writer.Wait()
	input := p.inputs[which]
	if input == nil {
		input = order{Account: 1, Amount: 10, ID: "a"}
	}
	return prove(t, s.kit, testsuite.Proof{
		Activity: "settle", Input: input, Reset: s.reset, State: s.state, Rivals: p.rivals, Same: p.same[which],
	})
}

func TestPlantedBugs(t *testing.T) {
	t.Parallel()
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			f := tried(func(f *fakeT) { p.run(f, db, 0) })
			requireFails(t, f, p.cause)
			t.Log(firstLines(f.text))
			db = database(t)
			var report testsuite.Report
			f = tried(func(f *fakeT) { report = p.run(f, db, 1) })
			requirePasses(t, f)
			require.Positive(t, report.Steps)
			t.Logf("its twin: %+v", report)
		})
	}
}
