package primitives

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestSmoke(t *testing.T) {
	for _, kind := range []string{"mini", "real"} {
		t.Run(kind, func(t *testing.T) {
			addr := "127.0.0.1:7777"
			if kind == "mini" {
				addr = miniredis.RunT(t).Addr()
			}
			rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
			defer rdb.Close()
			ctx := context.Background()
			s, err := New(rdb, Options{Prefix: fmt.Sprint("t", time.Now().UnixNano())})
			require.NoError(t, err)
			l, err := s.Acquire(ctx, "r", LeaseOptions{Holder: "me"})
			require.NoError(t, err)
			t.Log(l.Token())
			_, err = s.TryAcquire(ctx, "r", LeaseOptions{})
			require.ErrorIs(t, err, ErrBusy)
			t.Log(err)
			done := make(chan error, 5)
			for i := range 5 {
				go func() {
					l2, err := s.Acquire(ctx, "r", LeaseOptions{Holder: fmt.Sprint("w", i)})
					if err == nil {
						t.Log(i, l2.Token())
						err = l2.Release(ctx)
					}
					done <- err
				}()
			}
			time.Sleep(100 * time.Millisecond)
			start := time.Now()
			require.NoError(t, l.Release(ctx))
			require.NoError(t, l.Release(ctx))
			for range 5 {
				require.NoError(t, <-done)
			}
			t.Log(time.Since(start))
			g, err := NewGuard(s, GuardOptions{})
			require.NoError(t, err)
			key, _ := NewKey("x", 5)
			for range 2 {
				v, err := Do(ctx, g, Op{Key: key}, func(ctx context.Context) (int, error) {
					a, ok := AttemptFromContext(ctx)
					t.Log(a, ok)
					return 42, nil
				})
				require.NoError(t, err)
				require.Equal(t, 42, v)
			}
			rec, err := s.Status(ctx, Op{Key: key})
			require.NoError(t, err)
			t.Logf("%+v", rec)
			for r, err := range s.Records(ctx) {
				t.Log(r.Name(), err)
			}
		})
	}
}
