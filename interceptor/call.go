package interceptor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// call is one guarded execution of an activity.
type call struct {
	kit   *Interceptor
	plan  *plan
	info  activity.Info
	begun time.Time // when it reached this worker, by the local clock
	codec codec
	turn  primitives.Turn // that it asked for
	local localCall       // which call of a local activity it is

	attempt      primitives.Attempt // of the body, once it runs
	hookFailure  error              // of the Ledger or the Seal hook
	encodeFailed bool               // the body has succeeded, its result cannot be encoded
}

type callKey struct{}

// callFrom is the guarded call around ctx, or nil.
func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

func newCall(ctx context.Context, k *Interceptor, p *plan, info activity.Info) *call {
	return &call{kit: k, plan: p, info: info, begun: time.Now(), codec: k.converters.bind(ctx, info)}
}

type executor func(context.Context, *sdk.ExecuteActivityInput) (any, error)

// run is the adapter itself: what the SDK calls with one input becomes one guarded
// operation, and its answer an answer for Temporal.
func (c *call) run(ctx context.Context, in *sdk.ExecuteActivityInput, next executor) (any, error) {
	ctx = context.WithValue(ctx, callKey{}, c)
	c.plan.first(c.info.IsLocalActivity).Do(func() { c.advise(ctx) })
	if err := c.givenUp(ctx); err != nil {
		return nil, err
	}
	op, err := c.op(ctx, in.Args)
	if err != nil {
		return nil, c.keyRefused(ctx, err)
	}
	c.turn = c.itsTurn()
	op.Patience, op.Turn = c.patience(), c.turn
	if result, found, err := c.fromLedger(ctx, op); found || err != nil {
		return result, err
	}
	b := &body{call: c, in: in, next: next}
	done, err := c.plan.guard.Do(ctx, op, b.run)
	if b.returned {
		return c.ended(op.Key, b, err)
	}
	switch {
	case c.hookFailure != nil:
		return nil, c.hookFailure
	case err != nil && canceled(ctx, err):
		return nil, context.Cause(ctx) // as which Temporal must know it
	case err != nil:
		return nil, c.refused(op.Key, err)
	}
	return c.replay(op.Key, done.Memo)
}

// ended is the answer after a body that has returned; err is about its result.
func (c *call) ended(key primitives.Key, b *body, err error) (any, error) {
	switch {
	case b.err != nil:
		return nil, b.err
	case err != nil:
		return nil, c.notStored(key, err)
	}
	c.plan.terms.saw(time.Since(b.begun))
	return answer(b.payloads)
}

// body is the run of the activity's function under its guard.
type body struct {
	call *call
	in   *sdk.ExecuteActivityInput
	next executor

	begun    time.Time
	returned bool
	payloads *commonpb.Payloads
	err      error
}

func (b *body) run(ctx context.Context) ([]byte, error) {
	b.begun = time.Now()
	b.call.attempt, _ = Attempt(ctx)
	result, err := b.next(ctx, b.in)
	var memo []byte
	if err == nil {
		b.payloads, memo, err = b.call.codec.encode(result)
		b.call.encodeFailed = err != nil
	}
	b.returned, b.err = true, err
	b.call.plan.observer.returned(ctx, err)
	return memo, err
}

// answer is what the SDK sends as it is, after a run and after a replay alike: what was
// stored, byte for byte.
func answer(payloads *commonpb.Payloads) (any, error) {
	if payloads == nil {
		return nil, nil //nolint:nilnil // a body without a result
	}
	return payloads, nil
}

func (c *call) replay(key primitives.Key, memo []byte) (any, error) {
	payloads, err := c.codec.decode(memo)
	if err != nil {
		return nil, c.undecodable(key, err)
	}
	return answer(payloads)
}

// sealed makes a Seal hook whose error the call remembers: it passes as it is, whatever
// it looks like.
func sealed(hook func(context.Context) error) func(context.Context) error {
	if hook == nil {
		return nil
	}
	return func(ctx context.Context) error {
		err := hook(ctx)
		callFrom(ctx).hookFailure = err
		return err
	}
}

// fromLedger asks the database that the body writes to. What it finds may have been undone
// since, which Redis knows: then what counts is what it has of the run after that.
func (c *call) fromLedger(ctx context.Context, op primitives.Op) (result any, found bool, err error) {
	if c.plan.Ledger == nil {
		return nil, false, nil
	}
	result, found, err = c.plan.Ledger(ctx, op.Key.String())
	if found && err == nil {
		var undone fence.Value
		if undone, err = c.undone(ctx, op); err == nil && undone != 0 {
			result, found, err = c.plan.Ledger(ctx, op.Key.After(undone).String())
		}
	}
	c.hookFailure = err
	if found && err == nil {
		err = c.sameInput(ctx, op)
	}
	event := primitives.Event{Kind: primitives.EventBegan, Outcome: primitives.Replayed,
		Name: op.Name, Key: op.Key, Wait: time.Since(c.begun)}
	if err != nil {
		event.Kind, event.Outcome, event.Err = primitives.EventRefused, "", err
	}
	if found || err != nil {
		c.plan.observer.Observe(ctx, event)
	}
	return result, found, err
}

// undone is the token under which the operation was undone last, or 0. While Redis cannot
// say, what the ledger has does not count, or a call might be answered with what was undone.
func (c *call) undone(ctx context.Context, op primitives.Op) (fence.Value, error) {
	r, err := c.kit.store.Status(ctx, op)
	if err != nil {
		return 0, c.refused(op.Key, err)
	}
	return r.Undone, nil
}

// sameInput asks Redis, for as long as it remembers, whether an operation in the ledger
// was made from the same input. The ledger is right if Redis cannot say.
func (c *call) sameInput(ctx context.Context, op primitives.Op) error {
	if op.Fingerprint.IsZero() {
		return nil
	}
	if _, err := c.kit.store.Result(ctx, op); errors.Is(err, primitives.ErrMismatch) {
		return c.refused(op.Key, err)
	}
	return nil
}

// judge says what an error of the body means for the record.
func judge(ctx context.Context, err error) primitives.Verdict {
	c := callFrom(ctx)
	switch {
	case err == activity.ErrResultPending: //nolint:errorlint // the SDK takes only the very same for it
		return primitives.Suspend(time.Until(c.info.Deadline))
	case c.plan.MemoiseFailures && final(err):
		if memo, ok := c.codec.encodeFailure(err); ok {
			return primitives.MemoiseFailure(memo)
		}
	}
	if c.encodeFailed {
		return primitives.Unknown // the body has succeeded
	}
	return primitives.Abort
}

// final reports whether err is flagged as one that no caller may retry. Temporal looks
// at the top only.
func final(err error) bool {
	a, ok := err.(*temporal.ApplicationError) //nolint:errorlint // see above
	return ok && a.NonRetryable()
}

// patience is how long the call may wait inside its attempt.
func (c *call) patience() time.Duration {
	left := time.Until(c.info.Deadline) / 2
	if c.info.HeartbeatTimeout > 0 {
		left = min(left, c.info.HeartbeatTimeout/2)
	}
	return max(left, 1)
}

// holder says who runs the operation, to people who find it busy.
func (c *call) holder() string {
	var b strings.Builder
	for _, part := range []struct{ name, value string }{
		{"workflow", c.info.WorkflowExecution.ID},
		{"run", c.info.WorkflowExecution.RunID},
		{"activity", c.info.ActivityID},
		{"activity-run", c.info.ActivityRunID},
		{"attempt", fmt.Sprint(c.info.Attempt)},
		{"worker", c.kit.identity},
	} {
		if part.value != "" {
			fmt.Fprintf(&b, " %s=%s", part.name, clip(part.value))
		}
	}
	return strings.TrimPrefix(b.String(), " ")
}

// clip keeps the parts of a holder short enough for all of them to fit.
func clip(s string) string {
	const most = 75
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= most {
		return s
	}
	for i := most - 1; ; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i] + "~"
		}
	}
}
