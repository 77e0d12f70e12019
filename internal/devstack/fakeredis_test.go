package devstack_test

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// fakeClient retries nothing, so that a test sees every single answer.
func fakeClient(t *testing.T, f *devstack.FakeRedis, protocol int, readTimeout time.Duration) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: f.Addr(), Protocol: protocol, MaxRetries: -1, ReadTimeout: readTimeout,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestFakeRedisDefaults(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	f := devstack.FakeRedisForTest(t, nil)
	for _, protocol := range []int{2, 3} {
		c := fakeClient(t, f, protocol, patience)
		require.Equal(t, "PONG", c.Ping(ctx).Val())
		require.Equal(t, "hi", c.Echo(ctx, "hi").Val())
		require.ErrorContains(t, c.Get(ctx, "k").Err(), "unknown command 'GET'")
		hello := c.Do(ctx, "hello", protocol)
		require.NoError(t, hello.Err())
	}
	require.Equal(t, 2, f.Count("PING"))
	require.Equal(t, 6, f.RoundTrips(), "handshakes are no round trips")
}

func TestFakeRedisScripted(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	isGet := devstack.Named("get")
	f := devstack.FakeRedisForTest(t, devstack.Once(isGet, devstack.ErrorReply("LOADING wait"),
		func(c devstack.Command) string {
			if isGet(c) {
				return devstack.BulkReply("for " + c.Args[0])
			}
			return ""
		}))
	c := fakeClient(t, f, 3, patience)
	require.ErrorContains(t, c.Get(ctx, "k").Err(), "LOADING")
	require.Equal(t, "for k", c.Get(ctx, "k").Val())

	f.SetHandler(nil)
	require.ErrorContains(t, c.Get(ctx, "k").Err(), "unknown command")
	require.Equal(t, "GET k", f.Commands()[0].String())
	f.ResetCounts()
	require.Empty(t, f.Commands())
}

func TestFakeRedisHostile(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, reply string
		readTimeout time.Duration
		check       func(*testing.T, error)
	}{
		{"hangs up", devstack.HangUp, patience, func(t *testing.T, err error) { require.ErrorIs(t, err, io.EOF) }},
		{"breaks off", "$10\r\nabc" + devstack.HangUp, patience, func(t *testing.T, err error) { require.ErrorIs(t, err, io.ErrUnexpectedEOF) }},
		{"is silent", devstack.Silence, 500 * time.Millisecond, func(t *testing.T, err error) { require.ErrorIs(t, err, os.ErrDeadlineExceeded) }},
		{"stalls in a reply", "$10\r\nabc", 500 * time.Millisecond, func(t *testing.T, err error) { require.ErrorIs(t, err, os.ErrDeadlineExceeded) }},
		{"answers another shape", devstack.ArrayReply(devstack.IntReply(1)), patience, func(t *testing.T, err error) { require.Error(t, err) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := devstack.FakeRedisForTest(t, func(c devstack.Command) string {
				if c.Name == "GET" {
					return tt.reply
				}
				return ""
			})
			tt.check(t, fakeClient(t, f, 2, tt.readTimeout).Get(testContext(t), "k").Err())
			require.NoError(t, f.Stop())
			require.NoError(t, f.Stop(), "twice is fine")
		})
	}
}
