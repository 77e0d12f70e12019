// Command stalefence shows why a lock alone does not protect what it locks, and what
// does: a holder that was away for longer than its lease lasts comes back and writes.
// No Temporal in it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
)

func main() {
	stack.Main(func(ctx context.Context) error {
		s, err := stack.Start(ctx, stack.Config{Postgres: true, OwnDatabase: true})
		if err != nil {
			return err
		}
		defer s.Close()
		return run(ctx, s, os.Stdout)
	})
}

const (
	report   = "report/daily"
	leaseTTL = 300 * time.Millisecond
)

var reports = pgxfence.Table{Name: pgx.Identifier{"reports"}}

// writer is a holder of the report's lease, as good as another process.
type writer struct {
	name string
	gate *primitives.Gate
	pool *pgxpool.Pool
}

func run(ctx context.Context, s *stack.Stack, out io.Writer) error {
	_, err := s.Postgres.Exec(ctx, `CREATE TABLE reports (name text PRIMARY KEY, body text, fence_token bigint);
		INSERT INTO reports (name, body) VALUES ('daily', 'none yet')`)
	if err != nil {
		return err
	}
	store, err := primitives.New(s.Redis, primitives.Options{Prefix: "stalefence"})
	if err != nil {
		return err
	}
	gate, err := primitives.NewGate(store, primitives.GateOptions{})
	if err != nil {
		return err
	}
	first, second := writer{"first", gate, s.Postgres}, writer{"second", gate, s.Postgres}

	lease, err := store.Acquire(ctx, report, primitives.LeaseOptions{TTL: leaseTTL, Holder: first.name})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "first   has the lease for %s, token %s. It goes away for longer than that.\n", leaseTTL, lease.Token().Value)

	// Acquire waits in line until the lease is over.
	newer, err := store.Acquire(ctx, report, primitives.LeaseOptions{Holder: second.name})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "second  has the lease now, token %s\n", newer.Token().Value)
	if err := second.write(ctx, newer.Token(), out); err != nil {
		return err
	}
	fmt.Fprintln(out, "first   is back, and still believes in its lease")
	if err := first.write(ctx, lease.Token(), out); !errors.Is(err, fence.ErrStale) {
		return fmt.Errorf("the late write was not refused: %w", err)
	}
	return show(ctx, s.Postgres, gate, out)
}

// write writes the report to Redis and to Postgres, both under the token.
func (w writer) write(ctx context.Context, token fence.Token, out io.Writer) error {
	body := "by " + w.name
	ctx = fence.NewContext(ctx, token)
	inRedis := w.gate.SetIfFresh(ctx, token, "daily", []byte(body), 0)
	inPostgres := reports.Update(ctx, w.pool, pgxfence.Change{
		Key: pgxfence.Values{"name": "daily"},
		Set: pgxfence.Values{"body": body},
	})
	for where, err := range map[string]error{"Redis": inRedis, "Postgres": inPostgres} {
		var stale *fence.StaleError
		switch {
		case err == nil:
			fmt.Fprintf(out, "%-7s writes to %s\n", w.name, where)
		case errors.As(err, &stale):
			fmt.Fprintf(out, "%-7s is refused by %s: token %s, it has seen %s\n", w.name, where, stale.Token, stale.Current)
		}
	}
	return errors.Join(inRedis, inPostgres)
}

func show(ctx context.Context, pool *pgxpool.Pool, gate *primitives.Gate, out io.Writer) error {
	value, _, err := gate.Get(ctx, report, "daily")
	if err != nil {
		return err
	}
	var body string
	if err := pool.QueryRow(ctx, "SELECT body FROM reports").Scan(&body); err != nil {
		return err
	}
	fmt.Fprintf(out, "in the end: Redis %q, Postgres %q\n", value, body)
	return nil
}
