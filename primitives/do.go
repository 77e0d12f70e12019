package primitives

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Result is the answer of [Guard.Do].
type Result struct {
	Outcome    Outcome
	Memo       []byte      // what the body returned, now or when it ran
	Token      fence.Token // of the grant; invalid if Replayed or Unguarded
	Takeovers  int         // how often the operation was taken over so far; 0 if Replayed
	MemoStored bool        // false if a later call may run the body again, or cannot have the result
}

// Do runs fn as the operation op, unless it is done already: then it returns the
// memo without running fn.
//
// fn runs in the caller's goroutine. Its context carries the fencing token
// ([fence.FromContext]) and what is known of the attempt ([AttemptFromContext]), and
// ends with a cause that matches [fence.ErrLeaseLost] when the lease is lost; fn must
// stop then. Meanwhile the lease is renewed. What fn returns ends the operation:
//   - a result is stored as the memo. If somebody has begun this operation since, nothing is stored and
//     Do returns a [*SupersededError], which matches [fence.ErrLeaseLost].
//   - an error is returned as it is, never wrapped. By default the operation is aborted
//     and the next call runs it again; GuardOptions.Judge can decide otherwise.
//   - a panic, or [runtime.Goexit], aborts the operation and goes on.
//
// An error of fn that is a [fence.StaleError] of this resource, while the lease is
// still the newest, raises the floor of the resource's tokens: a store has seen a
// token from before Redis lost its data, and the next call gets a higher one.
//
// Errors that say that fn has not run are those of [Guard.Begin], and that of
// GuardOptions.Seal.
func (g *Guard) Do(ctx context.Context, op Op, fn func(context.Context) ([]byte, error)) (Result, error) {
	watch := g.watch(ctx, op)
	start, err := g.Begin(ctx, op)
	if err != nil {
		// A holder that is known to be at work is not run beside.
		if g.opts.FailOpen && errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrBusy) {
			return g.unguarded(ctx, op, watch, fn)
		}
		watch.refused(err)
		return Result{}, err
	}
	watch.began(start)
	if start.Outcome == Replayed {
		return Result{Outcome: Replayed, Memo: start.Memo, Takeovers: start.Takeovers, MemoStored: true}, nil
	}
	r := &guarded{guard: g, claim: start.Claim, watch: watch, undone: start.Undone,
		result: Result{Outcome: start.Outcome, Token: start.Claim.Token(), Takeovers: start.Takeovers}}
	return r.do(ctx, fn)
}

func (g *Guard) unguarded(ctx context.Context, op Op, watch *watch, fn func(context.Context) ([]byte, error)) (Result, error) {
	watch.unguarded()
	// Neither the tokens nor the attempt of a guard outside may pass for this one's.
	ctx = context.WithValue(fence.WithoutTokens(ctx), attemptKey{}, Attempt{Key: op.Key, Outcome: Unguarded})
	memo, err := fn(ctx)
	return Result{Outcome: Unguarded, Memo: memo}, err
}

// guarded is one run of a body under a claim.
type guarded struct {
	guard  *Guard
	claim  *Claim
	watch  *watch
	result Result
	undone fence.Value // see Attempt.Undone
	sealed bool        // the body has been started
}

func (r *guarded) do(ctx context.Context, fn func(context.Context) ([]byte, error)) (Result, error) {
	held, stop := r.claim.Keep(ctx)
	held = context.WithValue(held, attemptKey{}, r.attempt())
	returned := false
	defer func() {
		stop()
		if !returned { // panic or Goexit: neither is recovered, both go on
			r.interrupted(ctx)
		}
	}()
	memo, err := r.body(held, fn)
	r.watch.ended()
	cut := err != nil && held.Err() != nil // what ended the context may have ended the body in the middle
	verdict := r.judge(held, err)
	returned = true
	stop()
	lost := lostCause(held)
	if err != nil {
		r.failed(ctx, err, lost, verdict, cut)
		return r.result, err
	}
	r.result.Memo = memo
	return r.succeeded(ctx, memo, lost)
}

func (r *guarded) attempt() Attempt {
	return Attempt{Key: r.claim.key.After(r.undone), Outcome: r.result.Outcome, Token: r.result.Token,
		Takeovers: r.result.Takeovers, Undone: r.undone, claim: r.claim}
}

func (r *guarded) body(held context.Context, fn func(context.Context) ([]byte, error)) ([]byte, error) {
	if seal := r.guard.opts.Seal; seal != nil {
		if err := seal(held); err != nil {
			return nil, err
		}
	}
	r.sealed = true
	return fn(held)
}

// interrupted cleans up after a body that did not return. Whether an at-most-once
// body has taken effect is unknown then, so its record stays, without a lease.
func (r *guarded) interrupted(ctx context.Context) {
	r.watch.ended()
	r.watch.panicked()
	if r.sealed && r.guard.opts.AtMostOnce {
		r.watch.aborted(false, r.claim.release(detached(ctx)))
		return
	}
	r.abort(ctx, 0)
}

// judge is the caller's verdict on an error of the body; not on one of the seal.
func (r *guarded) judge(held context.Context, err error) Verdict {
	if judge := r.guard.opts.Judge; judge != nil && err != nil && r.sealed {
		return judge(held, err)
	}
	return Abort
}

// failed ends an operation whose body has returned an error. An at-most-once body that
// was cut short, or whose error says nothing about its effect, leaves its record as it
// is, without a lease: its outcome is unknown.
func (r *guarded) failed(ctx context.Context, err, lost error, verdict Verdict, cut bool) {
	r.watch.failed(err, lost, verdict)
	if doubt := cut && verdict.kind == abort || verdict.kind == inDoubt; r.sealed && r.guard.opts.AtMostOnce && (doubt || lost != nil) {
		if lost == nil {
			r.watch.aborted(false, r.claim.release(detached(ctx)))
		}
		return
	}
	switch verdict.kind {
	case suspend:
		r.watch.suspended(r.claim.Suspend(ctx, verdict.wait))
	case memoise:
		r.watch.aborted(false, r.claim.Fail(ctx, verdict.memo))
	case abort, inDoubt:
		r.abort(ctx, seen(err, r.claim.resource))
	}
}

// seen is the token that a store held against one of resource, or 0. The body may
// have written under several tokens, and errors.As would find the first refusal only.
func seen(err error, resource string) fence.Value {
	switch e := err.(type) { //nolint:errorlint // it walks the whole tree
	case *fence.StaleError:
		if e.Resource == resource {
			return e.Current
		}
	case interface{ Unwrap() error }:
		return seen(e.Unwrap(), resource)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if v := seen(err, resource); v != 0 {
				return v
			}
		}
	}
	return 0
}

func (r *guarded) abort(ctx context.Context, floor fence.Value) {
	if checkFloor("", floor) != nil { // a store that has seen nonsense must not lock the resource
		floor = 0
	}
	raised, err := r.claim.AbortAbove(ctx, floor)
	r.watch.aborted(raised, err)
}

// succeeded stores the memo. Only a proof that somebody came after us makes a
// success an error: failing for less would have the effect repeated.
func (r *guarded) succeeded(ctx context.Context, memo []byte, lost error) (Result, error) {
	err := r.claim.Complete(ctx, memo)
	kept := len(memo) <= r.guard.opts.MaxMemo
	r.watch.stored(err, len(memo), kept)
	switch {
	case err == nil:
		r.result.MemoStored = kept
		return r.result, nil
	case errors.Is(err, fence.ErrLeaseLost):
		return r.result, err
	case lost != nil:
		return r.result, lost // and Redis could not say that it is ours all the same
	case errors.Is(err, ErrBusy): // what it undoes is running
		if r.guard.opts.AtMostOnce { // and must not be tried again by itself
			r.watch.aborted(false, r.claim.release(detached(ctx)))
		} else {
			r.abort(ctx, 0)
		}
		return r.result, err
	case r.guard.opts.StrictMemo, r.claim.undoes.any(): // a success would say that it is undone
		return r.result, err
	}
	return r.result, nil
}

// Verdict says what an error of the body means for its record.
type Verdict struct {
	kind verdictKind
	memo []byte
	wait time.Duration
}

type verdictKind int

const (
	abort verdictKind = iota
	suspend
	memoise
	inDoubt
)

// Abort is the default verdict: the operation has not happened, and the next call
// runs it again.
var Abort = Verdict{}

// Unknown is the verdict that the error says nothing about whether the operation has
// happened. Under GuardOptions.AtMostOnce the record stays for an operator; otherwise it
// is [Abort].
var Unknown = Verdict{kind: inDoubt}

// Suspend is the verdict that the body has only started the operation, and that its
// result arrives within d, from 50ms to 10 years; less or more counts as these. See
// [Claim.Suspend].
func Suspend(d time.Duration) Verdict {
	return Verdict{kind: suspend, wait: min(max(d, minLease), maxRetention)}
}

// MemoiseFailure is the verdict that the operation has failed for good: later calls
// get a [*FailedError] with the memo.
func MemoiseFailure(memo []byte) Verdict { return Verdict{kind: memoise, memo: memo} }

// Attempt is what a body may know of the attempt that it is.
type Attempt struct {
	// Key is the idempotency key of what the body does: Op.Key, or, once the operation was
	// undone, one made of it and of Undone, so that no effect from before answers for one
	// of this run. See [Key.After].
	Key       Key
	Outcome   Outcome     // Begun, Reclaimed, TakenOver or Unguarded
	Token     fence.Token // invalid if Unguarded
	Takeovers int
	Undone    fence.Value // the token under which the operation was undone last; 0 if it never was, or if Unguarded

	claim *Claim // nil if Unguarded
}

// ClaimText is the claim of the attempt as [Claim.MarshalText] writes it, for a body
// that leaves the result to somebody else: it hands the text over and returns an
// error that GuardOptions.Judge answers with [Suspend]. Whoever has the result reads
// the text with [Guard.ParseClaim] and completes it. An attempt that is Unguarded has
// no claim: an [*OptionError].
func (a Attempt) ClaimText() ([]byte, error) {
	if a.claim == nil {
		return nil, &OptionError{"claim", "an unguarded attempt has none"}
	}
	return a.claim.MarshalText()
}

type attemptKey struct{}

// AttemptFromContext returns the attempt of the innermost [Guard.Do], and false
// outside of any.
func AttemptFromContext(ctx context.Context) (Attempt, bool) {
	a, ok := ctx.Value(attemptKey{}).(Attempt)
	return a, ok
}

// Do is [Guard.Do] for a result of any type that encoding/json can carry. A memo that
// cannot be decoded as T is a [*CorruptError]; a result that cannot be encoded is an
// error, and the operation is aborted.
func Do[T any](ctx context.Context, g *Guard, op Op, fn func(context.Context) (T, error)) (T, error) {
	var ran *T
	res, err := g.Do(ctx, op, func(ctx context.Context) ([]byte, error) {
		v, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		ran = &v
		memo, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("fencekit: the result of key %s: %w", op.Key, err)
		}
		return memo, nil
	})
	var v T
	switch {
	case err != nil:
		return v, err
	case ran != nil:
		return *ran, nil
	}
	if err := json.Unmarshal(res.Memo, &v); err != nil {
		return v, &CorruptError{"the memo of key " + op.Key.String(), err.Error()}
	}
	return v, nil
}
