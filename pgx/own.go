package pgxfence

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Own is an SQL statement of the caller's.
type Own struct {
	// Resource names the token in the context to write with. Default: the only one
	// there.
	Resource string

	// SQL is one INSERT, UPDATE, DELETE or MERGE that uses @fence_token, which stands
	// for the token as a bigint. It must compare it, as in
	//
	//	UPDATE accounts SET balance = @balance, fence_token = @fence_token
	//	WHERE id = @id AND coalesce(fence_token, 0) <= @fence_token
	//
	// Required.
	SQL string

	// Args are the other named parameters: exactly those. Default none.
	Args pgx.NamedArgs

	// Table and Key find the row to ask when no row changed, so that the error tells
	// why. Default none: the error is then [ErrNotApplied] whatever the reason, a
	// stale token included.
	Table Table
	Key   Values
}

// tokenParameter is the name that stands for the token.
const tokenParameter = "fence_token"

// Exec sends a statement of the caller's with the token from ctx, and returns how
// many rows changed: at least one, else the error says why as in [Table.Update].
//
// It refuses with [ErrUsage], before anything is sent, SQL without @fence_token,
// several statements in one string, and whatever has a command tag that does not
// tell what happened: a SELECT over a data-modifying WITH counts one row when the
// write inside was fenced out. Nothing is ever repeated, since the statement need
// not be absolute; a lost reply is [ErrIndeterminate]. Relative updates (balance +
// @amount) belong into [Once].
func Exec(ctx context.Context, db Querier, o Own) (int64, error) {
	st, tok, err := o.plan(ctx)
	if err != nil {
		return 0, err
	}
	var changed int64
	err = once(ctx, db, func(s *session) error {
		tag, err := s.query(ctx, st, tok, nil)
		changed = tag.RowsAffected()
		return o.outcome(ctx, s, tok, changed > 0, err)
	})
	return changed, err
}

// QueryRow is [Exec] for a statement with RETURNING: it gives back the first row by
// one of pgx's row mappers, and reads on to the end, where late errors come.
func QueryRow[T any](ctx context.Context, db Querier, o Own, mapRow pgx.RowToFunc[T]) (T, error) {
	var row T
	st, tok, err := o.plan(ctx)
	if err != nil {
		return row, err
	}
	err = once(ctx, db, func(s *session) error {
		found := false
		_, err := s.query(ctx, st, tok, readOne(&row, &found, mapRow))
		return o.outcome(ctx, s, tok, found, err)
	})
	return row, err
}

func (o Own) outcome(ctx context.Context, s *session, tok fence.Token, changed bool, err error) error {
	switch {
	case err != nil && len(o.Key) > 0:
		return s.blame(ctx, o.Table, err)
	case err != nil || changed:
		return err
	case len(o.Key) == 0:
		return fmt.Errorf("%w, and Own.Key does not say which row to ask for the reason", ErrNotApplied)
	}
	return s.diagnose(ctx, o.Table, o.Key, tok)
}

// plan checks the statement and binds the token.
func (o Own) plan(ctx context.Context) (statement, fence.Token, error) {
	tok, err := tokenFor(ctx, o.Resource)
	if err == nil && len(o.Key) > 0 {
		if err = o.Table.check(); err == nil {
			err = o.Table.checkKey(o.Key)
		}
	}
	if err != nil {
		return statement{}, tok, err
	}
	shape := shapeOf(o.SQL)
	if err := o.check(shape); err != nil {
		return statement{}, tok, err
	}
	args := maps.Clone(o.Args)
	if args == nil {
		args = pgx.NamedArgs{}
	}
	args[tokenParameter] = tok.Value.String()
	sql, positional, err := pgx.StrictNamedArgs(args).RewriteQuery(ctx, nil, carryEverywhere(o.SQL, shape), nil)
	if err != nil {
		return statement{}, tok, usage("Args: %w", err)
	}
	return statement{sql: sql, args: positional}, tok, nil
}

func (o Own) check(s shape) error {
	_, taken := o.Args[tokenParameter]
	switch {
	case taken:
		return usage("Args: %s comes from the context", tokenParameter)
	case s.several:
		return usage("SQL: it holds several statements")
	case !dml[s.verb]:
		return usage("SQL: it must be an INSERT, UPDATE, DELETE or MERGE: the result of %q does not tell what changed", s.verb)
	case s.nested:
		return usage("SQL: a WITH that changes data hides from the result what it did")
	case !usesToken(s):
		return usage("SQL: it does not use @%s", tokenParameter)
	}
	return nil
}

func usesToken(s shape) bool {
	for _, p := range s.parameters {
		if p.text == tokenParameter {
			return true
		}
	}
	return false
}

// carried is the token as a bigint that also leaves it where the enforcement trigger
// looks, until the end of the transaction. An uncorrelated subselect is evaluated
// once per statement, so it does not keep an index from being used.
const carried = "(SELECT pg_catalog.set_config('fencekit.token', @" + tokenParameter + "::text, true)::bigint)"

// carryEverywhere puts the expression that carries the token in its places.
func carryEverywhere(sql string, s shape) string {
	var b strings.Builder
	done := 0
	for _, p := range s.parameters {
		if p.text == tokenParameter {
			b.WriteString(sql[done:p.from])
			b.WriteString(carried)
			done = p.to
		}
	}
	b.WriteString(sql[done:])
	return b.String()
}
