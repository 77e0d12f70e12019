package pgxfence_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// A child is this test binary once more, as a worker that the test can freeze. It
// holds token 5, prints "ready" where it is to be frozen, goes on at the next line
// of its input, and prints how it ended.
const (
	childVariable = "FENCEKIT_PGX_CHILD" // what to do
	childURL      = "FENCEKIT_PGX_URL"
)

func playChild() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	pool, err := pgxpool.New(ctx, os.Getenv(childURL))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	work := map[string]func(context.Context, *pgxpool.Pool) error{
		"claim": childClaims, "transaction": childInTx, "once": childOnce,
		"count claimed": childCounts(claimed), "count unclaimed": childCounts(unclaimed)}[os.Getenv(childVariable)]
	fmt.Println("ended:", outcome(work(with(ctx, 5), pool)))
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, fence.ErrStale):
		return "stale"
	case errors.Is(err, pgxfence.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, pgxfence.ErrIndeterminate):
		return "indeterminate"
	}
	return err.Error()
}

func readyAndWait() {
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

// childClaims claims the row and means to add 20 to what it has read.
func childClaims(ctx context.Context, pool *pgxpool.Pool) error {
	balance, err := pgxfence.Claim(ctx, pool, accounts,
		pgxfence.Change{Key: pgxfence.Values{"id": 1}, Returning: []string{"balance"}}, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	readyAndWait()
	return accounts.Update(ctx, pool, set(1, balance+20))
}

// childInTx adds 20 and is frozen before its commit.
func childInTx(ctx context.Context, pool *pgxpool.Pool) error {
	o := pgxfence.TxOptions{IdleTimeout: time.Second}
	return pgxfence.InTxOptions(ctx, pool, o, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance + 20 WHERE id = 1")
		readyAndWait()
		return err
	})
}

// childOnce debits; the test freezes it when it sees the commit.
func childOnce(ctx context.Context, pool *pgxpool.Pool) error {
	r, err := pgxfence.Once(ctx, pool, effect("k"), debit(ctx))
	if err == nil && r.Value.Balance != 100 {
		return fmt.Errorf("the receipt is %+v", r)
	}
	return err
}

// childCounts adds one again and again, each time under a token of its own, until
// its input ends. Then it prints how many increments were acknowledged.
func childCounts(add counter) func(context.Context, *pgxpool.Pool) error {
	return func(ctx context.Context, pool *pgxpool.Pool) error {
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			_, _ = io.Copy(io.Discard, os.Stdin)
		}()
		acknowledged := 0
		for {
			select {
			case <-stop:
				fmt.Println(acknowledged)
				return nil
			default:
			}
			var token int64
			if err := pool.QueryRow(ctx, "SELECT nextval('tokens')").Scan(&token); err != nil {
				return err
			}
			err := add(with(ctx, token), pool, func() {})
			if err == nil {
				acknowledged++
			} else if !errors.Is(err, fence.ErrStale) {
				return err
			}
		}
	}
}
