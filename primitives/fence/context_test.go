package fence_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

func token(resource string, value fence.Value) fence.Token {
	return fence.Token{Resource: resource, Value: value, Owner: "nonce"}
}

func requireNoToken(t *testing.T, ctx context.Context, resource string) {
	t.Helper()
	tok, err := fence.ForResource(ctx, resource)
	require.ErrorIs(t, err, fence.ErrNoToken)
	require.ErrorContains(t, err, resource)
	require.Zero(t, tok)
}

func requireToken(t *testing.T, ctx context.Context, want fence.Token) {
	t.Helper()
	tok, err := fence.ForResource(ctx, want.Resource)
	require.NoError(t, err)
	require.Equal(t, want, tok)
}

func TestEmptyContext(t *testing.T) {
	t.Parallel()
	_, err := fence.FromContext(t.Context())
	require.ErrorIs(t, err, fence.ErrNoToken)
	requireNoToken(t, t.Context(), "a")
}

func TestNestedResources(t *testing.T) {
	t.Parallel()
	outer := fence.NewContext(t.Context(), token("a", 1))
	inner := fence.NewContext(outer, token("b", 2))
	requireToken(t, inner, token("a", 1))
	requireToken(t, inner, token("b", 2))
	_, err := fence.FromContext(inner)
	require.ErrorIs(t, err, fence.ErrAmbiguous)
	require.ErrorContains(t, err, `["b" "a"]`)

	only, err := fence.FromContext(outer)
	require.NoError(t, err)
	require.Equal(t, token("a", 1), only)
	requireNoToken(t, outer, "b")
}

// The same resource again: the inner grant wins, and the outer context keeps its
// own, whichever number is higher.
func TestSameResourceIsShadowed(t *testing.T) {
	t.Parallel()
	outer := fence.NewContext(t.Context(), token("a", 5))
	for _, value := range []fence.Value{4, 5, 6} {
		inner := fence.NewContext(outer, token("a", value))
		only, err := fence.FromContext(inner)
		require.NoError(t, err)
		require.Equal(t, token("a", value), only)
		requireToken(t, outer, token("a", 5))
	}
}

func TestInvalidTokenHidesItsResource(t *testing.T) {
	t.Parallel()
	outer := fence.NewContext(t.Context(), token("a", 5))
	for _, value := range []fence.Value{0, -1} {
		inner := fence.NewContext(outer, token("a", value))
		requireNoToken(t, inner, "a")
		_, err := fence.FromContext(inner)
		require.ErrorIs(t, err, fence.ErrNoToken)
	}
	nameless := fence.NewContext(t.Context(), token("", 1))
	_, err := fence.FromContext(nameless)
	require.ErrorIs(t, err, fence.ErrNoToken)
	_, err = fence.ForResource(nameless, "")
	require.ErrorIs(t, err, fence.ErrNoToken)
}

func TestWithoutTokens(t *testing.T) {
	t.Parallel()
	outer := fence.NewContext(fence.NewContext(t.Context(), token("a", 1)), token("b", 2))
	bare := fence.WithoutTokens(outer)
	requireNoToken(t, bare, "a")
	_, err := fence.FromContext(bare)
	require.ErrorIs(t, err, fence.ErrNoToken)

	again := fence.NewContext(bare, token("c", 3))
	only, err := fence.FromContext(again)
	require.NoError(t, err, "what was dropped must not make it ambiguous")
	require.Equal(t, token("c", 3), only)
}

// Siblings derive from one context at the same time; none may see another's.
func TestSiblingsAreIndependent(t *testing.T) {
	t.Parallel()
	outer := fence.NewContext(t.Context(), token("shared", 1))
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			mine := token(fmt.Sprint("r", i), fence.Value(i+1))
			ctx := fence.NewContext(outer, mine)
			tok, err := fence.ForResource(ctx, mine.Resource)
			if err != nil || tok != mine {
				t.Errorf("got %v, %v; want %v", tok, err, mine)
			}
			if _, err := fence.ForResource(ctx, fmt.Sprint("r", (i+1)%16)); err == nil {
				t.Error("a sibling's token is visible")
			}
		})
	}
	wg.Wait()
}

func ExampleForResource() {
	ctx := fence.NewContext(context.Background(), fence.Token{Resource: "account/42", Value: 7})
	tok, err := fence.ForResource(ctx, "account/42")
	fmt.Println(tok, err)
	_, err = fence.ForResource(ctx, "account/43")
	fmt.Println(err)
	// Output:
	// account/42#7 <nil>
	// fence: no token in context for "account/43"
}
