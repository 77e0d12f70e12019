package pgxfence

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Seal raises the fence of each named resource to its token in ctx; without names,
// that of the only one. From then on [InTx], [Once], [Table.Upsert] and
// [Table.Delete] refuse every lower token, and so do the writes of a [Table] that is
// Sealed; others look at their row alone. A
// fence refuses a stale holder only once the newer token has reached the store, and
// Seal takes it there before the first write does. It fits the Seal hook of
// primitives.GuardOptions:
//
//	Seal: func(ctx context.Context) error { return pgxfence.Seal(ctx, pool) }
//
// In a transaction the resource's row stays locked until its end, so everything in
// it commits under the fence; a stale token aborts it. Outside, the fence is raised
// and the lock is gone again. Errors: [fence.StaleError], [ErrIndeterminate] (a
// pool repeats once), [ErrSchema], and those of [Table.Update] before sending.
func Seal(ctx context.Context, db Querier, resources ...string) error {
	toks, err := tokensFor(ctx, resources)
	if err != nil {
		return err
	}
	for _, tok := range toks {
		err := attempt(ctx, db, func(s *session) error {
			if _, err := s.query(ctx, sealStatement(tok), tok, nil); err != nil {
				return err
			}
			if s.inTx {
				markSealed(s.conn)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// tokensFor takes the tokens of resources in one order, whatever order they are
// named in: two transactions that seal the same two do not lock each other out.
func tokensFor(ctx context.Context, resources []string) ([]fence.Token, error) {
	if len(resources) == 0 {
		resources = []string{""}
	}
	var toks []fence.Token
	for _, r := range resources {
		tok, err := tokenFor(ctx, r)
		if err != nil {
			return nil, err
		}
		toks = append(toks, tok)
	}
	slices.SortFunc(toks, func(a, b fence.Token) int { return strings.Compare(a.Resource, b.Resource) })
	return slices.Compact(toks), nil
}

func sealStatement(tok fence.Token) statement {
	return statement{
		sql:  "SELECT fencekit.seal($1::text, $2::bigint, $3::text)",
		args: []any{tok.Resource, int64(tok.Value), tok.Owner},
	}
}

// sealedKey marks a connection whose transaction is sealed, for the [Tracer].
const sealedKey = "github.com/fencekit/fencekit-go/pgx: sealed"

func markSealed(conn *pgx.Conn) {
	if conn != nil && !conn.IsClosed() {
		conn.PgConn().CustomData()[sealedKey] = true
	}
}

func unmarkSealed(conn *pgx.Conn) {
	if conn != nil {
		delete(conn.PgConn().CustomData(), sealedKey)
	}
}
