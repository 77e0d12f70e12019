package interceptor

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/fencekit/fencekit-go/primitives"
)

// Every option that breaks a rule, and every contradiction, is named.
func TestOptionsThatAreRefused(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() { _ = ring.Close() })
	guard := func(p Policy) func(*Options) { return func(o *Options) { o.Guards = []Guard{For(pay, p)} } }
	for field, edits := range map[string][]func(*Options){
		"Redis": {
			func(o *Options) { o.Redis = nil },
			func(o *Options) { o.Redis = ring },
			func(o *Options) { o.Redis = (*redis.Client)(nil) },
		},
		"Prefix":  {func(o *Options) { o.Store.Prefix = "{braces}" }},
		"Timeout": {func(o *Options) { o.Store.Timeout = time.Millisecond }},
		"Guards":  {func(o *Options) { o.Guards = nil }},
		"Guards[0].activity": {
			func(o *Options) { o.Guards = []Guard{For(nil, Policy{})} },
			func(o *Options) { o.Guards = []Guard{For("", Policy{})} },
			func(o *Options) { o.Guards = []Guard{For(7, Policy{})} },
			func(o *Options) { o.Guards = []Guard{For((func())(nil), Policy{})} },
			func(o *Options) { o.Guards = []Guard{{}} },
		},
		"Guards[1] (pay).activity":     {func(o *Options) { o.Guards = []Guard{For(pay, Policy{}), For("pay", Policy{})} }},
		"Guards[1] (dynamic).activity": {func(o *Options) { o.Guards = []Guard{ForDynamic(Policy{}), ForDynamic(Policy{})} }},
		"Guards[0] (dynamic).Scope":    {func(o *Options) { o.Guards = []Guard{ForDynamic(Policy{Scope: 9})} }},
		"Guards[0] (pay).Scope":        {guard(Policy{Scope: -1}), guard(Policy{Scope: 4})},
		"Guards[0] (pay).LeaseTTL":     {guard(Policy{LeaseTTL: time.Millisecond}), guard(Policy{LeaseTTL: 48 * time.Hour}), func(o *Options) { o.LeaseTTL = -1 }},
		"Guards[0] (pay).RenewEvery":   {guard(Policy{RenewEvery: time.Millisecond}), guard(Policy{LeaseTTL: time.Second, RenewEvery: time.Second})},
		"Guards[0] (pay).Retention": {guard(Policy{Retention: time.Nanosecond}), func(o *Options) { o.Retention = -1 },
			guard(Policy{Retention: 29 * time.Second}), guard(Policy{LeaseTTL: time.Minute, Retention: time.Minute - 1}), // N17
			func(o *Options) { o.Retention = time.Second }, func(o *Options) { o.LeaseTTL = 23 * time.Hour; o.Retention = time.Hour }},
		"Guards[0] (pay).Wait":             {guard(Policy{Wait: -1})},
		"Guards[0] (pay).MaxMemo":          {guard(Policy{MaxMemo: -1}), guard(Policy{MaxMemo: 65 << 20})},
		"Guards[0] (pay).MaxTakeovers":     {guard(Policy{MaxTakeovers: -1})},
		"Guards[0] (pay).FailOpen":         {guard(Policy{AtMostOnce: true, FailOpen: true})},
		"Guards[0] (pay).UnknownRetention": {guard(Policy{AtMostOnce: true, Retention: 2 * time.Hour, UnknownRetention: time.Hour})},
	} {
		for _, edit := range edits {
			err := newWith(t, edit)
			var o *primitives.OptionError
			require.ErrorAs(t, err, &o, field)
			require.Equal(t, field, o.Field, "%v", err)
			require.ErrorIs(t, err, primitives.ErrInvalid)
			require.NotEmpty(t, o.Rule)
		}
	}
	require.NoError(t, newWith(t, func(*Options) {}), "or the test shows nothing")
}

func TestGuardsOwnOptionsOverrideTheCommonOnes(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	k, err := New(Options{Redis: rdb, LeaseTTL: time.Minute, Retention: time.Hour, Guards: []Guard{
		For("common", Policy{}), For("own", Policy{LeaseTTL: time.Second, Retention: time.Minute})}})
	require.NoError(t, err)
	require.Equal(t, []time.Duration{time.Minute, time.Hour}, []time.Duration{k.plans["common"].leaseTTL, k.plans["common"].keepFor})
	require.Equal(t, []time.Duration{time.Second, time.Minute}, []time.Duration{k.plans["own"].leaseTTL, k.plans["own"].keepFor})
	require.Equal(t, 2<<20, k.plans["own"].guard.Options().MaxMemo, "what Temporal accepts")
	require.NotEmpty(t, k.identity)
}

// Two clients that encode differently cannot share a plugin: the one would be given
// the other's payloads.
func TestTwoClientsWithDifferentConverters(t *testing.T) {
	t.Parallel()
	one, other := converter.NewCodecDataConverter(converter.GetDefaultDataConverter()), converter.NewCodecDataConverter(converter.GetDefaultDataConverter())
	require.NotSame(t, one, other)
	c := &converters{}
	require.NoError(t, c.find(&client.Options{DataConverter: one}))
	require.NoError(t, c.find(&client.Options{DataConverter: one}))
	var o *primitives.OptionError
	require.ErrorAs(t, c.find(&client.Options{DataConverter: other}), &o)
	require.Equal(t, "DataConverter", o.Field)
	require.Error(t, c.find(&client.Options{}), "the SDK's default is another one, too")
	data, _ := c.get()
	require.Same(t, one, data)

	given := &converters{data: other}
	require.NoError(t, given.find(&client.Options{DataConverter: one}))
	require.NoError(t, given.find(&client.Options{}), "what is given holds for all")
	data, _ = given.get()
	require.Same(t, other, data)
}

// incomparable looks comparable to the type system and is not.
type incomparable struct{ converter.DataConverter }

type listed struct {
	converter.DataConverter

	_ []int
}

func TestConvertersThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	v := incomparable{listed{DataConverter: converter.GetDefaultDataConverter()}}
	require.NotPanics(t, func() { require.False(t, same(v, v)) })
	require.True(t, same(nil, nil))
	require.False(t, same(nil, v))
}

// A failure whose details the converter cannot write is not memoised, rather than a
// panic of the worker.
func TestAFailureThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	c := unitCall(t, Policy{}, nil)
	_, ok := c.codec.encodeFailure(&unencodable{})
	require.True(t, ok, "any error has a text")
	require.NotPanics(t, func() {
		memo, ok := c.codec.encodeFailure(errors.New("x"))
		require.True(t, ok)
		got, err := c.codec.decodeFailure(memo)
		require.NoError(t, err)
		require.ErrorContains(t, got, "x")
	})
}

type unencodable struct{}

func (*unencodable) Error() string { return "x" }
