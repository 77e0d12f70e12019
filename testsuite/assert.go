package testsuite

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// T is the part of testing.TB that the assertions use.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
}

// fail reports what was asked for and what the run was instead.
func fail(t T, r *Run, format string, args ...any) {
	t.Helper()
	t.Errorf("%s\n%s", fmt.Sprintf(format, args...), r.story())
	t.FailNow()
}

// story is what has happened to a run, for messages.
func (r *Run) story() string {
	var b strings.Builder
	fmt.Fprintf(&b, "run:     %s\n", r)
	for _, e := range r.Events() {
		fmt.Fprintf(&b, "guard:   %s %s", e.Kind, e.Outcome)
		if e.Token.Valid() {
			fmt.Fprintf(&b, " token %s", e.Token)
		}
		if e.Err != nil {
			fmt.Fprintf(&b, ": %v", e.Err)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "body:    %s\n", map[bool]string{true: "ran", false: "did not run"}[r.BodyRan()])
	fmt.Fprintf(&b, "Temporal: %s\n", map[bool]string{true: "a result", false: fmt.Sprint(r.err)}[r.err == nil])
	return b.String()
}

// RequireExecutedOnce asserts that of all deliveries of an operation exactly one ran the
// body to a result, and that all have ended with a result. What the guard made of that
// result does not matter: a body whose memo was lost has run too.
func RequireExecutedOnce(t T, runs ...*Run) {
	t.Helper()
	if len(runs) == 0 {
		t.Errorf("executed once: no runs were given")
		t.FailNow()
		return
	}
	var completed []*Run
	for _, r := range runs {
		if r.Err() != nil {
			fail(t, r, "executed once: a delivery has failed")
			return
		}
		if r.executed() {
			completed = append(completed, r)
		}
	}
	if len(completed) != 1 {
		t.Errorf("executed once: %d of %d deliveries have run the body to a result", len(completed), len(runs))
		for _, r := range runs {
			t.Errorf("%s", r.story())
		}
		t.FailNow()
	}
}

// RequireReplayed asserts that the run got the stored result and its body did not run.
func RequireReplayed(t T, r *Run) {
	t.Helper()
	if r.Err() != nil || r.BodyRan() || r.Outcome() != primitives.Replayed && r.Outcome() != "" {
		fail(t, r, "replayed: it was not")
		return
	}
	if r.Outcome() == "" {
		fail(t, r, "replayed: the activity is not guarded")
	}
}

// RequireExecuted asserts that the run's body ran, and that its result was stored.
func RequireExecuted(t T, r *Run) {
	t.Helper()
	if r.Err() != nil || !r.BodyRan() || !r.has(primitives.EventCompleted) {
		fail(t, r, "executed: the body did not run to a stored result")
	}
}

// RequireBusy asserts that the run was refused because another one is at work, and
// returns after which delay Temporal tries again.
func RequireBusy(t T, r *Run) time.Duration {
	t.Helper()
	return requireType(t, r, "busy", interceptor.TypeBusy).NextRetryDelay()
}

// RequireUnavailable asserts that the run was refused because Redis did not answer.
func RequireUnavailable(t T, r *Run) {
	t.Helper()
	_ = requireType(t, r, "unavailable", interceptor.TypeUnavailable)
}

// RequireLeaseLost asserts that the body succeeded in vain: somebody else had begun the
// operation meanwhile, so the result was not stored.
func RequireLeaseLost(t T, r *Run) {
	t.Helper()
	_ = requireType(t, r, "lease lost", interceptor.TypeLeaseLost)
}

// RequireFailure asserts that the run failed with an application error of a type, such
// as interceptor.TypeMismatch, and returns it.
func RequireFailure(t T, r *Run, kind string) *temporal.ApplicationError {
	t.Helper()
	return requireType(t, r, kind, kind)
}

func requireType(t T, r *Run, what, kind string) *temporal.ApplicationError {
	t.Helper()
	var a *temporal.ApplicationError
	if !errors.As(r.Err(), &a) || a.Type() != kind {
		fail(t, r, "%s: it did not fail with type %s", what, kind)
		return &temporal.ApplicationError{}
	}
	return a
}

// RequireStale asserts that the run failed because a store refused its token.
func RequireStale(t T, r *Run) {
	t.Helper()
	_ = r.Err()
	r.mu.Lock()
	err := r.bodyErr
	r.mu.Unlock()
	if !errors.Is(err, fence.ErrStale) {
		fail(t, r, "stale: the body did not fail with fence.ErrStale, but with: %v", err)
	}
}

// RequireNoUnfencedWrite asserts that the run wrote to Postgres through the helpers of
// pgxfence or in sealed transactions only, and to Redis through gates only.
func RequireNoUnfencedWrite(t T, r *Run) {
	t.Helper()
	_ = r.Err()
	for _, s := range r.Steps() {
		if s.Unfenced || s.Stray && s.writes {
			fail(t, r, "no unfenced write: there is one\n%s", s)
			return
		}
	}
}

// RequireMemoStored asserts that a later call gets the result of the run's operation.
func RequireMemoStored(t T, r *Run) {
	t.Helper()
	if rec := RequireState(t, r, primitives.Done); rec.Limit > 0 {
		fail(t, r, "memo stored: it was too large to keep: %d bytes, and the limit is %d", rec.Size, rec.Limit)
	}
}

// RequireNoMemo asserts that a later call does not get a result of the run's operation.
func RequireNoMemo(t T, r *Run) {
	t.Helper()
	_ = r.Err()
	rec, err := r.Record()
	if err != nil {
		fail(t, r, "no memo: the record cannot be read: %v", err)
		return
	}
	if rec.State == primitives.Done && rec.Limit == 0 {
		fail(t, r, "no memo: there is one of %d bytes", len(rec.Memo))
	}
}

// RequireState asserts the state of the record of the run's operation, and returns the
// record.
func RequireState(t T, r *Run, want primitives.State) primitives.Record {
	t.Helper()
	rec, err := r.Record()
	if err != nil {
		fail(t, r, "state %s: the record cannot be read: %v", want, err)
		return rec
	}
	if rec.State != want {
		fail(t, r, "state %s: the record is %s", want, rec.State)
	}
	return rec
}

// RequireTokensIncrease asserts that runs on one resource were granted ever higher
// tokens, in their order.
func RequireTokensIncrease(t T, runs ...*Run) {
	t.Helper()
	for i, r := range runs {
		if !r.Token().Valid() {
			fail(t, r, "tokens increase: the run was granted none")
			return
		}
		if i == 0 {
			continue
		}
		c, err := runs[i-1].Token().Compare(r.Token())
		if err != nil {
			fail(t, r, "tokens increase: %v", err)
			return
		}
		if c >= 0 {
			fail(t, r, "tokens increase: %s is not above %s", r.Token(), runs[i-1].Token())
			return
		}
	}
}

// executed reports whether the body has returned a result, guarded or not.
func (r *Run) executed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bodyRan && r.bodyErr == nil
}

func (r *Run) has(kind primitives.EventKind) bool {
	for _, e := range r.Events() {
		if e.Kind == kind {
			return true
		}
	}
	return false
}
