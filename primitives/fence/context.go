package fence

import (
	"context"
	"fmt"
)

type contextKey struct{}

// tokens is the immutable list of the tokens in a context, innermost first, at
// most one for each resource.
type tokens []Token

// NewContext returns a context that carries t beside the tokens that ctx carries
// already. A token of the same resource is replaced, so that a nested guard's
// newer grant is the one that its body writes with. An invalid token hides the
// resource: look-ups of it answer [ErrNoToken].
func NewContext(ctx context.Context, t Token) context.Context {
	list := tokens{t}
	for _, outer := range all(ctx) {
		if outer.Resource != t.Resource {
			list = append(list, outer)
		}
	}
	return context.WithValue(ctx, contextKey{}, list)
}

// WithoutTokens returns a context that carries no token, whatever ctx carries.
// A guard that lets its body run unguarded uses it, so that the body's fenced
// writes refuse instead of borrowing an outer guard's token.
func WithoutTokens(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, tokens(nil))
}

// FromContext returns the only token in ctx. It returns [ErrNoToken] if there is
// none or it is invalid, and [ErrAmbiguous] if there are tokens of several
// resources: name one with [ForResource].
func FromContext(ctx context.Context) (Token, error) {
	switch list := all(ctx); len(list) {
	case 0:
		return Token{}, ErrNoToken
	case 1:
		return checked(list[0])
	default:
		names := make([]string, len(list))
		for i, t := range list {
			names[i] = t.Resource
		}
		return Token{}, fmt.Errorf("%w: %q", ErrAmbiguous, names)
	}
}

// ForResource returns the token that ctx carries for resource, or [ErrNoToken].
func ForResource(ctx context.Context, resource string) (Token, error) {
	for _, t := range all(ctx) {
		if t.Resource == resource {
			return checked(t)
		}
	}
	return Token{}, fmt.Errorf("%w for %q", ErrNoToken, resource)
}

func checked(t Token) (Token, error) {
	if !t.Valid() {
		return Token{}, fmt.Errorf("%w: the token of %q has value %d", ErrNoToken, t.Resource, t.Value)
	}
	return t, nil
}

func all(ctx context.Context) tokens {
	list, _ := ctx.Value(contextKey{}).(tokens)
	return list
}
