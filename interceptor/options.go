package interceptor

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"go.temporal.io/sdk/converter"

	"github.com/fencekit/fencekit-go/primitives"
)

// Options configure an [Interceptor]. Redis and Guards are required.
type Options struct {
	// Redis keeps leases and records. Required; the caller closes it, after the
	// workers have stopped. Set ContextTimeoutEnabled in its options.
	Redis primitives.Client

	// Store are the options of the store in that Redis: prefix, budget of a step,
	// strict tokens.
	Store primitives.Options

	// Guards name the activities to guard. Required.
	Guards []Guard

	// LeaseTTL and Retention stand for those of a Policy that leaves them zero.
	// Defaults: those of [Policy].
	LeaseTTL  time.Duration
	Retention time.Duration

	// DataConverter must be the one of the worker's client: results are stored as it
	// encodes them, and replayed as they are stored. Default: what
	// [Interceptor.Plugin] has found in the client's options, else the SDK's default.
	// With a converter that encrypts and no word of it here, results would lie in
	// Redis, and be replayed, in plain text.
	DataConverter converter.DataConverter

	// FailureConverter is the same for failures, which are stored under
	// Policy.MemoiseFailures only. Default: as for DataConverter; else the SDK's
	// default, which shows texts and details in history even if DataConverter
	// encrypts. What is stored in Redis goes through DataConverter as a whole.
	FailureConverter converter.FailureConverter

	// Identity names this worker to people, in errors and logs of others. Its first 75
	// bytes are kept. Default: the process id and the host's name, as in the SDK.
	Identity string

	// Observer is told everything that happens, for hooks beyond the metrics, spans
	// and logs that the interceptor writes itself. Event.Name is the activity type.
	// Default: nobody.
	Observer primitives.Observer
}

// Policy says how one activity is guarded. The zero value works: each scheduled
// activity is run to a result once, under a lease of its own.
type Policy struct {
	// Key picks what identifies an operation within Scope. Default: the whole input,
	// in which a struct's field at its zero value counts as no field, so that a release
	// may add one. Under ScopeExecution a call is itself: there Key serves local
	// activities only, whose input could not be told apart without it. See [KeyFrom].
	Key KeyFunc

	// Compare picks what else must be equal, in all calls of one key by Key or
	// [WithKey]: a call that differs there fails as a [TypeMismatch]. Default: the whole
	// input, by the rules of Key, as far as it can be compared: what cannot is warned
	// about once, and stops nothing. Volatile parts, such as a time stamp, need
	// [CompareFrom] or [CompareNothing]. Not under ScopeExecution, and not stored
	// anew: a record keeps the fingerprint of the call that made it.
	Compare CompareFunc

	// Scope says who shares the operation. Default: [ScopeExecution].
	Scope Scope

	// Resource names what the activity changes: guarded activities on one resource
	// run one after another and share its fencing tokens. Records live under their
	// resource, so it must follow from the key: one key with two resources is two
	// operations, and a changed Resource forgets what was done before. Default: each operation is
	// a resource of its own. See [ResourceFrom].
	Resource ResourceFunc

	// LeaseTTL is how long others wait after a crash. It is renewed while the body
	// runs, so it need not be longer than the body. 50ms to 24h; default
	// Options.LeaseTTL, else 30s.
	LeaseTTL time.Duration

	// RenewEvery is the time between renewals. At least 10ms, and below LeaseTTL less
	// 2% and 2ms; default a third of LeaseTTL.
	RenewEvery time.Duration

	// Retention is how long a result is kept for replays. It should not end before
	// Temporal stops retrying, which is ScheduleToClose; a later attempt runs the body
	// again, under a higher token. LeaseTTL to 10 years; default Options.Retention, else
	// 24h.
	Retention time.Duration

	// Wait lets a call wait inside its attempt for another one that is at work. It is
	// cut to half of what is left until the attempt's deadline, and to half of
	// HeartbeatTimeout: nobody heartbeats meanwhile, and the body needs its half.
	// Not negative; default: not at all. The attempt fails as busy, and Temporal retries it when the
	// lease should be over and those refused before have had their turns, which holds no
	// worker slot.
	Wait time.Duration

	// MaxMemo is the largest result that is kept, in bytes as encoded. A larger one
	// is returned, but a later call fails with [TypeResultUnavailable] instead of
	// running the body again. At most 64 MiB; default 2 MiB, which is what Temporal
	// accepts.
	MaxMemo int

	// MaxTakeovers is how many times an operation may be taken over from a crashed
	// worker before it fails with [TypePoisoned]. Default: without limit.
	MaxTakeovers int

	// NoTakeover makes the next attempt of an activity wait for the lease of the one
	// before, as everybody else does, instead of taking over at once. For bodies with
	// outside effects that no fence protects.
	NoTakeover bool

	// AtMostOnce never runs the body again after it was interrupted: calls fail with
	// [TypeOutcomeUnknown] until an operator resolves or forgets the record. A crash,
	// a panic, a lost lease, a result that cannot be encoded, and an error that the
	// body returns after its context has ended are interruptions; any other error is
	// the body's word that nothing has happened, and its retry runs it again. It
	// implies NoTakeover and excludes FailOpen.
	AtMostOnce bool

	// UnknownRetention is how long such a record is kept. Used with AtMostOnce only. Not
	// below Retention; default 30 days, or Retention if that is longer.
	UnknownRetention time.Duration

	// FailOpen runs the body unguarded, without a token, while Redis is unavailable.
	// Default: the attempt fails with [TypeUnavailable] and is retried.
	FailOpen bool

	// StrictMemo fails an attempt whose result could not be stored with
	// [TypeMemoNotStored]; its retry runs the body again. Default: the attempt
	// succeeds, and Temporal has the result.
	StrictMemo bool

	// MemoiseFailures stores non-retryable application errors, so that the next call
	// of the operation fails the same way without running; also those that come
	// through [Interceptor.Complete]. What a retry policy alone makes final is not
	// stored: another caller's may not. Default: the next call
	// runs the body.
	MemoiseFailures bool

	// Seal is called with the token in its context before the body runs, to carry it
	// to the store that the body writes to: from then on the store refuses older
	// holders. pgxfence.Sealer makes one. Its error fails the attempt as it is.
	Seal func(context.Context) error

	// Ledger is asked, before Redis, whether the operation has happened: its result
	// is then returned and the body does not run, whatever Redis has forgotten. The
	// ledger does not know the input: other input under one key is a mismatch for as
	// long as Redis has the record. What it finds may have been undone (see [Undo]):
	// Redis is asked for that, and the attempt fails with [TypeUnavailable] if it cannot
	// answer.
	// pgxfence.Ledger makes one. Its error fails the attempt as it is, before
	// anything has run.
	Ledger func(ctx context.Context, key string) (result any, found bool, err error)
}

// Scope says whose calls with equal keys are the same operation.
type Scope int

// The scopes. An activity that no workflow has started is its own run and workflow.
const (
	// ScopeExecution: this call and its retries. The same call made twice by one
	// workflow runs twice, also under one ActivityID. Its input does not count, but for
	// a local activity's, which its workflow may call with another after a workflow
	// task has failed.
	ScopeExecution Scope = iota
	// ScopeRun: all calls of this run of the workflow.
	ScopeRun
	// ScopeWorkflow: all calls of this workflow id, also after continue-as-new, a
	// reset, a cron or a later start.
	ScopeWorkflow
	// ScopeNamespace: all calls in this Temporal namespace: a business key.
	ScopeNamespace
)

var scopeNames = map[Scope]string{
	ScopeExecution: "execution", ScopeRun: "run", ScopeWorkflow: "workflow", ScopeNamespace: "namespace",
}

// String is the scope's name, as in "execution".
func (s Scope) String() string {
	if name, ok := scopeNames[s]; ok {
		return name
	}
	return fmt.Sprintf("Scope(%d)", int(s))
}

// Guard is an activity and its policy; see [For].
type Guard struct {
	activity any
	dynamic  bool
	policy   Policy
}

// For guards an activity: its function, as given to the worker and to
// workflow.ExecuteActivity, or the name that it is registered under, which it must be
// if that is not the function's own: with a prefix, for a struct that is registered with
// one. A local call by function has the function's name all the same, as the SDK calls
// it: name both, or call by the registered name. Build the guards in a function of the package, not
// in a method of the activities' struct: the SDK registers every exported method as an
// activity.
func For(activity any, p Policy) Guard { return Guard{activity: activity, policy: p} }

// ForDynamic guards whatever the worker's dynamic activity serves and For does not
// name. A [KeyFunc] of it takes a converter.EncodedValues.
func ForDynamic(p Policy) Guard { return Guard{dynamic: true, policy: p} }

// blame says which guard an option error is about.
func (g Guard) blame(i int, err error) error {
	name := fmt.Sprintf("Guards[%d]", i)
	if n, nameErr := activityName(g.activity); nameErr == nil {
		name = fmt.Sprintf("Guards[%d] (%s)", i, n)
	} else if g.dynamic {
		name = fmt.Sprintf("Guards[%d] (dynamic)", i)
	}
	var o *primitives.OptionError
	if !errors.As(err, &o) {
		return fmt.Errorf("fencekit: %s: %w", name, err)
	}
	return &primitives.OptionError{Field: name + "." + o.Field, Rule: o.Rule}
}

func (p Policy) check(fn reflect.Type) error {
	if _, ok := scopeNames[p.Scope]; !ok {
		return &primitives.OptionError{Field: "Scope", Rule: fmt.Sprintf("%d is none of the scopes", int(p.Scope))}
	}
	if err := p.Key.check("Key", fn); err != nil {
		return err
	}
	if err := p.Compare.check("Compare", fn); err != nil {
		return err
	}
	if err := p.Resource.check("Resource", fn); err != nil {
		return err
	}
	switch {
	case p.Scope == ScopeExecution && (p.Compare.set || p.Compare.nothing):
		return &primitives.OptionError{Field: "Compare", Rule: "does nothing under ScopeExecution, where a call is compared with no other: set Scope"}
	case p.Scope == ScopeNamespace && !p.Key.set && fn != nil && len(paramsOf(fn)) == 0:
		return &primitives.OptionError{Field: "Key", Rule: "is missing: an activity without input is one operation for the whole namespace, " +
			"for ever; if that is meant, return a constant from KeyFromArgs"}
	}
	return nil
}

const defaultMaxMemo = 2 << 20

// guard translates a policy into the options of the guard that enforces it.
func (p Policy) guard(o Options, observer primitives.Observer) primitives.GuardOptions {
	g := primitives.GuardOptions{
		LeaseTTL: p.LeaseTTL, RenewEvery: p.RenewEvery, Retention: p.Retention, Wait: p.Wait,
		MaxMemo: p.MaxMemo, MaxTakeovers: p.MaxTakeovers, NoTakeover: p.NoTakeover, AtMostOnce: p.AtMostOnce,
		UnknownRetention: p.UnknownRetention, FailOpen: p.FailOpen, StrictMemo: p.StrictMemo,
		Seal: sealed(p.Seal), Judge: judge, Observer: observer,
	}
	if g.LeaseTTL == 0 {
		g.LeaseTTL = o.LeaseTTL
	}
	if g.Retention == 0 {
		g.Retention = o.Retention
	}
	if g.MaxMemo == 0 {
		g.MaxMemo = defaultMaxMemo
	}
	return g
}
