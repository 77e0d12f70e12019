package primitives

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// The names are a wire format: a change is a breaking release (G01, G02).
func TestNamesGolden(t *testing.T) {
	t.Parallel()
	n := newNames("shop")
	r := n.resource("account/42")
	const root = "shop:v1:{c8debfeb84ec061e5e6bb9d73c8e9fe2}:"
	for want, got := range map[string]string{
		root + "lease":       r.lease(),
		root + "token":       r.token(),
		root + "queue":       r.queue(),
		root + "waiters":     r.waiters(),
		root + "turns":       r.turns(),
		root + "released:ab": r.released("ab"),
		root + "gate":        r.gate(),
		root + "gate:63fbb9904be12c07334cc6f5f7394d8d": r.gateValue("balance"),
		"shop:v1:wake:cd":   n.wake("cd"),
		"shop:v1:{*}:lease": n.all("lease"),
		"shop:v1:{*}:op:*":  n.all("op:*"),
	} {
		require.Equal(t, want, got)
	}
}

// The name of a record is made from the text of its key.
func TestRecordNamesGolden(t *testing.T) {
	t.Parallel()
	key, err := NewKey("charge", 17)
	require.NoError(t, err)
	r := newNames("shop").resource("account/42")
	require.Equal(t, r.root+"op:"+digest("key", key.String()), r.record(key))
	require.Equal(t, r.root+"waiting:"+digest("key", key.String()), waitersOf(r.record(key)))
	require.Equal(t, "077034cf46c187f27a173d45dfa748c7", digest("key", "v1:charge:0102"))
	require.Equal(t, r.queue(), sibling(r.record(key), "queue"))
	require.Equal(t, r.lease(), sibling(r.gateValue("balance"), "lease"))
}

// A13, A14: whatever callers call their things, names hold digests, nonces and words
// of our own. Every kind of key is there when we look.
func TestNamesHoldNothingOfTheCaller(t *testing.T) {
	behaviour(t, func(e *env) {
		const mail = "jo@example.test {}a}b{c \r\n\x00"
		for _, f := range features(e, mail) {
			f.use()
		}
		rule := regexp.MustCompile(`^` + e.store.opts.Prefix + `:v1:\{[0-9a-f]{32}\}:` +
			`(lease|token|queue|waiters|turns|gate|released:[0-9a-f]{32}|op:[0-9a-f]{32}|waiting:[0-9a-f]{32}|gate:[0-9a-f]{32})$`)
		kinds := map[string]bool{}
		for _, name := range e.stored() {
			require.Regexp(e, rule, name)
			kind, _, _ := strings.Cut(name[strings.Index(name, "}:")+2:], ":")
			kinds[kind] = true
		}
		for _, kind := range []string{"lease", "token", "queue", "waiters", "turns", "gate", "released", "op", "waiting"} {
			require.Contains(e, kinds, kind, "the features do not make every kind of key")
		}
	})
}

// A14: a caller's braces do not move a resource's keys apart. Braces in a prefix would,
// which is why New refuses them.
func TestNamesOfOneResourceShareASlot(t *testing.T) {
	t.Parallel()
	cluster := started(t, sharedCluster)
	key, err := NewKey("charge", "}{")
	require.NoError(t, err)
	slots := func(prefix, resource string) int {
		r := newNames(prefix).resource(resource)
		seen := map[int]bool{}
		for _, name := range []string{r.lease(), r.token(), r.queue(), r.waiters(), r.turns(), r.released("ab"), r.record(key), waitersOf(r.record(key)), r.gate(), r.gateValue("}{")} {
			slot, err := cluster.Slot(t.Context(), name)
			require.NoError(t, err)
			seen[slot] = true
		}
		return len(seen)
	}
	for _, resource := range []string{"{}", "a}b{c", "{a}{b}", "\r\n\x00", strings.Repeat("{", 4096), "account/42"} {
		require.Equal(t, 1, slots("shop:eu/1", resource), "%q", resource)
	}
	require.Greater(t, slots("shop:{}", "account/42"), 1)
}

// A14, F04: every call works on a cluster whatever its resource is called, and the
// resources spread over all primaries.
func TestResourcesSpreadOverTheCluster(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onCluster(t), true)
	const many = 1000
	for i := range many {
		resource := strings.Repeat("{}", i%3) + "a}b{c " + newNonce()
		_, err := e.store.TryAcquire(e.ctx(), resource, LeaseOptions{TTL: time.Hour})
		require.NoError(t, err)
	}
	share := map[string]int{}
	cluster := e.rdb.(*redis.ClusterClient)
	for _, name := range e.stored() {
		if strings.HasSuffix(name, ":lease") {
			node, err := cluster.MasterForKey(e.ctx(), name)
			require.NoError(t, err)
			share[node.Options().Addr]++
		}
	}
	require.Len(t, share, 3)
	for addr, n := range share {
		require.Greater(t, n, many/5, addr)
	}
}
