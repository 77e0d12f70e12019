package testsuite

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/interceptor"
)

// Proof says what is to be proved, and about which activity.
type Proof struct {
	// Activity is the function, or the name that it is registered under. It must write
	// through what the kit gives: [Kit.Pool], [Kit.Redis], [Kit.RoundTripper],
	// [Kit.Effect]. Required.
	Activity any

	// Input is its argument. Args are its arguments if there are several.
	Input any
	Args  []any

	// Reset brings the database, and whatever else State reads, into its first state.
	// It is called before every run; Redis is wiped beside it. With pgxfence.Once it must
	// empty fencekit.ledger too, or a run finds what an earlier one has done under the
	// same key. fencekit.fence may stay: tokens only rise. Default: nothing.
	Reset func(ctx context.Context) error

	// State returns what the activity is about: rows, a balance, the calls that a fake
	// has had. Whatever was frozen or has died, it must in the end be the state after
	// one undisturbed run. It is compared by reflect.DeepEqual, so leave out fences and
	// times. It, or Invariant, is required.
	//
	// Where an at-most-once operation was interrupted, so that its outcome is unknown,
	// the state before it is right too. If it makes several changes, and a crash may
	// come between them, say by Invariant which halves you can live with.
	State func(ctx context.Context) (any, error)

	// Invariant is a rule that must hold at the end of every run. Its error says how
	// it does not.
	Invariant func(ctx context.Context) error

	// Rivals are inputs of other calls of the activity that change the same things. They
	// must not run beside it, and the state must be that of one after the other, in
	// either order. Give one, so that a resource that is too narrow is found.
	Rivals []any

	// Same are inputs that mean the same operation and must share its key: the same
	// amount computed in another way, say.
	Same []any

	// Allow exempts steps that may pass the fence: a log that repeats harmlessly, a DO or a Lua
	// script that only reads. Default: none.
	Allow func(Step) bool

	// Limit is how many steps the activity may have: it bounds the number of runs.
	// Default 100.
	Limit int
}

// Report tells what a proof has cost.
type Report struct {
	Steps int // that one undisturbed run has sent
	Runs  int // of the activity, disturbed or not, successors included
}

const defaultLimit = 100

// redeliveries is how often a call is redelivered until it is given up.
const redeliveries = 6

// prover runs an activity again and again.
type prover struct {
	kit   *Kit
	proof Proof
	plain *Run  // the undisturbed run
	first *any  // the state before it; nil if it cannot be read
	want  []any // the states that are right
	runs  int
}

// finding is why a proof has failed.
type finding struct {
	text  string
	cause string
	state bool // the state is wrong
}

func (f *finding) String() string {
	if f.cause == "" {
		return f.text
	}
	return f.text + "\ncause: " + f.cause
}

func found(cause, format string, args ...any) *finding {
	return &finding{text: fmt.Sprintf(format, args...), cause: cause}
}

// prove does what is common to proofs: the undisturbed run, and the verdict.
func prove(t T, k *Kit, p Proof, what string, disturb func(*prover) *finding) Report {
	t.Helper()
	pr := &prover{kit: k, proof: p}
	if pr.proof.Limit == 0 {
		pr.proof.Limit = defaultLimit
	}
	f := pr.check()
	if f == nil {
		f = pr.undisturbed()
	}
	if f == nil {
		f = disturb(pr)
	}
	if f != nil {
		pr.suspectLedger(f)
		t.Errorf("%s: %s\n%s", what, pr.name(), f)
		t.FailNow()
	}
	r := Report{Runs: pr.runs}
	if pr.plain != nil {
		r.Steps = len(pr.plain.Steps())
	}
	return r
}

func (pr *prover) name() string {
	if reflect.TypeOf(pr.proof.Activity) == nil || reflect.TypeOf(pr.proof.Activity).Kind() != reflect.Func {
		return fmt.Sprint(pr.proof.Activity)
	}
	return functionName(pr.proof.Activity)
}

func (pr *prover) check() *finding {
	switch {
	case pr.proof.Activity == nil:
		return found("", "Proof.Activity is missing")
	case pr.proof.State == nil && pr.proof.Invariant == nil:
		return found("", "Proof.State or Proof.Invariant is missing: nothing would tell right from wrong")
	}
	return nil
}

func (pr *prover) ctx() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// reset begins a run.
func (pr *prover) reset() *finding {
	ctx, cancel := pr.ctx()
	defer cancel()
	if err := pr.kit.wipe(ctx); err != nil {
		return found("", "Redis cannot be wiped: %v", err)
	}
	if pr.proof.Reset != nil {
		if err := pr.proof.Reset(ctx); err != nil {
			return found("", "Proof.Reset: %v", err)
		}
	}
	return nil
}

// call prepares a new call of the activity.
func (pr *prover) call() *Call { return pr.count(pr.kit.Call(pr.proof.Activity, pr.args()...)) }

func (pr *prover) args() []any {
	if pr.proof.Input == nil {
		return pr.proof.Args
	}
	return append([]any{pr.proof.Input}, pr.proof.Args...)
}

func (pr *prover) callWith(input any) *Call {
	return pr.count(pr.kit.Call(pr.proof.Activity, append([]any{input}, pr.proof.Args...)...))
}

func (pr *prover) again(r *Run, d Delivery) *Call { return pr.count(r.Redeliver(d)) }

func (pr *prover) count(c *Call) *Call {
	pr.runs++
	return c
}

// undisturbed runs the activity as it should be, and notes the state after it.
func (pr *prover) undisturbed() *finding {
	if f := pr.reset(); f != nil {
		return f
	}
	if s, f := pr.readState(); f == nil {
		pr.first = &s
	}
	c := pr.call()
	c.watched, c.held = true, true
	pr.plain = c.Execute()
	if err := pr.plain.Err(); err != nil {
		return found(causeOfFailure(pr.plain), "it fails in an undisturbed run: %v", err)
	}
	if f := pr.noteState(); f != nil {
		return f
	}
	if n := len(pr.plain.Steps()); n > pr.proof.Limit {
		return found("", "it has %d steps, and Proof.Limit is %d", n, pr.proof.Limit)
	}
	if f := pr.guarded(); f != nil {
		return f
	}
	if f := pr.replayed(); f != nil {
		return f
	}
	return pr.outlived()
}

func (pr *prover) noteState() *finding {
	s, f := pr.state()
	if f == nil {
		pr.want = append(pr.want, s)
	}
	return f
}

func (pr *prover) state() (s any, f *finding) {
	ctx, cancel := pr.ctx()
	defer cancel()
	if pr.proof.Invariant != nil {
		if err := pr.proof.Invariant(ctx); err != nil {
			return nil, found("", "the invariant is broken: %v", err)
		}
	}
	return pr.readState()
}

func (pr *prover) readState() (s any, f *finding) {
	if pr.proof.State == nil {
		return nil, nil
	}
	ctx, cancel := pr.ctx()
	defer cancel()
	s, err := pr.proof.State(ctx)
	if err != nil {
		return nil, found("", "Proof.State: %v", err)
	}
	return s, nil
}

// right compares the state with the right ones.
func (pr *prover) right(wants []any) *finding {
	s, f := pr.state()
	if f != nil {
		return f
	}
	for _, want := range wants {
		if reflect.DeepEqual(s, want) {
			return nil
		}
	}
	f = found("", "the state is %+v, and should be %+v", s, wants[0])
	f.state = true
	return f
}

// settle redelivers an operation until it has ended well, or nobody will ever know
// whether it has.
func (pr *prover) settle(r *Run) (unknown bool, f *finding) {
	for range redeliveries {
		err := r.Err()
		unknown = failedBy(err, interceptor.TypeOutcomeUnknown)
		if err == nil || unknown {
			return unknown, nil
		}
		if failedBy(err, interceptor.TypeBusy) {
			pr.freeLease(r)
		}
		r = pr.again(r, NextAttempt).Execute()
	}
	return false, found("", "it was redelivered %d times and still fails: %v", redeliveries, r.Err())
}

// freeLease ends a lease that holds up a successor, as waiting would.
func (pr *prover) freeLease(r *Run) {
	ctx, cancel := pr.ctx()
	defer cancel()
	resource := r.Resource()
	if resource == "" && pr.plain != nil {
		resource = pr.plain.Resource()
	}
	_ = pr.kit.free(ctx, resource) // whoever held it may have gone by now
}

func failedBy(err error, kind string) bool {
	var a *temporal.ApplicationError
	return errors.As(err, &a) && a.Type() == kind
}

// allowed reports whether the user exempts a step.
func (pr *prover) allowed(s Step) bool { return pr.proof.Allow != nil && pr.proof.Allow(s) }
