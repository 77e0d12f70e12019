package primitives

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// One sentinel for one state, to be matched with errors.Is. The error that
// matches it carries the details; each type names its sentinel.
var (
	// ErrBusy: somebody else holds a live lease or runs the operation. Retry after
	// [BusyError].Remaining. Nothing was run.
	ErrBusy = errors.New("fencekit: busy")
	// ErrUnavailable: Redis cannot answer, and nothing is known to have happened.
	// Retry later.
	ErrUnavailable = errors.New("fencekit: redis unavailable")
	// ErrDenied: Redis refuses this user or this password. A retry fails the same
	// way until the configuration is mended.
	ErrDenied = errors.New("fencekit: denied by redis")
	// ErrMismatch: the record of this key was made from other input. A retry fails
	// the same way.
	ErrMismatch = errors.New("fencekit: same key, other input")
	// ErrSuperseded: somebody began the operation after us, so our result was not
	// stored. It wraps [fence.ErrLeaseLost]: a newer grant exists.
	ErrSuperseded = errors.New("fencekit: superseded")
	// ErrCorrupt: what is stored under one of our names is not ours. The operation
	// is not run until somebody removes it.
	ErrCorrupt = errors.New("fencekit: corrupt state")
	// ErrResultUnavailable: the operation is done, but its result was too large to
	// keep. It is not run again.
	ErrResultUnavailable = errors.New("fencekit: done, result not kept")
	// ErrPoisoned: the operation has been taken over from crashed holders too many
	// times. It is not run again until the record is forgotten.
	ErrPoisoned = errors.New("fencekit: poisoned")
	// ErrOutcomeUnknown: an at-most-once operation was interrupted, and nobody knows
	// whether it took effect. An operator must resolve or forget its record.
	ErrOutcomeUnknown = errors.New("fencekit: outcome unknown")
	// ErrKeyChanged: an older attempt of the same execution still holds the lease under
	// another key, so that this one would be a second run and not its successor. A
	// retry fails the same way until that lease ends.
	ErrKeyChanged = errors.New("fencekit: same execution, other key")
	// ErrFailed: the operation failed for good, and the failure was memoised.
	ErrFailed = errors.New("fencekit: memoised failure")
	// ErrChanged: the state is not what the caller of an operator call saw. Look
	// again.
	ErrChanged = errors.New("fencekit: changed since it was read")
	// ErrNotFound: there is no such record or lease.
	ErrNotFound = errors.New("fencekit: not found")
	// ErrInvalid: an option or argument breaks a rule.
	ErrInvalid = errors.New("fencekit: invalid")
)

// OptionError names the option or argument that breaks a rule. It matches
// [ErrInvalid].
type OptionError struct {
	Field string // as in "LeaseTTL"
	Rule  string // as in "5ms is below the minimum of 50ms"
}

// Error reads "fencekit: FIELD: RULE".
func (e *OptionError) Error() string { return "fencekit: " + e.Field + ": " + e.Rule }

// Is matches [ErrInvalid].
func (e *OptionError) Is(target error) bool { return target == ErrInvalid }

// BusyError says who is at work and for how long their lease still lasts. It
// matches [ErrBusy].
type BusyError struct {
	Resource  string        // the resource asked for
	Holder    string        // how the holder described itself
	Token     fence.Value   // the holder's; 0 if it runs without a lease
	Since     time.Time     // when the holder began, by the Redis clock
	Remaining time.Duration // until the lease ends if it is not renewed; always positive
}

// Error names resource, holder, token and remaining time.
func (e *BusyError) Error() string {
	return fmt.Sprintf("fencekit: %q is held by %q (token %s) for another %s", e.Resource, e.Holder, e.Token, e.Remaining)
}

// Is matches [ErrBusy].
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// UnavailableError carries why Redis could not answer within the budget. It
// matches [ErrUnavailable] and unwraps to the last cause.
type UnavailableError struct {
	Step string // the step of the protocol, as in "begin"
	Err  error
}

// Error names the step and the cause.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("fencekit: redis unavailable during %s: %v", e.Step, e.Err)
}

// Is matches [ErrUnavailable].
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// DeniedError carries Redis's refusal, which names the missing permission. It
// matches [ErrDenied].
type DeniedError struct {
	Step string
	Err  error
}

// Error names the step and the refusal.
func (e *DeniedError) Error() string {
	return fmt.Sprintf("fencekit: redis denied %s: %v", e.Step, e.Err)
}

// Is matches [ErrDenied].
func (e *DeniedError) Is(target error) bool { return target == ErrDenied }

// Unwrap returns Redis's error.
func (e *DeniedError) Unwrap() error { return e.Err }

// LostError says that the caller does not hold the lease any more. It matches
// [fence.ErrLeaseLost].
type LostError struct {
	Resource string
	Token    fence.Value // of the lease that was lost
	Step     string      // where it showed: "renew", "extend", "release", "suspend", "deadline" or "begin"
	Holder   string      // who holds it now; empty if nobody does, or if it is not known
}

// Error names resource, token and step.
func (e *LostError) Error() string {
	return fmt.Sprintf("fencekit: lease on %q with token %s lost (%s); now held by %q", e.Resource, e.Token, e.Step, e.Holder)
}

// Is matches [fence.ErrLeaseLost].
func (e *LostError) Is(target error) bool { return target == fence.ErrLeaseLost }

// MismatchError names the key whose record was made from other input. It matches
// [ErrMismatch].
type MismatchError struct {
	Key    Key
	Stored string // fingerprint of the record's input
	Asked  string // fingerprint of this call's input
	Holder string // who made the record
}

// Error names key, fingerprints and holder.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("fencekit: key %s was used by %q for other input (fingerprint %s, not %s)", e.Key, e.Holder, e.Stored, e.Asked)
}

// Is matches [ErrMismatch].
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// SupersededError says that a newer grant exists, so nothing was stored. It
// matches [ErrSuperseded] and [fence.ErrLeaseLost].
type SupersededError struct {
	Key     Key
	Token   fence.Value // ours; 0 if the record was begun without a lease
	Current fence.Value // the newer one; 0 if it was begun without a lease
	Holder  string      // who began it; empty if it is not known
}

// Error names the key and both tokens.
func (e *SupersededError) Error() string {
	return fmt.Sprintf("fencekit: key %s: token %s was superseded by %s of %q", e.Key, e.Token, e.Current, e.Holder)
}

// Is matches [ErrSuperseded] and [fence.ErrLeaseLost].
func (e *SupersededError) Is(target error) bool {
	return target == ErrSuperseded || target == fence.ErrLeaseLost
}

// CorruptError names what holds foreign data: a Redis key, or the script whose
// reply made no sense. It matches [ErrCorrupt].
type CorruptError struct {
	Name   string
	Reason string
}

// Error names the key and what is wrong with it.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("fencekit: %s does not hold what fencekit wrote: %s", e.Name, e.Reason)
}

// Is matches [ErrCorrupt].
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// ResultUnavailableError says how large the result was that could not be kept. It
// matches [ErrResultUnavailable].
type ResultUnavailableError struct {
	Key   Key
	Size  int // bytes
	Limit int // bytes, as configured where it ran
}

// Error names key, size and limit.
func (e *ResultUnavailableError) Error() string {
	return fmt.Sprintf("fencekit: key %s is done, but its result of %d bytes exceeds the limit of %d and was not kept", e.Key, e.Size, e.Limit)
}

// Is matches [ErrResultUnavailable].
func (e *ResultUnavailableError) Is(target error) bool { return target == ErrResultUnavailable }

// PoisonedError says how often the operation was taken over. It matches
// [ErrPoisoned].
type PoisonedError struct {
	Key       Key
	Takeovers int
	Holder    string // the last one
}

// Error names key, count and last holder.
func (e *PoisonedError) Error() string {
	return fmt.Sprintf("fencekit: key %s was taken over from crashed holders %d times, last from %q", e.Key, e.Takeovers, e.Holder)
}

// Is matches [ErrPoisoned].
func (e *PoisonedError) Is(target error) bool { return target == ErrPoisoned }

// OutcomeUnknownError names the interrupted at-most-once operation. It matches
// [ErrOutcomeUnknown].
type OutcomeUnknownError struct {
	Key    Key
	Holder string    // who was running it
	Began  time.Time // by the Redis clock
}

// Error names key, holder and start.
func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("fencekit: key %s was interrupted while %q ran it from %s; whether it took effect is unknown",
		e.Key, e.Holder, e.Began.UTC().Format(time.RFC3339))
}

// Is matches [ErrOutcomeUnknown].
func (e *OutcomeUnknownError) Is(target error) bool { return target == ErrOutcomeUnknown }

// KeyChangedError names both sides of an execution whose attempts have different keys.
// It matches [ErrKeyChanged].
type KeyChangedError struct {
	Key    Key    // of this attempt
	Holder string // who holds the lease under the other key
}

// Error names key and holder.
func (e *KeyChangedError) Error() string {
	return fmt.Sprintf("fencekit: key %s: %q holds the lease for an older attempt of the same execution, under another key", e.Key, e.Holder)
}

// Is matches [ErrKeyChanged].
func (e *KeyChangedError) Is(target error) bool { return target == ErrKeyChanged }

// FailedError carries the memo of a failure that was memoised. It matches
// [ErrFailed].
type FailedError struct {
	Key  Key
	Memo []byte // as given to [MemoiseFailure] or [Claim.Fail]
}

// Error names the key.
func (e *FailedError) Error() string {
	return fmt.Sprintf("fencekit: key %s has failed before, and the failure was memoised", e.Key)
}

// Is matches [ErrFailed].
func (e *FailedError) Is(target error) bool { return target == ErrFailed }
