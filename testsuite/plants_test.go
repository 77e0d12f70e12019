package testsuite_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives/fence"
	"github.com/fencekit/fencekit-go/testsuite"
)

// plants are the bugs that ProveFenced and ProveIdempotent must find and name.
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
		name: "goroutine that is a statement and nothing else", cause: "goroutine that outlives the body",
		faulty: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				go s.pool.Exec(ctx, "UPDATE accounts SET status = 'settled' WHERE id = $1", o.Account) //nolint:errcheck // nobody waits for it
				return nil
			}
		},
		right: settled,
	},
	{
		name: "goroutine that has not written yet", cause: "goroutine that outlives the body",
		faulty: func(s *shop) body {
			return func(ctx context.Context, o order) error {
				s.writer.Go(func() { <-s.closing })
				return settled(s)(ctx, o)
			}
		},
		right: settled,
	},
	{
		name: "N14 rounded clock in the key", cause: "functions of the input alone", prove: testsuite.ProveIdempotent,
		policies: [2]func(*shop) interceptor.Policy{clocked(time.Minute), business},
		faulty:   settled, right: settled,
	},
	{
		name: "N14 the year in the key", cause: "functions of the input alone", prove: testsuite.ProveIdempotent,
		policies: [2]func(*shop) interceptor.Policy{clocked(365 * 24 * time.Hour), business},
		faulty:   settled, right: settled,
	},
	{
		name: "N14 a clock in the resource", cause: "functions of the input alone", prove: testsuite.ProveIdempotent,
		policies: [2]func(*shop) interceptor.Policy{func(s *shop) interceptor.Policy {
			p := policy()
			p.Resource = interceptor.ResourceFrom(func(o order) string { return time.Now().Format(time.DateOnly) })
			return p
		}, business},
		faulty: settled, right: settled,
	},
	{
		name: "N14 a clock beside a hidden field", cause: "functions of the input alone", prove: testsuite.ProveIdempotent,
		inputs: [2]any{order{Account: 1, note: "x"}, order{Account: 1}},
		policies: [2]func(*shop) interceptor.Policy{func(s *shop) interceptor.Policy {
			p := policy()
			p.Resource = interceptor.ResourceFrom(func(o order) string { return time.Now().Format(time.DateOnly) })
			return p
		}, business},
		faulty: settled, right: settled,
	},
	{
		name: "N14 a clock in what is compared", cause: "functions of the input alone", prove: testsuite.ProveIdempotent,
		policies: [2]func(*shop) interceptor.Policy{func(s *shop) interceptor.Policy {
			p := business(s)
			p.Key = interceptor.KeyFrom(func(o order) any { return o.Account })
			p.Compare = interceptor.CompareFrom(func(o order) any { return time.Now().Year() })
			return p
		}, business},
		faulty: settled, right: settled,
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
