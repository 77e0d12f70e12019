package primitives_test

import (
	"math/big"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives"
)

func requireKeyError(t testing.TB, err error) *primitives.KeyError {
	t.Helper()
	var fault *primitives.KeyError
	require.ErrorAs(t, err, &fault)
	require.NotEmpty(t, fault.Reason)
	require.Contains(t, err.Error(), fault.Reason)
	require.Contains(t, err.Error(), fault.Path)
	return fault
}

func newKey(t require.TestingT, payload any) primitives.Key {
	key, err := primitives.NewKey("ns", payload)
	require.NoError(t, err, "%T", payload)
	return key
}

func newFingerprintOf(payload any) (string, error) {
	f, err := primitives.NewFingerprint(payload)
	return f.String(), err
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) < 0
}

func ratOf(t testing.TB, number string) *big.Rat {
	t.Helper()
	r, ok := new(big.Rat).SetString(number)
	require.True(t, ok, number)
	return r
}
