package pgxfence

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrNotFound says that no row has the key, or none that the role may see.
	ErrNotFound = errors.New("pgxfence: no such row")

	// ErrNotApplied says that the row is there and the token is high enough, but no
	// row changed: the caller's own condition, a trigger, a rule or row-level
	// security was in the way.
	ErrNotApplied = errors.New("pgxfence: nothing changed")

	// ErrIndeterminate is matched by every [*IndeterminateError]: the connection
	// broke after the statement was sent, so it may have happened. It never says
	// "stale". Repeating absolute values with the same token is safe.
	ErrIndeterminate = errors.New("pgxfence: outcome unknown")

	// ErrUnavailable says that the database could not serve the call: nothing of it
	// has been applied, and it may be repeated later. Behind it are failed
	// connections, a standby that is read-only (25006), a server that shuts down
	// or is full, and a pooler that does not fit the exec mode (26000, 42P05,
	// 08P01); the cause is in the chain.
	ErrUnavailable = errors.New("pgxfence: database unavailable")

	// ErrUnfenced says that the enforcement trigger refused a write that carried no
	// token (SQLSTATE ZF002). The transaction is aborted. It is a programming
	// error: some code writes past the helpers.
	ErrUnfenced = errors.New("pgxfence: unfenced write")

	// ErrSchema says that the schema fencekit is missing or older than this code;
	// see [Migrate].
	ErrSchema = errors.New("pgxfence: schema fencekit is missing or too old")

	// ErrFenceColumn says that the fence column is narrower than bigint.
	ErrFenceColumn = errors.New("pgxfence: the fence column must be bigint")

	// ErrUsage says that a call cannot be carried out as written; nothing was sent.
	// The text names the field and the rule.
	ErrUsage = errors.New("pgxfence: wrong call")
)

// IndeterminateError says that a statement may or may not have happened.
// errors.Is(err, [ErrIndeterminate]) matches it.
type IndeterminateError struct {
	// Err is how the reply was lost. errors.As reaches it.
	Err error

	// Repeat is what repeating the statement gave, if that was tried: it did not
	// settle the question. A stale token here says nothing about the first try, so
	// it is no part of the chain that errors.Is looks at.
	Repeat error
}

// Error names the lost reply, and the repeat if there was one.
func (e *IndeterminateError) Error() string {
	if e.Repeat == nil {
		return fmt.Sprintf("%v: %v", ErrIndeterminate, e.Err)
	}
	return fmt.Sprintf("%v: %v; repeated: %v", ErrIndeterminate, e.Err, e.Repeat)
}

// Is matches [ErrIndeterminate].
func (e *IndeterminateError) Is(target error) bool { return target == ErrIndeterminate }

// Unwrap returns how the reply was lost.
func (e *IndeterminateError) Unwrap() error { return e.Err }

// Retryable reports whether err says that nothing was applied and that the same
// call, or the same transaction from its start, may simply be tried again:
// [ErrUnavailable], a serialization failure (40001), a deadlock (40P01), a lock or
// statement timeout (55P03, 57014). An unknown outcome, a stale token and every
// other error are not.
func Retryable(err error) bool {
	if errors.Is(err, ErrIndeterminate) {
		return false
	}
	if errors.Is(err, ErrUnavailable) {
		return true
	}
	switch stateOf(err) {
	case "40001", "40P01", "55P03", "57014":
		return true
	}
	return false
}

func usage(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUsage, fmt.Errorf(format, args...))
}

// stateOf is the SQLSTATE in err; empty if it is not the server's.
func stateOf(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
