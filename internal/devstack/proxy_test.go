package devstack_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

type proxied struct {
	*devstack.Proxy
	ctx    context.Context
	direct *redis.Client // past the proxy
	rdb    *redis.Client // through it, without retries
}

func setupProxy(t *testing.T, edits ...func(*redis.Options)) proxied {
	t.Helper()
	r := ownRedis(t)
	p := devstack.ProxyForTest(t, r.Addr())
	edits = append([]func(*redis.Options){func(o *redis.Options) {
		o.Addr, o.MaxRetries, o.DialerRetries, o.ReadTimeout = p.Addr(), -1, 1, patience
	}}, edits...)
	return proxied{p, testContext(t), r.Client(), r.Client(edits...)}
}

func readTimeout(d time.Duration) func(*redis.Options) {
	return func(o *redis.Options) { o.ReadTimeout = d }
}

func TestProxyCounts(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		p := setupProxy(t, func(o *redis.Options) { o.Protocol = protocol })
		require.NoError(t, p.rdb.Set(p.ctx, "k", "v", 0).Err())
		require.Equal(t, 1, p.RoundTrips())
		require.Positive(t, p.Count("HELLO"), "counted by name only")

		_, err := p.rdb.Pipelined(p.ctx, func(pipe redis.Pipeliner) error {
			pipe.Incr(p.ctx, "n")
			pipe.Incr(p.ctx, "n")
			pipe.Get(p.ctx, "k")
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, 2, p.RoundTrips(), "a pipeline is one round trip")
		require.Equal(t, 2, p.Count("INCR"))
		names := make([]string, 0, 4)
		for _, c := range p.Commands() {
			names = append(names, c.Name)
		}
		require.Equal(t, []string{"SET", "INCR", "INCR", "GET"}, names)
		p.ResetCounts()
		require.Zero(t, p.RoundTrips())
	}
}

func TestProxyPassesEveryShape(t *testing.T) {
	t.Parallel()
	p := setupProxy(t, func(o *redis.Options) { o.Protocol = 3 })
	big := strings.Repeat("x\r\n", 1<<20)
	require.NoError(t, p.rdb.Set(p.ctx, "big", big, 0).Err())
	require.True(t, p.rdb.Get(p.ctx, "big").Val() == big, "3 MiB with line ends inside")
	require.ErrorIs(t, p.rdb.Get(p.ctx, "none").Err(), redis.Nil)
	require.NoError(t, p.rdb.HSet(p.ctx, "h", "a", "1", "b", "").Err())
	require.Equal(t, map[string]string{"a": "1", "b": ""}, p.rdb.HGetAll(p.ctx, "h").Val())
	require.Equal(t, []any{int64(1), "two", []any{}, nil},
		p.rdb.Eval(p.ctx, "return {1, 'two', {}, false}", nil).Val())
	_, err := p.rdb.TxPipelined(p.ctx, func(tx redis.Pipeliner) error { return tx.Incr(p.ctx, "n").Err() })
	require.NoError(t, err)
	require.ErrorContains(t, p.rdb.Incr(p.ctx, "big").Err(), "not an integer")
}

func TestProxyPassesPubSub(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		p := setupProxy(t, func(o *redis.Options) { o.Protocol = protocol })
		sub := p.rdb.Subscribe(p.ctx, "a", "b")
		for range 2 {
			_, err := sub.Receive(p.ctx)
			require.NoError(t, err)
		}
		require.NoError(t, p.rdb.Publish(p.ctx, "b", "hi").Err())
		m, err := sub.ReceiveMessage(p.ctx)
		require.NoError(t, err)
		require.Equal(t, "hi", m.Payload)
		require.NoError(t, sub.Close())
	}
}

func TestProxyDropsReply(t *testing.T) {
	t.Parallel()
	p := setupProxy(t)
	hit := p.Add(devstack.Rule{Match: devstack.Named("incr"), Nth: 2, Fault: devstack.DropReply()})
	require.NoError(t, p.rdb.Incr(p.ctx, "n").Err())
	require.ErrorIs(t, p.rdb.Incr(p.ctx, "n").Err(), io.EOF)
	<-hit.Struck()
	require.Equal(t, "2", p.direct.Get(p.ctx, "n").Val(), "the server has executed it")
	require.NoError(t, p.rdb.Incr(p.ctx, "n").Err(), "the third passes")
}

func TestProxyDropsReplyInsidePipeline(t *testing.T) {
	t.Parallel()
	p := setupProxy(t)
	p.Add(devstack.Rule{Match: devstack.Named("get"), Fault: devstack.DropReply()})
	var first, lost *redis.IntCmd
	_, err := p.rdb.Pipelined(p.ctx, func(pipe redis.Pipeliner) error {
		first = pipe.Incr(p.ctx, "n")
		pipe.Get(p.ctx, "n")
		lost = pipe.Incr(p.ctx, "n")
		return nil
	})
	require.ErrorIs(t, err, io.EOF)
	require.EqualValues(t, 1, first.Val())
	require.Error(t, lost.Err())
	eventually(t, func() bool { return p.direct.Get(p.ctx, "n").Val() == "2" }, "the rest was executed")
}

func TestProxyDropsRequest(t *testing.T) {
	t.Parallel()
	p := setupProxy(t)
	hit := p.Add(devstack.Rule{Fault: devstack.DropRequest()})
	require.ErrorIs(t, p.rdb.Incr(p.ctx, "n").Err(), io.EOF)
	require.ErrorIs(t, p.rdb.Incr(p.ctx, "n").Err(), io.EOF, "every time")
	hit.Remove()
	require.EqualValues(t, 1, p.rdb.Incr(p.ctx, "n").Val(), "the server has seen neither")
}

func TestProxyDelays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		fault    devstack.Fault
		executed string
	}{
		{"reply", devstack.DelayReply(time.Hour), "1"},
		{"request", devstack.DelayRequest(time.Hour), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := setupProxy(t, readTimeout(500*time.Millisecond))
			eventually(t, func() bool { return p.rdb.Ping(p.ctx).Err() == nil }, "it is connected")
			hit := p.Add(devstack.Rule{Match: devstack.Named("incr"), Fault: tt.fault})
			require.ErrorIs(t, p.rdb.Incr(p.ctx, "n").Err(), os.ErrDeadlineExceeded)
			<-hit.Struck()
			require.Equal(t, tt.executed, p.direct.Get(p.ctx, "n").Val())
		})
	}
}

func TestProxyForgesReply(t *testing.T) {
	t.Parallel()
	p := setupProxy(t)
	p.Add(devstack.Rule{Match: devstack.Named("get"), Nth: 1, Fault: devstack.ForgeReply(devstack.ErrorReply("CLUSTERDOWN x"))})
	var set *redis.StatusCmd
	var forged, served *redis.StringCmd
	_, _ = p.rdb.Pipelined(p.ctx, func(pipe redis.Pipeliner) error {
		set = pipe.Set(p.ctx, "k", "v", 0)
		forged = pipe.Get(p.ctx, "k")
		served = pipe.Get(p.ctx, "k")
		return nil
	})
	require.NoError(t, set.Err())
	require.ErrorContains(t, forged.Err(), "CLUSTERDOWN")
	require.Equal(t, "v", served.Val(), "replies keep their order")

	p.Add(devstack.Rule{Match: devstack.Named("get"), Fault: devstack.ForgeReply(devstack.BulkReply("lie"))})
	require.Equal(t, "lie", p.rdb.Get(p.ctx, "k").Val())
}

func TestProxyCallsAtTheMoment(t *testing.T) {
	t.Parallel()
	p := setupProxy(t)
	p.Add(devstack.Rule{Match: devstack.Named("get"), Nth: 1, Fault: devstack.Call(func() {
		p.direct.Set(p.ctx, "k", "set in between", 0)
	})})
	require.Equal(t, "set in between", p.rdb.Get(p.ctx, "k").Val())
}

func TestProxyRulesPickHandshakesOnRequest(t *testing.T) {
	t.Parallel()
	p := setupProxy(t)
	p.Add(devstack.Rule{Match: devstack.Named("hello"), Nth: 1, Fault: devstack.DropRequest()})
	require.Error(t, p.rdb.Ping(p.ctx).Err())
	require.NoError(t, p.rdb.Ping(p.ctx).Err())
}

func TestProxyFreezes(t *testing.T) {
	t.Parallel()
	p := setupProxy(t, readTimeout(500*time.Millisecond))
	eventually(t, func() bool { return p.rdb.Ping(p.ctx).Err() == nil }, "it is connected")
	p.Freeze()
	require.ErrorIs(t, p.rdb.Incr(p.ctx, "n").Err(), os.ErrDeadlineExceeded)
	require.Empty(t, p.direct.Get(p.ctx, "n").Val(), "nothing arrives")
	p.Thaw()
	eventually(t, func() bool { return p.direct.Get(p.ctx, "n").Val() == "1" }, "what was sent arrives")
}

func TestProxyAddsLatencyOncePerRoundTrip(t *testing.T) {
	t.Parallel()
	p := setupProxy(t)
	require.NoError(t, p.rdb.Ping(p.ctx).Err())
	const latency = 300 * time.Millisecond
	p.SetLatency(latency)
	start := time.Now()
	_, err := p.rdb.Pipelined(p.ctx, func(pipe redis.Pipeliner) error {
		for range 100 {
			pipe.Incr(p.ctx, "n")
		}
		return nil
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(start), latency)
	require.Less(t, time.Since(start), 50*latency, "not once for every reply")
}

func TestProxyResetsAndRefuses(t *testing.T) {
	t.Parallel()
	p := setupProxy(t)
	require.NoError(t, p.rdb.Ping(p.ctx).Err())
	require.Equal(t, 1, p.Connections())
	require.NoError(t, p.Refuse())
	require.NoError(t, p.rdb.Ping(p.ctx).Err(), "an open connection stays")

	p.Add(devstack.Rule{Match: devstack.Named("ping"), Nth: 1, Fault: devstack.Call(p.Reset)})
	require.Error(t, p.rdb.Ping(p.ctx).Err(), "reset while it waits")
	require.ErrorIs(t, p.rdb.Ping(p.ctx).Err(), syscall.ECONNREFUSED)
	require.NoError(t, p.Accept())
	require.NoError(t, p.Accept(), "twice is fine")
	eventually(t, func() bool { return p.rdb.Ping(p.ctx).Err() == nil }, "accepted again")

	require.NoError(t, p.Stop())
	require.ErrorContains(t, p.Accept(), "stopped")
}

func TestProxyResetIsNoPoliteEnd(t *testing.T) {
	t.Parallel()
	p := setupProxy(t)
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close()
	eventually(t, func() bool { return p.Connections() == 1 }, "it is connected")
	p.Reset()
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestProxyChangesTarget(t *testing.T) {
	t.Parallel()
	p := setupProxy(t)
	require.NoError(t, p.rdb.Set(p.ctx, "k", "old", 0).Err())
	other := ownRedis(t)
	require.NoError(t, other.Client().Set(p.ctx, "k", "new", 0).Err())
	p.SetTarget(other.Addr())
	require.Equal(t, "old", p.rdb.Get(p.ctx, "k").Val())
	p.Reset()
	eventually(t, func() bool { return p.rdb.Get(p.ctx, "k").Val() == "new" }, "new connections go there")

	require.NoError(t, other.Kill())
	p.Reset()
	eventually(t, func() bool { return p.rdb.Get(p.ctx, "k").Err() != nil }, "a dead target hangs up")
}

func TestRawProxy(t *testing.T) {
	t.Parallel()
	r := ownRedis(t)
	p := devstack.RawProxyForTest(t, r.Addr())
	p.SetLatency(time.Millisecond)
	ctx := testContext(t)
	rdb := r.Client(func(o *redis.Options) { o.Addr = p.Addr() })
	value := bytes.Repeat([]byte("x\r\n"), 1<<16)
	require.NoError(t, rdb.Set(ctx, "k", value, 0).Err())
	got, err := rdb.Get(ctx, "k").Bytes()
	require.NoError(t, err)
	require.True(t, bytes.Equal(value, got))
	require.Zero(t, p.RoundTrips(), "it understands nothing")

	hasty := r.Client(func(o *redis.Options) { o.Addr, o.MaxRetries, o.ReadTimeout = p.Addr(), -1, 500*time.Millisecond })
	eventually(t, func() bool { return hasty.Ping(ctx).Err() == nil }, "it is connected")
	p.Freeze()
	require.ErrorIs(t, hasty.Incr(ctx, "n").Err(), os.ErrDeadlineExceeded)
	p.Thaw()
	eventually(t, func() bool { return r.Client().Get(ctx, "n").Val() == "1" }, "what was sent arrives")
}
