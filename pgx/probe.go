package pgxfence

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// probe is what a row shows after a statement that changed nothing.
type probe struct {
	token fence.Value
	owner string
	view  bool // a view's INSTEAD OF trigger can apply an update and report no row
}

// diagnose finds out why no row changed. That takes a statement of its own, sent
// only now: the first statement's snapshot is older than what it may have waited
// for, so it could not have told.
func (s *session) diagnose(ctx context.Context, t Table, key Values, tok fence.Token) error {
	p, err := s.look(ctx, t, key, tok)
	if err != nil {
		return err
	}
	p.view = false
	return t.judge(p, tok)
}

// diagnoseUpdate is diagnose for an update without result, which a view's trigger may
// have applied. With a condition nothing tells whether that held.
func (s *session) diagnoseUpdate(ctx context.Context, t Table, c Change, tok fence.Token) error {
	if c.Where != "" {
		return s.diagnose(ctx, t, c.Key, tok)
	}
	p, err := s.look(ctx, t, c.Key, tok)
	if err != nil {
		return err
	}
	return t.judge(p, tok)
}

func (s *session) look(ctx context.Context, t Table, key Values, tok fence.Token) (p probe, err error) {
	found := false
	_, err = s.query(ctx, t.probeSQL(key, tok), tok, readOne(&p, &found, scanProbe))
	switch {
	case err != nil:
		return p, fmt.Errorf("pgxfence: nothing changed, and asking for the reason failed: %w", notLost(err))
	case !found:
		return p, ErrNotFound
	}
	return p, nil
}

func scanProbe(row pgx.CollectableRow) (p probe, err error) {
	err = row.Scan(&p.token, &p.owner, &p.view)
	return p, err
}

// notLost keeps a reply that was lost to the question from being taken for one that
// was lost to the write.
func notLost(err error) error {
	if lost, ok := err.(*IndeterminateError); ok { //nolint:errorlint // only our own, just made
		return unavailable(lost.Err)
	}
	return err
}

func (t Table) judge(p probe, tok fence.Token) error {
	foreign := t.OwnerColumn != "" && p.token == tok.Value && p.owner != "" && p.owner != tok.Owner
	switch {
	case p.token > tok.Value, foreign:
		return &fence.StaleError{Resource: tok.Resource, Token: tok.Value, Current: p.token}
	case p.view && p.token == tok.Value:
		return nil
	}
	return ErrNotApplied
}

func (t Table) probeSQL(key Values, tok fence.Token) statement {
	b := t.build(tok)
	b.write("SELECT ")
	b.highest("")
	b.write(", ", t.ownerText(""), ", ", t.isView(), " FROM ", t.sql(), " WHERE ")
	b.key(key)
	b.write(" ORDER BY 1 DESC LIMIT 1")
	return b.statement()
}

func (t Table) ownerText(prefix string) string {
	if t.OwnerColumn == "" {
		return "''::text"
	}
	return "coalesce(" + prefix + quote(t.OwnerColumn) + ", '')::text"
}

// isView tells a view whose own trigger carries out updates: tgtype has the bits of
// INSTEAD OF (64) and UPDATE (16). The server counts the rows of any other view.
func (t Table) isView() string {
	return "EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid = " + t.regclass() + " AND tgtype & 80 = 80)"
}

// regclass is the table's name as a literal of that type.
func (t Table) regclass() string {
	return "'" + strings.ReplaceAll(t.sql(), "'", "''") + "'::pg_catalog.regclass"
}

// blame looks whether a number that was out of range was the token, in a fence
// column that is too narrow. Inside a transaction, which the error has aborted, the
// column cannot be asked.
func (s *session) blame(ctx context.Context, t Table, err error) error {
	if stateOf(err) != "22003" || s.inTx {
		return err
	}
	var kind string
	st := statement{sql: "SELECT coalesce((SELECT pg_catalog.format_type(atttypid, atttypmod) FROM pg_catalog.pg_attribute" +
		" WHERE attrelid = " + t.regclass() + " AND attname = $1::text), '')", args: []any{t.fenceColumn()}}
	found := false
	_, probed := s.query(ctx, st, fence.Token{}, readOne(&kind, &found, pgx.RowTo[string]))
	if probed != nil || kind == "" || kind == "bigint" {
		return err
	}
	return fmt.Errorf("%w: %s.%s is %s: %w", ErrFenceColumn, t.sql(), t.fence(), kind, err)
}
