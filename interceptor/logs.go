package interceptor

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// log writes one line for an event that people may ask about, never with a part of
// the input in it. The logger adds workflow, run, activity and attempt itself.
func log(ctx context.Context, e primitives.Event) {
	logger := activity.GetLogger(ctx)
	fields := fieldsOf(e)
	if !theirs(ctx, e) {
		fields = append(fields, errorFields(e.Err)...)
	}
	switch e.Kind {
	case primitives.EventBegan:
		level := logger.Debug
		if e.Outcome != primitives.Begun {
			level = logger.Info
		}
		level("fencekit: "+string(e.Outcome), fields...)
	case primitives.EventRefused:
		level := logger.Warn
		if errors.Is(e.Err, primitives.ErrBusy) {
			level = logger.Info
		}
		level("fencekit: the body was not run: "+beginning(e), fields...)
	case primitives.EventUnguarded:
		logger.Warn("fencekit: redis is unavailable, the body runs unguarded", fields...)
	case primitives.EventMemoFailed:
		logger.Warn("fencekit: the body succeeded, its result could not be stored", fields...)
	case primitives.EventOversize:
		logger.Warn("fencekit: the result is too large to keep", fields...)
	case primitives.EventLost:
		logger.Warn("fencekit: the lease was lost while the body ran", fields...)
	case primitives.EventAbortFailed:
		logger.Warn("fencekit: redis could not be told how the body ended; the lease ends with its TTL", fields...)
	case primitives.EventTokenRegressed:
		logger.Warn("fencekit: a store has seen a higher token than the newest; the floor was raised", fields...)
	default:
		logger.Debug("fencekit: "+string(e.Kind), fields...)
	}
}

func fieldsOf(e primitives.Event) (fields []any) {
	add := func(name string, value any) { fields = append(fields, name, value) }
	if e.Key.Valid() {
		add("FencekitKey", e.Key.String())
	}
	if e.Token.Valid() {
		add("FencingToken", e.Token.Value.String())
	}
	if e.Takeovers > 0 {
		add("Takeovers", e.Takeovers)
	}
	if e.Bytes > 0 {
		add("MemoBytes", e.Bytes)
	}
	return fields
}

// theirs reports whether the error of an event is one of a body or a hook, which are
// theirs to log. It may wrap an error of this kit, and say more around it.
func theirs(ctx context.Context, e primitives.Event) bool {
	if e.Kind == primitives.EventFailed {
		return true
	}
	c := callFrom(ctx)
	return c != nil && c.hookFailure != nil && errors.Is(e.Err, c.hookFailure)
}

// errorFields are what is known of an error, without the names in its text where a
// resource may be named after something personal.
func errorFields(err error) []any {
	var (
		busy  *primitives.BusyError
		lost  *primitives.LostError
		newer *primitives.SupersededError
	)
	switch {
	case err == nil, errors.Is(err, fence.ErrStale):
		return nil
	case errors.As(err, &busy):
		return []any{"Holder", busy.Holder, "HolderToken", busy.Token.String(),
			"HolderSince", busy.Since.UTC().Format(time.RFC3339Nano), "RemainingMillis", busy.Remaining.Milliseconds()}
	case errors.As(err, &newer):
		return []any{"Holder", newer.Holder, "HolderToken", newer.Current.String()}
	case errors.As(err, &lost):
		return []any{"Holder", lost.Holder, "Step", lost.Step}
	}
	for _, ours := range []error{
		primitives.ErrUnavailable, primitives.ErrDenied, primitives.ErrCorrupt, primitives.ErrMismatch,
		primitives.ErrKeyChanged, primitives.ErrPoisoned, primitives.ErrOutcomeUnknown, primitives.ErrResultUnavailable, primitives.ErrFailed,
	} {
		if errors.Is(err, ours) {
			return []any{"Error", err.Error()}
		}
	}
	if isType(err, TypeKeyError) {
		return []any{"Error", err.Error()}
	}
	return nil
}

// isType reports whether err is an application error of a type.
func isType(err error, kind string) bool {
	var a *temporal.ApplicationError
	return errors.As(err, &a) && a.Type() == kind
}
