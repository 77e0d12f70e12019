package primitives

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// broken is an option or argument that breaks a rule: the error names both.
type broken[O any] struct {
	opts        O
	field, rule string
}

func refused(t testing.TB, err error, field, rule string) {
	t.Helper()
	var option *OptionError
	require.ErrorAs(t, err, &option)
	require.Equal(t, field, option.Field)
	require.Contains(t, option.Rule, rule)
	require.ErrorIs(t, err, ErrInvalid)
	require.Equal(t, "fencekit: "+option.Field+": "+option.Rule, err.Error())
}

const (
	year    = 365 * 24 * time.Hour
	justNot = time.Nanosecond
	tooLong = 10*year + justNot
)

var (
	longText = strings.Repeat("x", maxHolder+1)
	badText  = "\xff"
)

func TestStoreOptionsNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	rdb := onMiniredis(t)
	for _, b := range []broken[Options]{
		{Options{Prefix: "acme{eu}"}, "Prefix", "braces"}, // A14
		{Options{Prefix: "a b"}, "Prefix", "letters"},
		{Options{Prefix: "a*"}, "Prefix", "letters"},
		{Options{Prefix: "é"}, "Prefix", "letters"},
		{Options{Prefix: "a\n"}, "Prefix", "letters"},
		{Options{Prefix: strings.Repeat("x", 65)}, "Prefix", "1 to 64"},
		{Options{Timeout: -1}, "Timeout", "is negative"},
		{Options{Timeout: minTimeout - justNot}, "Timeout", "below the minimum of 10ms"},
		{Options{Timeout: maxLease + justNot}, "Timeout", "above the maximum of 24h0m0s"},
		{Options{TokenRetention: -time.Second}, "TokenRetention", "is negative"},
		{Options{TokenRetention: time.Second - justNot}, "TokenRetention", "below the minimum of 1s"},
		{Options{TokenRetention: tooLong}, "TokenRetention", "above the maximum"},
	} {
		_, err := New(rdb, b.opts)
		refused(t, err, b.field, b.rule)
	}
	for _, o := range []Options{
		{},
		{Prefix: "A.b_c-d:e/9", Timeout: minTimeout, TokenRetention: time.Second},
		{Prefix: strings.Repeat("x", 64), Timeout: maxLease, TokenRetention: 10 * year},
	} {
		_, err := New(rdb, o)
		require.NoError(t, err)
	}
}

// B13: no TTL that is zero by rounding, below the minimum or without end, anywhere. The
// zero value is the default.
func TestGuardOptionsNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	store, err := New(onMiniredis(t), Options{})
	require.NoError(t, err)
	for _, b := range []broken[GuardOptions]{
		{GuardOptions{LeaseTTL: -time.Second}, "LeaseTTL", "-1s is negative"},
		{GuardOptions{LeaseTTL: 500 * time.Microsecond}, "LeaseTTL", "below the minimum of 50ms"},
		{GuardOptions{LeaseTTL: time.Millisecond}, "LeaseTTL", "below the minimum of 50ms"},
		{GuardOptions{LeaseTTL: 3 * time.Millisecond}, "LeaseTTL", "3ms is below the minimum of 50ms"},
		{GuardOptions{LeaseTTL: minLease - justNot}, "LeaseTTL", "below the minimum of 50ms"},
		{GuardOptions{LeaseTTL: 10 * year}, "LeaseTTL", "above the maximum of 24h0m0s"},
		{GuardOptions{RenewEvery: -1}, "RenewEvery", "is negative"},
		{GuardOptions{RenewEvery: minRenewEvery - justNot}, "RenewEvery", "below the minimum of 10ms"},
		{GuardOptions{LeaseTTL: time.Second, RenewEvery: time.Second}, "RenewEvery", "1s is not below LeaseTTL (1s)"},
		{GuardOptions{LeaseTTL: time.Second, RenewEvery: time.Minute}, "RenewEvery", "is not below LeaseTTL (1s)"},
		{GuardOptions{LeaseTTL: time.Second, RenewEvery: 978 * time.Millisecond}, "RenewEvery", "less its margin of 22ms"},
		{GuardOptions{LeaseTTL: time.Second, RenewEvery: 25 * time.Hour}, "RenewEvery", "above the maximum"},
		{GuardOptions{Retention: -1}, "Retention", "is negative"},
		{GuardOptions{Retention: minRetention - justNot}, "Retention", "below the minimum of 10ms"},
		{GuardOptions{Retention: tooLong}, "Retention", "above the maximum"},
		{GuardOptions{Wait: -1}, "Wait", "is negative"},
		{GuardOptions{MaxMemo: -1}, "MaxMemo", "-1 is outside"},
		{GuardOptions{MaxMemo: largestMaxMemo + 1}, "MaxMemo", "is outside 0 to 67108864 bytes"},
		{GuardOptions{MaxTakeovers: -1}, "MaxTakeovers", "is negative"},
		{GuardOptions{AtMostOnce: true, FailOpen: true}, "FailOpen", "contradicts AtMostOnce"},
	} {
		_, err := NewGuard(store, b.opts)
		refused(t, err, b.field, b.rule)
	}
	for _, o := range []GuardOptions{
		{},
		{LeaseTTL: minLease}, {LeaseTTL: maxLease}, {Retention: minRetention}, {Retention: 10 * year},
		{LeaseTTL: time.Second, RenewEvery: 977 * time.Millisecond}, {MaxMemo: largestMaxMemo},
	} {
		_, err := NewGuard(store, o)
		require.NoError(t, err)
	}
	_, err = NewGuard(nil, GuardOptions{})
	refused(t, err, "store", "is nil")
}

// B13. What is refused has sent nothing, and has no lease beside its error.
func TestLeaseArgumentsNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onMiniredis(t), false)
	for _, b := range []broken[LeaseOptions]{
		{LeaseOptions{TTL: -time.Second}, "TTL", "is negative"},
		{LeaseOptions{TTL: 500 * time.Microsecond}, "TTL", "500µs is below the minimum of 50ms"},
		{LeaseOptions{TTL: time.Millisecond}, "TTL", "below the minimum of 50ms"},
		{LeaseOptions{TTL: 10 * year}, "TTL", "above the maximum of 24h0m0s"},
		{LeaseOptions{Wait: -1}, "Wait", "is negative"},
		{LeaseOptions{Floor: -1}, "Floor", "-1 leaves no room"},
		{LeaseOptions{Holder: longText}, "Holder", "513 bytes are above the maximum of 512"},
		{LeaseOptions{Holder: badText}, "Holder", "not valid UTF-8"},
	} {
		for _, acquire := range []func(context.Context, string, LeaseOptions) (*Lease, error){e.store.TryAcquire, e.store.Acquire} {
			l, err := acquire(e.ctx(), "r", b.opts)
			refused(t, err, b.field, b.rule)
			require.Nil(t, l)
		}
		err := e.store.Hold(e.ctx(), "r", b.opts, func(context.Context) error { panic("it ran") })
		refused(t, err, b.field, b.rule)
	}
	for resource, rule := range map[string]string{
		"": "is empty", badText: "not valid UTF-8", strings.Repeat("x", maxResource+1): "above the maximum of 4096",
	} {
		_, err := e.store.TryAcquire(e.ctx(), resource, LeaseOptions{})
		refused(t, err, "resource", rule)
		_, err = e.store.Inspect(e.ctx(), resource)
		refused(t, err, "resource", rule)
		_, err = e.store.Raise(e.ctx(), resource, 1)
		refused(t, err, "resource", rule)
	}
	_, err := e.store.Raise(e.ctx(), "r", 0)
	refused(t, err, "floor", "is not a token")
	require.Empty(t, e.stored())

	l := e.hold("r")
	refused(t, l.Extend(e.ctx(), -1), "ttl", "is negative")
	refused(t, l.Extend(e.ctx(), time.Millisecond), "ttl", "below the minimum")
	refused(t, l.Extend(e.ctx(), maxLease+1), "ttl", "above the maximum")
}

func TestRecordAndOpArgumentsNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onMiniredis(t), false)
	for _, b := range []broken[RecordOptions]{
		{RecordOptions{TTL: -1}, "TTL", "is negative"},
		{RecordOptions{TTL: minLease - justNot}, "TTL", "below the minimum of 50ms"},
		{RecordOptions{TTL: tooLong}, "TTL", "above the maximum"},
		{RecordOptions{ReclaimAfter: -1}, "ReclaimAfter", "is negative"},
		{RecordOptions{ReclaimAfter: 24 * time.Millisecond}, "ReclaimAfter", "below the minimum of 25ms"},
		{RecordOptions{TTL: time.Minute, ReclaimAfter: time.Minute + 1}, "ReclaimAfter", "above the maximum of 1m0s"},
		{RecordOptions{Retention: -1}, "Retention", "is negative"},
		{RecordOptions{MaxMemo: -1}, "MaxMemo", "is outside"},
		{RecordOptions{MaxTakeovers: -1}, "MaxTakeovers", "is negative"},
	} {
		_, err := e.store.TryBegin(e.ctx(), e.op(), b.opts)
		refused(t, err, b.field, b.rule)
		_, err = e.store.TryBeginOrReclaim(e.ctx(), e.op(), b.opts)
		refused(t, err, b.field, b.rule)
	}
	for _, b := range []broken[Op]{
		{Op{}, "key", "zero Key"},
		{Op{Key: e.key(), Floor: -1}, "Floor", "-1 leaves no room"},
		{Op{Key: e.key(), Holder: longText}, "Holder", "above the maximum"},
		{Op{Key: e.key(), Holder: badText}, "Holder", "not valid UTF-8"},
		{Op{Key: e.key(), Resource: strings.Repeat("x", maxResource+1)}, "Resource", "above the maximum"},
		{Op{Key: e.key(), Resource: badText}, "Resource", "not valid UTF-8"},
	} {
		_, err := e.guard(GuardOptions{FailOpen: true}).Do(e.ctx(), b.opts, func(context.Context) ([]byte, error) { panic("it ran") })
		refused(t, err, b.field, b.rule)
		_, err = e.store.TryBegin(e.ctx(), b.opts, RecordOptions{})
		refused(t, err, b.field, b.rule)
		_, err = e.store.Status(e.ctx(), b.opts)
		refused(t, err, b.field, b.rule)
		refused(t, e.store.Clear(e.ctx(), b.opts), b.field, b.rule)
	}
	require.Empty(t, e.stored())
}

func TestGateArgumentsNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onMiniredis(t), false)
	for _, b := range []broken[GateOptions]{
		{GateOptions{Retention: -1}, "Retention", "is negative"},
		{GateOptions{Retention: time.Second - justNot}, "Retention", "below the minimum of 1s"},
		{GateOptions{Retention: tooLong}, "Retention", "above the maximum"},
	} {
		_, err := NewGate(e.store, b.opts)
		refused(t, err, b.field, b.rule)
	}
	_, err := NewGate(nil, GateOptions{})
	refused(t, err, "store", "is nil")
	gate, err := NewGate(e.store, GateOptions{})
	require.NoError(t, err)
	token := fence.Token{Resource: "r", Value: 1}
	refused(t, gate.SetIfFresh(e.ctx(), token, "k", nil, -1), "ttl", "is negative")
	refused(t, gate.SetIfFresh(e.ctx(), token, "k", nil, time.Microsecond), "ttl", "below the minimum of 1ms")
	refused(t, gate.SetIfFresh(e.ctx(), token, "k", nil, tooLong), "ttl", "above the maximum")
	refused(t, gate.SetIfFresh(e.ctx(), token, "", nil, 0), "key", "is empty")
	refused(t, gate.SetIfFresh(e.ctx(), token, "k", make([]byte, largestMaxMemo+1), 0), "value", "above the maximum")
	for _, invalid := range []fence.Token{{}, {Resource: "r"}, {Value: 1}, {Resource: "r", Value: -1}} {
		require.ErrorIs(t, gate.SetIfFresh(e.ctx(), invalid, "k", nil, 0), fence.ErrNoToken)
		require.ErrorIs(t, gate.Advance(e.ctx(), invalid), fence.ErrNoToken)
	}
	require.Empty(t, e.stored())
}

// F14: a client that cannot work is refused, with the reason.
func TestClientsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close() //nolint:errcheck // a test's
	for _, c := range []struct {
		client Client
		rule   string
	}{
		{nil, "is nil"},
		{redis.UniversalClient(nil), "is nil"},
		{(*redis.Client)(nil), "is a nil *redis.Client"},
		{(*redis.ClusterClient)(nil), "is a nil *redis.ClusterClient"},
		{(*redis.AutoPipeliner)(nil), "is a nil *redis.AutoPipeliner"},
		{(*redis.Ring)(nil), "is a nil *redis.Ring"},
		{ring, "its token sequences start anew"},
		{redis.UniversalClient(ring), "leaves the ring"},
	} {
		_, err := New(c.client, Options{})
		refused(t, err, "client", c.rule)
	}
}

// G08: environments that share a Redis do not meet, not even in each other's listings
// when one prefix starts like the other.
func TestPrefixesDoNotMeet(t *testing.T) {
	behaviour(t, func(e *env) {
		prefix := e.store.opts.Prefix
		op := e.op()
		op.Resource = "r"
		var stores []*Store
		for _, p := range []string{prefix, prefix + ":x", prefix + ":v1"} {
			stores = append(stores, e.storeOn(e.rdb, Options{Prefix: p}))
		}
		for _, s := range stores {
			g, err := NewGuard(s, GuardOptions{})
			require.NoError(e, err)
			start, err := g.Begin(e.ctx(), op)
			require.NoError(e, err)
			require.Equal(e, Begun, start.Outcome)
		}
		for _, s := range stores {
			leases, records := 0, 0
			for l, err := range s.Leases(e.ctx()) {
				require.NoError(e, err)
				require.True(e, strings.HasPrefix(l.Name(), s.names.base+"{"))
				leases++
			}
			for r, err := range s.Records(e.ctx()) {
				require.NoError(e, err)
				require.True(e, strings.HasPrefix(r.Name(), s.names.base+"{"))
				records++
			}
			require.Equal(e, []int{1, 1}, []int{leases, records})
		}
	})
}
