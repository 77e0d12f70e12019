package pgxfence

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Change is a write to one row.
type Change struct {
	// Resource names the token in the context to write with. Default: the only one
	// there; with several it is [fence.ErrAmbiguous].
	Resource string

	// Key finds the row: columns that identify it, none of them nil. Required. If
	// it matches several rows, all of those change that the token may change.
	Key Values

	// Set holds the new values. They are absolute, so repeating them with the same
	// token changes nothing more. Default none: only the fence is raised.
	Set Values

	// Where is a further SQL condition, with named parameters such as @min, as in
	// "status = 'open' AND balance >= @min". It cannot be told from other reasons
	// for [ErrNotApplied]. If it is about a column that Set changes, a repeat finds it
	// false: [ErrNotApplied], or [ErrIndeterminate] if a pool repeated after a lost
	// reply. Conflicts with [Table.Upsert]. Default none.
	Where string

	// Args are the values of the parameters in Where: exactly those. Default none.
	Args pgx.NamedArgs

	// Returning lists the columns that [UpdateReturning] and [Claim] read. Default
	// all of them, the fence column included.
	Returning []string
}

// Update sets the values of one row under the token in ctx:
//
//	UPDATE accounts SET balance = $3, fence_token = $1
//	WHERE id = $5 AND coalesce(fence_token, 0) <= $1
//
// It returns nil if the row now has the values and our token; [fence.StaleError]
// with the row's token if that is higher; [ErrNotFound], [ErrNotApplied] and
// [ErrIndeterminate] as they say; [fence.ErrNoToken] or [ErrUsage] before anything
// is sent; [ErrFenceColumn]; and otherwise the server's own error, for errors.As
// with *pgconn.PgError.
//
// If no row changed, a second statement asks for the reason. Another writer can
// come between the two. It can turn one reason for not applying into another, a
// row that was not found into a stale one, say; it cannot turn "not applied" into
// "applied", nor hide that the token is stale, because a fence only rises. In a
// REPEATABLE READ or SERIALIZABLE transaction both see one snapshot.
//
// On a *pgxpool.Pool a lost reply is answered by repeating the statement once.
// Inside a transaction nothing is repeated, and what was written holds if the
// commit does.
func (t Table) Update(ctx context.Context, db Querier, c Change) error {
	p, err := t.planUpdate(ctx, c, false)
	if err != nil {
		return err
	}
	return attempt(ctx, db, func(s *session) error {
		tag, err := s.query(ctx, p.update, p.tok, nil)
		switch {
		case err != nil:
			return s.blame(ctx, t, err)
		case tag.RowsAffected() > 0:
			return nil
		}
		return s.diagnoseUpdate(ctx, t, c, p.tok)
	})
}

// UpdateReturning is [Table.Update] that gives back the row as it is now, by one of
// pgx's row mappers, such as pgx.RowToStructByName. A mapper that does not fit the
// row is an error after the write: on anything but a transaction the row has
// changed.
func UpdateReturning[T any](ctx context.Context, db Querier, t Table, c Change, mapRow pgx.RowToFunc[T]) (T, error) {
	var row T
	p, err := t.planUpdate(ctx, c, true)
	if err != nil {
		return row, err
	}
	err = attempt(ctx, db, func(s *session) error {
		found := false
		_, err := s.query(ctx, p.update, p.tok, readOne(&row, &found, mapRow))
		switch {
		case err != nil:
			return s.blame(ctx, t, err)
		case found:
			return nil
		}
		return s.diagnose(ctx, t, c.Key, p.tok)
	})
	return row, err
}

// Claim raises the row's fence to the token in ctx and reads the row, in one
// statement. Read-modify-write needs it: whoever reads without claiming can have
// its write overwrite one that it never saw, although both writes pass the fence.
// The row's columns are named by [Change.Returning]; Set must be empty. Errors are
// those of [Table.Update].
func Claim[T any](ctx context.Context, db Querier, t Table, c Change, mapRow pgx.RowToFunc[T]) (T, error) {
	if len(c.Set) > 0 {
		var none T
		return none, usage("Set: Claim reads the row and changes its fence only")
	}
	return UpdateReturning(ctx, db, t, c, mapRow)
}

// updatePlan is an update that is ready to be sent, perhaps twice.
type updatePlan struct {
	tok    fence.Token
	update statement
}

func (t Table) planUpdate(ctx context.Context, c Change, returning bool) (updatePlan, error) {
	tok, err := t.token(ctx, c.Resource)
	if err == nil {
		err = t.checkChange(c, returning)
	}
	if err != nil {
		return updatePlan{}, err
	}
	where, args, err := condition(ctx, c.Where, c.Args)
	if err != nil {
		return updatePlan{}, err
	}
	b := t.build(tok, args...)
	b.write("UPDATE ", t.sql(), " SET ")
	b.assignments(c.Set)
	b.write(" WHERE ")
	b.key(c.Key)
	b.write(" AND ")
	b.fresh("")
	b.write(where)
	if returning {
		b.returning(c.Returning)
	}
	return updatePlan{tok: tok, update: b.statement()}, nil
}

func (t Table) checkChange(c Change, returning bool) error {
	if err := t.checkKey(c.Key); err != nil {
		return err
	}
	if !returning && len(c.Returning) > 0 {
		return usage("Returning: only UpdateReturning and Claim give columns back")
	}
	return t.checkSet(c.Set)
}

func (b *builder) returning(list []string) {
	b.write(" RETURNING ")
	if len(list) == 0 {
		b.write("*")
	}
	for i, column := range list {
		if i > 0 {
			b.write(", ")
		}
		b.name(column)
	}
}

// readOne collects the first row, if there is one.
func readOne[T any](row *T, found *bool, mapRow pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		if !rows.Next() {
			return rows.Err()
		}
		*found = true
		*row, err = mapRow(rows)
		return err
	}
}
