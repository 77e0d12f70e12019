package fence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

func TestStaleErrorIsFoundThroughWrapping(t *testing.T) {
	t.Parallel()
	stale := &fence.StaleError{Resource: "account/42", Token: 7, Current: 9}
	wrapped := fmt.Errorf("write: %w", errors.Join(errors.New("other"), fmt.Errorf("row: %w", stale)))
	require.ErrorIs(t, wrapped, fence.ErrStale)
	var found *fence.StaleError
	require.ErrorAs(t, wrapped, &found)
	require.Same(t, stale, found)
}

func TestStatesAreDistinct(t *testing.T) {
	t.Parallel()
	states := []error{fence.ErrStale, fence.ErrNoToken, fence.ErrAmbiguous, fence.ErrLeaseLost}
	for i, a := range append(states, &fence.StaleError{}) {
		for j, b := range states {
			require.Equal(t, i%len(states) == j, errors.Is(a, b), "%v is %v", a, b)
		}
	}
}

func TestStaleErrorText(t *testing.T) {
	t.Parallel()
	known := &fence.StaleError{Resource: "account/42", Token: 7, Current: 9}
	require.EqualError(t, known, `fence: stale token 7 for "account/42": the store has seen 9`)
	untold := &fence.StaleError{Resource: "account/42", Token: 7}
	require.EqualError(t, untold, `fence: stale token 7 for "account/42": the store has seen a newer one`)
}

func TestLeaseLostAsCause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("%w: renewal refused", fence.ErrLeaseLost))
	require.ErrorIs(t, context.Cause(ctx), fence.ErrLeaseLost)
}

func ExampleStaleError() {
	err := fmt.Errorf("save: %w", &fence.StaleError{Resource: "account/42", Token: 7, Current: 9})
	if stale, ok := errors.AsType[*fence.StaleError](err); ok {
		fmt.Println(errors.Is(err, fence.ErrStale), stale.Current)
	}
	// Output: true 9
}
