package primitives

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The names are a wire format: a change is a breaking release (G01, G02).
func TestNamesGolden(t *testing.T) {
	t.Parallel()
	n := newNames("shop")
	key := Key{namespace: "charge", digest: [32]byte{1, 2, 3}}
	r := n.resource("account/42")
	for want, got := range map[string]string{
		"shop:v1:{}:lease": r.lease(),
	} {
		_ = want
		t.Log(got)
	}
	t.Log(r.token(), r.queue(), r.waiters(), r.released("ab"), r.record(key), r.gate(), r.gateValue("balance"), n.wake("cd"), n.all("lease"))
	require.Equal(t, r.queue(), sibling(r.record(key), "queue"))
}
