package testsuite

import (
	"errors"
	"regexp"
	"strings"

	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// What is wrong, in words that name the bug and its cure.
const (
	causeStray = "background context: it was sent with a context that is not the activity's, so it carries no token and " +
		"does not end with the lease. Pass on the body's ctx"
	causeUnfenced = "unfenced write: it carries no fencing token. Write by pgxfence.Table.Update and its neighbours, or in pgxfence.InTx"
	causeRedis    = "unfenced write: it carries no fencing token. Write to Redis by primitives.Gate"
	causeDelete   = "DELETE then INSERT: a row takes its fence along when it is deleted, so that nothing refuses the INSERT. " +
		"Use pgxfence.Table.Delete, which leaves the fence behind, and Table.Upsert, or UPDATE the row"
	causeCached = "cached token: it carries the token of another attempt. Take the token from the body's ctx each time " +
		"(fence.FromContext), and keep neither ctx nor token in a field"
	causeNoKey = "outside effect without an idempotency key: nothing keeps the other side from doing it twice. " +
		"Send interceptor.IdempotencyKey(ctx, name)"
	causeOtherKey = "outside effect with another idempotency key in each attempt: to the other side they are two. " +
		"Send interceptor.IdempotencyKey(ctx, name), which is the same for all attempts"
	causeSwallowed = "swallowed refusal: a fenced write was refused, and the body went on and returned success. " +
		"Return the error of every fenced write"
	causeGoroutine = "goroutine that outlives the body: it writes, or may, when the lease is gone. Wait for it before the body returns"
	causeBegin     = "effect before begin: it was sent before the guard had begun the operation, so a replay repeats it. " +
		"Do it in the body of a guarded activity"
	causeRelative = "relative change without a ledger: the fence keeps an old attempt out, and the new one does it again. " +
		"Do it in pgxfence.Once, or write absolute values"
	causeRead = "read before claim: a value was read and computed with before the row's fence was raised, so that an older " +
		"holder could still change it. Read by pgxfence.Claim, or in pgxfence.InTx, or seal (Policy.Seal, with Table.Sealed)"
	causeResource = "wrong resource: calls that change the same things must share a resource (Policy.Resource), or they " +
		"neither wait for each other nor compare tokens"
	causeInput = "same key, other input: the key leaves out what differs, and the input still holds it, so the second call is a mismatch. " +
		"Leave it out of the input too, or round it before the call"
	causeKey = "key too fine: inputs that mean the same have different keys. Leave out what differs without meaning " +
		"(Policy.Key), and count money in integers: 0.1+0.2 is not 0.3 in floating point"
	causeUnguarded = "no guard names this activity: name it among the kit's guards (Options.Guards, Kit.Guard), as it is registered"
	causePast      = "the activity writes past the kit: give it Kit.Pool, Kit.Redis, an HTTP client with Kit.RoundTripper, or call Kit.Effect"
	causeLedger    = "the ledger is not reset: pgxfence.Once replays what fencekit.ledger still holds of an earlier run. " +
		"Let Proof.Reset empty it: DELETE FROM fencekit.ledger"
	causeUnseen = "the store had not seen the newer token. Have it sealed before the body runs (Policy.Seal: pgxfence.Sealer), " +
		"and compare the token in the same statement as the write"
)

// causeOfFailure says why an undisturbed run has failed.
func causeOfFailure(r *Run) string {
	err := r.Err()
	var a *temporal.ApplicationError
	switch {
	case r.unguarded():
		return causeUnguarded
	case errors.Is(err, fence.ErrNoToken), errors.As(err, &a) && strings.Contains(a.Message(), fence.ErrNoToken.Error()):
		return causeStray
	case errors.As(err, &a) && a.Type() == interceptor.TypeKeyError:
		return "no key can be made of the input; see the field that the text names"
	}
	return ""
}

// unguarded reports whether the body ran and no guard had answered.
func (r *Run) unguarded() bool { return r.BodyRan() && r.Outcome() == "" }

// causeOf says why a write of the zombie got through.
func causeOf(s Step, zombie, successor *Run) string {
	switch {
	case s.System == Outside && s.Key == "":
		return causeNoKey
	case s.System == Outside:
		return causeOtherKey
	case s.late:
		return causeGoroutine
	case s.Token.Valid() && s.Token != zombie.Token() && s.Token.Resource == zombie.Token().Resource,
		s.Token.Valid() && zombie != successor && s.Token == successor.Token():
		return causeCached
	case s.Stray:
		return causeStray
	case deletedBefore(s, zombie):
		return causeDelete
	case s.System == Redis && s.Unfenced:
		return causeRedis
	case s.Unfenced:
		return causeUnfenced
	}
	return causeUnseen
}

var (
	deleteFrom = regexp.MustCompile(`(?is)\bDELETE\s+FROM\s+([\w."]+)`)
	insertInto = regexp.MustCompile(`(?is)\bINSERT\s+INTO\s+([\w."]+)`)
	relative   = regexp.MustCompile(`(?is)\bSET\b.*?["\w]+\s*=\s*[^,]*["\w]\s*[-+*/|]`)
)

// deletedBefore reports whether an INSERT goes into a table that the run has deleted
// from.
func deletedBefore(s Step, r *Run) bool {
	into := insertInto.FindStringSubmatch(s.Text)
	if into == nil {
		return false
	}
	for _, earlier := range r.Steps() {
		if earlier.N > s.N {
			break
		}
		if from := deleteFrom.FindStringSubmatch(earlier.Text); len(from) > 1 && from[1] == into[1] {
			return true
		}
	}
	return false
}

// twice finds a change that two attempts have both made.
func twice(a, b *Run) (step Step, cause string) {
	for _, s := range a.Steps() {
		if !s.effect() {
			continue
		}
		for _, u := range b.Steps() {
			if !u.effect() || u.Text != s.Text || u.Source != s.Source {
				continue
			}
			switch {
			case s.System == Outside && s.Key == "":
				return s, causeNoKey
			case s.System == Outside && s.Key != u.Key:
				return s, causeOtherKey
			case s.Stray:
				return s, causeStray
			case s.System == Postgres && (relative.MatchString(s.Text) || computed(s, a)):
				return s, causeRelative
			}
		}
	}
	return Step{}, ""
}

// computed reports whether the body has read something before it made the change.
func computed(s Step, r *Run) bool {
	if _, ok := readBefore(r, s.N); ok {
		return true
	}
	for _, earlier := range r.Steps() {
		if earlier.N < s.N && earlier.Phase == InBody && strings.Contains(strings.ToUpper(earlier.Text), " RETURNING ") {
			return true
		}
	}
	return false
}
