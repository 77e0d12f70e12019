package primitives

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type receipt struct {
	ID   int64
	When time.Time
	Raw  []byte
	Next *receipt
}

// roundTrip runs Do twice: what is replayed is what was returned.
func roundTrip[T any](e *env, want T) {
	e.Helper()
	g, op, runs := e.guard(GuardOptions{}), e.op(), 0
	for range 2 {
		got, err := Do(e.ctx(), g, op, func(context.Context) (T, error) { runs++; return want, nil })
		require.NoError(e, err)
		require.Equal(e, want, got)
	}
	require.Equal(e, 1, runs)
}

// C14, C15 for encoding/json.
func TestTypedResultsAreReplayedAsTheyWere(t *testing.T) {
	behaviour(t, func(e *env) {
		roundTrip(e, receipt{ID: 9007199254740993, When: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Raw: []byte{0, 255}, Next: &receipt{}})
		roundTrip(e, int64(9007199254740993))
		roundTrip(e, "")
		roundTrip(e, 0)
		roundTrip(e, false)
		roundTrip(e, []byte{0, 1, 255})
		roundTrip(e, []string{})
		roundTrip(e, struct{}{})
		roundTrip[*receipt](e, nil)
		roundTrip[any](e, nil)
	})
}

func TestTypedResultThatCannotBeEncodedIsAborted(t *testing.T) {
	behaviour(t, func(e *env) {
		op := e.op()
		_, err := Do(e.ctx(), e.guard(GuardOptions{}), op, func(context.Context) (chan int, error) { return make(chan int), nil })
		require.ErrorContains(e, err, op.Key.String())
		require.Equal(e, Absent, e.status(op).State)
	})
}

func TestMemoOfAnotherTypeIsCorrupt(t *testing.T) {
	behaviour(t, func(e *env) {
		g := e.guard(GuardOptions{})
		for _, memo := range []string{"", "{", `"text"`, "9999999999"} {
			op, body := e.op(), &counted{memo: memo}
			_, err := g.Do(e.ctx(), op, body.body)
			require.NoError(e, err)
			v, err := Do(e.ctx(), g, op, func(context.Context) (int8, error) { e.Error("it ran"); return 1, nil })
			require.ErrorIs(e, err, ErrCorrupt, "%q", memo)
			require.Zero(e, v)
			require.Equal(e, memo, string(e.status(op).Memo), "it is left as it is")
		}
	})
}

// An error comes with the zero value, whatever the body returned beside it.
func TestTypedErrors(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{}), e.op()
		v, err := Do(e.ctx(), g, op, func(context.Context) (int, error) { return 7, errStop })
		require.Same(e, errStop, err)
		require.Zero(e, v)
		v, err = Do(e.ctx(), g, op, func(context.Context) (int, error) {
			e.expire(op.resource())
			e.claim(g, op)
			return 7, nil
		})
		require.True(e, errors.Is(err, ErrSuperseded))
		require.Zero(e, v)
	})
}
