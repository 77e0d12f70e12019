package pgxfence

import (
	"context"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// DefaultBypassRole is the role that [Enforce] lets pass when none is named.
const DefaultBypassRole = "fencekit_bypass"

// Enforce puts a trigger on the table, whose [Table.Enforced] must be set, and so on
// its partitions. It refuses
// every INSERT, UPDATE and DELETE that carries no token ([ErrUnfenced]) or a lower
// one than the row ([fence.ErrStale]), and every TRUNCATE: a forgotten helper, an
// old worker, psql by hand. The helpers carry their token, in autocommit and in
// transactions; what is sent in a sealed transaction ([InTx], [Seal]) takes the
// sealed token, COPY included. In a transaction that has sealed several resources a
// plain statement is refused, because nothing tells which token is the row's.
//
// Only who has become bypassRole by SET ROLE passes, for migrations and repairs;
// belonging to it is not enough, so neither is being superuser. Default
// [DefaultBypassRole]; the role need not exist.
//
// Partitions that are added later refuse INSERT, UPDATE and DELETE at once, but
// TRUNCATE of the partition itself only after Enforce has been called again.
//
// It needs the owner's rights on the table and CREATE on the schema fencekit. A
// migration can say SELECT fencekit.enforce('accounts') instead. Doing it again is
// fine. Triggers of the user's that change the fence column, or run after it in
// alphabetical order, are beyond its sight.
func Enforce(ctx context.Context, db Querier, t Table, bypassRole string) error {
	if err := t.check(); err != nil {
		return err
	}
	if !t.Enforced {
		return usage("Table.Enforced: it must be set, so that the helpers carry the token to the trigger")
	}
	if bypassRole == "" {
		bypassRole = DefaultBypassRole
	}
	return run(ctx, db, statement{
		sql:  "SELECT fencekit.enforce($1::text::regclass, $2::text::name, $3::text::name)",
		args: []any{t.sql(), t.fenceColumn(), bypassRole},
	})
}

// Unenforce takes the trigger of [Enforce] away. Taking it away twice is fine.
func Unenforce(ctx context.Context, db Querier, t Table) error {
	if err := t.check(); err != nil {
		return err
	}
	return run(ctx, db, statement{sql: "SELECT fencekit.unenforce($1::text::regclass)", args: []any{t.sql()}})
}

func run(ctx context.Context, db Querier, st statement) error {
	return attempt(ctx, db, func(s *session) error {
		_, err := s.query(ctx, st, fence.Token{}, nil)
		return err
	})
}
