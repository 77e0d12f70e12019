package fence

import (
	"errors"
	"fmt"
)

var (
	// ErrStale is matched by every [*StaleError]: a store has seen a newer token
	// than the writer's. The writer has been superseded. Repeating the write with
	// the same token cannot succeed; a new grant can.
	ErrStale = errors.New("fence: stale token")

	// ErrNoToken says that the context carries no valid token for the resource.
	// Nothing was written. It is a programming error: the code runs outside a
	// guard, on a background context, or under a guard that failed open.
	ErrNoToken = errors.New("fence: no token in context")

	// ErrAmbiguous says that the context carries tokens of several resources and
	// the caller named none. Name it with [ForResource].
	ErrAmbiguous = errors.New("fence: several tokens in context")

	// ErrLeaseLost is the cause of a context that ended because its lease did,
	// and is matched by every error that says so. The work must stop; whoever
	// holds the lease now may be running already. A retry starts with a new grant.
	ErrLeaseLost = errors.New("fence: lease lost")
)

// StaleError says that a store refused a write because it has seen a newer token.
// errors.Is(err, [ErrStale]) matches it.
type StaleError struct {
	Resource string // what both tokens protect
	Token    Value  // the refused writer's
	Current  Value  // the highest that the store has seen; 0 if it could not tell
}

// Error names the resource and both tokens.
func (e *StaleError) Error() string {
	if !e.Current.Valid() {
		return fmt.Sprintf("fence: stale token %s for %q: the store has seen a newer one", e.Token, e.Resource)
	}
	return fmt.Sprintf("fence: stale token %s for %q: the store has seen %s", e.Token, e.Resource, e.Current)
}

// Is matches [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }
