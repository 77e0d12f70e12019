package pgxfence

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Upsert inserts the row, or sets its values if it is there: the form for a first
// write. The key's columns need a unique index, which decides between the two, so
// two first writers cannot both insert. Errors are those of [Table.Update];
// [ErrNotFound] is not among them.
//
// Unless [Table.NeverDeleted] is set and [Table.Sealed] is not, it also seals the resource as [Seal] does, in the
// same round trip and the same transaction, which needs the schema fencekit. A
// stale token then aborts a transaction of the caller's.
func (t Table) Upsert(ctx context.Context, db Batcher, c Change) error {
	tok, err := t.token(ctx, c.Resource)
	if err == nil {
		err = t.checkUpsert(c)
	}
	if err != nil {
		return err
	}
	return t.write(ctx, db, t.upsertSQL(c, tok), c.Key, tok)
}

func (t Table) checkUpsert(c Change) error {
	if c.Where != "" || len(c.Args) > 0 {
		return usage("Where: an upsert takes no condition")
	}
	for column := range c.Key {
		if _, twice := c.Set[column]; twice {
			return usage("Set: column %q is in Key too", column)
		}
	}
	return t.checkChange(c, false)
}

func (t Table) upsertSQL(c Change, tok fence.Token) statement {
	b := t.build(tok)
	key, set := columns(c.Key), columns(c.Set)
	written := append(quoteAll(set), t.fence())
	if b.hasOwner() {
		written = append(written, quote(t.OwnerColumn))
	}
	b.write("INSERT INTO ", t.sql(), " AS target (", join(append(quoteAll(key), written...)), ") VALUES (")
	b.values(key, c.Key)
	b.values(set, c.Set)
	b.carry()
	if b.hasOwner() {
		b.write(", ")
		b.placeOwner()
	}
	b.write(") ON CONFLICT (", join(quoteAll(key)), ") DO UPDATE SET ")
	for i, column := range written {
		if i > 0 {
			b.write(", ")
		}
		b.write(column, " = excluded.", column)
	}
	b.write(" WHERE ")
	b.fresh("target.")
	return b.statement()
}

// values writes parameters, each with a comma behind it.
func (b *builder) values(names []string, of Values) {
	for _, column := range names {
		b.bind(of[column])
		b.write(", ")
	}
}

// Delete removes the row. A row that is gone can hold no fence, so the resource is
// sealed in the fence table, in the same round trip and the same transaction: a
// stale holder cannot bring the row back with [Table.Upsert]. Also if the row is
// not there, which is [ErrNotFound]. Set must be empty. Other errors are those of
// [Table.Update]; a stale token aborts a transaction of the caller's.
func (t Table) Delete(ctx context.Context, db Batcher, c Change) error {
	tok, err := t.token(ctx, c.Resource)
	switch {
	case err != nil:
		return err
	case t.NeverDeleted:
		return usage("Table.NeverDeleted: it is set, so Delete must not be used")
	case len(c.Set) > 0:
		return usage("Set: a deleted row has no values")
	}
	if err := t.checkChange(c, false); err != nil {
		return err
	}
	where, args, err := condition(ctx, c.Where, c.Args)
	if err != nil {
		return err
	}
	b := t.build(tok, args...)
	b.write("DELETE FROM ", t.sql(), " WHERE ")
	b.key(c.Key)
	b.write(" AND coalesce(", t.fence(), ", 0) <= ")
	b.carry()
	if b.hasOwner() {
		b.write(" AND ")
		b.fresh("")
	}
	b.write(where)
	return t.write(ctx, db, b.statement(), c.Key, tok)
}

// write sends st, behind a seal unless rows are never deleted and seals do not count.
func (t Table) write(ctx context.Context, db Batcher, st statement, key Values, tok fence.Token) error {
	return attempt(ctx, db, func(s *session) error {
		tag, err := s.sealedExec(ctx, st, tok, t.Sealed || !t.NeverDeleted)
		switch {
		case err != nil:
			return s.blame(ctx, t, err)
		case tag.RowsAffected() > 0:
			return nil
		}
		return s.diagnose(ctx, t, key, tok)
	})
}

// sealedExec sends a seal and st in one round trip. Outside a transaction the two
// are one: what is sent up to a Sync commits together. They are two statements and
// not one, because a statement that waits for the seal would then look for its row
// in a snapshot from before the wait.
func (s *session) sealedExec(ctx context.Context, st statement, tok fence.Token, seal bool) (pgconn.CommandTag, error) {
	if !seal {
		return s.query(ctx, st, tok, nil)
	}
	batch := &pgx.Batch{}
	sealing := sealStatement(tok)
	batch.Queue(sealing.sql, sealing.args...)
	batch.Queue(st.sql, st.args...)
	results := s.db.SendBatch(fenced(ctx), batch)
	_, err := results.Exec()
	var tag pgconn.CommandTag
	if err == nil {
		tag, err = results.Exec()
	}
	if closed := results.Close(); err == nil {
		err = closed
	}
	return tag, s.failed(err, tok)
}
