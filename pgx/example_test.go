package pgxfence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// exampleDatabase is a database with the table accounts and the schema fencekit.
func exampleDatabase(ctx context.Context) (pool *pgxpool.Pool, stop func()) {
	name, err := server.CreateDatabase(ctx, template)
	if err != nil {
		panic(err)
	}
	pool, err = pgxpool.New(ctx, server.URL(name))
	if err != nil {
		panic(err)
	}
	return pool, func() {
		pool.Close()
		_ = server.DropDatabase(ctx, name)
	}
}

// grant stands for the guard, which puts the token of its lease into the context.
func grant(token fence.Value) context.Context {
	return fence.NewContext(context.Background(), fence.Token{Resource: "account/1", Value: token})
}

func Example() {
	pool, stop := exampleDatabase(context.Background())
	defer stop()
	accounts := pgxfence.Table{Name: pgx.Identifier{"accounts"}}
	settle := func(ctx context.Context, status string) error {
		return accounts.Update(ctx, pool, pgxfence.Change{
			Key: pgxfence.Values{"id": 1},
			Set: pgxfence.Values{"status": status},
		})
	}

	frozen := grant(41) // its lease has run out meanwhile
	fmt.Println(settle(grant(42), "settled"))
	err := settle(frozen, "open")
	fmt.Println(errors.Is(err, fence.ErrStale), err)
	fmt.Println(settle(context.Background(), "open"))
	// Output:
	// <nil>
	// true fence: stale token 41 for "account/1": the store has seen 42
	// fence: no token in context
}

// Read, compute, write. Without the claim both holders would read 0 and write 10.
func ExampleClaim() {
	pool, stop := exampleDatabase(context.Background())
	defer stop()
	accounts := pgxfence.Table{Name: pgx.Identifier{"accounts"}}
	key := pgxfence.Values{"id": 1}
	claim := func(ctx context.Context) (int64, error) {
		return pgxfence.Claim(ctx, pool, accounts, pgxfence.Change{Key: key, Returning: []string{"balance"}}, pgx.RowTo[int64])
	}
	write := func(ctx context.Context, balance int64) error {
		return accounts.Update(ctx, pool, pgxfence.Change{Key: key, Set: pgxfence.Values{"balance": balance}})
	}

	older, newer := grant(41), grant(42)
	a, _ := claim(older)
	b, _ := claim(newer) // has taken over
	fmt.Println(write(older, a+10))
	fmt.Println(write(newer, b+10))
	// Output:
	// fence: stale token 41 for "account/1": the store has seen 42
	// <nil>
}

func ExampleInTx() {
	pool, stop := exampleDatabase(context.Background())
	defer stop()
	transfer := func(ctx context.Context) error {
		return pgxfence.InTx(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance + 5 * (3 - 2 * id)")
			return err
		})
	}
	// The guard seals as soon as it has the lease, so the zombie is refused although
	// nothing has been written yet.
	fmt.Println(pgxfence.Seal(grant(42), pool))
	fmt.Println(transfer(grant(41)))
	fmt.Println(transfer(grant(42)))
	// Output:
	// <nil>
	// fence: stale token 41 for "account/1": the store has seen 42
	// <nil>
}

// The first attempt has committed and was killed before it could say so.
func ExampleOnce() {
	pool, stop := exampleDatabase(context.Background())
	defer stop()
	deposit := func(ctx context.Context) (pgxfence.Result[int64], error) {
		return pgxfence.Once(ctx, pool, pgxfence.Effect{Key: "payment/7", Name: "deposit"}, func(tx pgx.Tx) (balance int64, err error) {
			err = tx.QueryRow(ctx, "UPDATE accounts SET balance = balance + 100 WHERE id = 1 RETURNING balance").Scan(&balance)
			return balance, err
		})
	}
	for _, token := range []fence.Value{41, 42} {
		r, err := deposit(grant(token))
		fmt.Println(r.Value, r.Replayed, err)
	}
	// Output:
	// 100 false <nil>
	// 100 true <nil>
}

func ExampleTable_UpdateMany() {
	pool, stop := exampleDatabase(context.Background())
	defer stop()
	accounts := pgxfence.Table{Name: pgx.Identifier{"accounts"}}
	outcomes, err := accounts.UpdateMany(grant(42), pool, pgxfence.Changes{
		Key: []pgxfence.Column{{Name: "id", Values: []int64{1, 2, 3}}},
		Set: []pgxfence.Column{{Name: "balance", Values: []int64{10, 20, 30}}},
	})
	fmt.Println(outcomes, err)
	// Output: [<nil> <nil> pgxfence: no such row] <nil>
}

func ExampleExec() {
	pool, stop := exampleDatabase(context.Background())
	defer stop()
	changed, err := pgxfence.Exec(grant(42), pool, pgxfence.Own{
		SQL: `UPDATE accounts SET status = @status, fence_token = @fence_token
		      WHERE balance <= @limit AND coalesce(fence_token, 0) <= @fence_token`,
		Args: pgx.NamedArgs{"status": "empty", "limit": 0},
	})
	fmt.Println(changed, err)
	_, err = pgxfence.Exec(grant(42), pool, pgxfence.Own{SQL: "UPDATE accounts SET status = 'open'"})
	fmt.Println(err)
	// Output:
	// 2 <nil>
	// pgxfence: wrong call: SQL: it does not use @fence_token
}

func ExampleTracer() {
	ctx := context.Background()
	other, stop := exampleDatabase(ctx)
	defer stop()
	config := other.Config()
	config.ConnConfig.Tracer = &pgxfence.Tracer{OnUnfenced: func(_ context.Context, u pgxfence.Unfenced) {
		fmt.Println("unfenced:", u.SQL)
	}}
	pool, _ := pgxpool.NewWithConfig(ctx, config)
	defer pool.Close()
	_, _ = pool.Exec(grant(42), "UPDATE accounts SET balance = 1 WHERE false")
	// Output: unfenced: UPDATE accounts SET balance = 1 WHERE false
}
