package interceptor

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// The metrics, through the SDK's handler, which adds tags of its own. Ours are the
// activity type and, where it says so, the outcome.
const (
	MetricCalls           = "fencekit_calls"             // counter; tag outcome: how a call began, or why it did not
	MetricEnds            = "fencekit_ends"              // counter; tag outcome: how a body that ran ended
	MetricTakeovers       = "fencekit_takeovers"         // counter: operations taken over from another holder
	MetricWait            = "fencekit_wait"              // timer: from the call to its answer
	MetricLeaseLeft       = "fencekit_lease_left"        // timer: what was left of the lease when the body ended
	MetricMemoBytes       = "fencekit_memo_bytes"        // counter: size of the results stored
	MetricMemoWriteFailed = "fencekit_memo_write_failed" // counter: results that could not be stored
	MetricStaleWrites     = "fencekit_stale_writes"      // counter: bodies that failed because a store refused their token
	MetricTokenRegressed  = "fencekit_token_regressed"   // counter: a store had seen a higher token than the newest
)

const (
	tagActivity = "activity_type" // the SDK's name for it, which it leaves out for local ones
	tagOutcome  = "outcome"
)

// observer turns what a guard tells into metrics, span attributes and log lines.
type observer struct {
	user primitives.Observer // nil if there is none
}

// Observe implements primitives.Observer. A panic in one of them costs the others
// nothing.
func (o observer) Observe(ctx context.Context, e primitives.Event) {
	for _, tell := range []func(context.Context, primitives.Event){count, annotate, log} {
		safely(func() { tell(ctx, e) })
	}
	if o.user != nil {
		safely(func() { o.user.Observe(ctx, e) })
	}
}

// returned is told what the body itself returned.
func (o observer) returned(ctx context.Context, err error) {
	if errors.Is(err, fence.ErrStale) {
		safely(func() {
			tags := map[string]string{tagActivity: activity.GetInfo(ctx).ActivityType.Name}
			activity.GetMetricsHandler(ctx).WithTags(tags).Counter(MetricStaleWrites).Inc(1)
		})
	}
}

// safely keeps a panic in somebody's handler from breaking the work.
func safely(fn func()) {
	defer func() { _ = recover() }()
	fn()
}

func count(ctx context.Context, e primitives.Event) {
	metrics := activity.GetMetricsHandler(ctx).WithTags(map[string]string{tagActivity: e.Name})
	by := func(name, outcome string) client.MetricsCounter {
		return metrics.WithTags(map[string]string{tagOutcome: outcome}).Counter(name)
	}
	switch e.Kind {
	case primitives.EventBegan, primitives.EventUnguarded, primitives.EventRefused:
		by(MetricCalls, beginning(e)).Inc(1)
		if e.Kind != primitives.EventUnguarded {
			metrics.Timer(MetricWait).Record(e.Wait)
		}
		if e.Outcome == primitives.TakenOver || e.Outcome == primitives.Reclaimed {
			metrics.Counter(MetricTakeovers).Inc(1)
		}
		return
	case primitives.EventTokenRegressed:
		metrics.Counter(MetricTokenRegressed).Inc(1)
		return
	case primitives.EventAbortFailed:
		return // it follows an end that was counted
	case primitives.EventMemoFailed:
		metrics.Counter(MetricMemoWriteFailed).Inc(1)
	case primitives.EventCompleted:
		metrics.Counter(MetricMemoBytes).Inc(int64(e.Bytes))
	}
	by(MetricEnds, string(e.Kind)).Inc(1)
	metrics.Timer(MetricLeaseLeft).Record(max(e.Left, 0))
}

// beginning is the outcome of a call in one word, out of a small set.
func beginning(e primitives.Event) string {
	if e.Kind != primitives.EventRefused {
		return string(e.Outcome)
	}
	if temporal.IsCanceledError(e.Err) { // also while it waited for somebody
		return "canceled"
	}
	for _, c := range []struct {
		is   error
		word string
	}{
		{primitives.ErrBusy, "busy"},
		{primitives.ErrUnavailable, "unavailable"},
		{primitives.ErrFailed, "failed_before"},
		{primitives.ErrMismatch, "mismatch"},
		{primitives.ErrKeyChanged, "key_changed"},
		{primitives.ErrPoisoned, "poisoned"},
		{primitives.ErrOutcomeUnknown, "outcome_unknown"},
		{primitives.ErrResultUnavailable, "result_unavailable"},
		{primitives.ErrDenied, "denied"},
		{primitives.ErrCorrupt, "corrupt"},
		{fence.ErrLeaseLost, "lease_lost"},
		{context.Canceled, "canceled"},
		{context.DeadlineExceeded, "canceled"},
	} {
		if errors.Is(e.Err, c.is) {
			return c.word
		}
	}
	if isType(e.Err, TypeKeyError) {
		return "key_error"
	}
	return "other"
}

// annotate writes on the span that is current where the interceptor stands: register
// the tracing interceptor before it.
func annotate(ctx context.Context, e primitives.Event) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	switch e.Kind {
	case primitives.EventBegan, primitives.EventUnguarded, primitives.EventRefused:
		span.SetAttributes(attribute.String("fencekit.outcome", beginning(e)))
		if e.Key.Valid() {
			span.SetAttributes(attribute.String("fencekit.key", e.Key.String()))
		}
		if e.Token.Valid() {
			span.SetAttributes(attribute.Int64("fencekit.token", int64(e.Token.Value)))
		}
		if e.Takeovers > 0 {
			span.SetAttributes(attribute.Int("fencekit.takeovers", e.Takeovers))
		}
	case primitives.EventTokenRegressed:
		span.SetAttributes(attribute.Bool("fencekit.token_regressed", true))
	case primitives.EventAbortFailed:
	default:
		span.SetAttributes(attribute.String("fencekit.end", string(e.Kind)))
	}
}
