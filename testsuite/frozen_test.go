package testsuite_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/testsuite"
)

// parallel settles by several goroutines at once, and waits for them.
func parallel(s *shop, goroutines, writes int) body {
	return func(ctx context.Context, o order) error {
		errs := make([]error, goroutines)
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for range writes {
					one := pgxfence.Change{Key: pgxfence.Values{"id": int64(1 + g%2)}, Set: pgxfence.Values{"status": "settled"}}
					errs[g] = errors.Join(errs[g], accounts.Update(ctx, s.pool, one))
				}
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	}
}

// A process that is stopped is stopped in all its goroutines: none sends anything before
// the thaw.
func TestFrozenInAllGoroutines(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]testsuite.Point{
		"before": testsuite.BeforeStep(2), "after": testsuite.AfterStep(2), "effect": testsuite.AfterEffect(1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, database(t))
			done := make(chan struct{}, 3)
			s.kit.Guard(interceptor.For("settle", policy()))
			s.kit.Register(func(ctx context.Context, o order) error {
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() {
						_ = parallel(s, 1, 5)(ctx, o)
						done <- struct{}{}
					})
				}
				wg.Wait()
				return nil
			}, registerAs("settle"))
			zombie := s.kit.Call("settle", order{Account: 1}).FreezeAt(p)
			require.True(t, zombie.Frozen())
			before := len(zombie.Steps())
			for range 20 { // others' work, in which the zombie's goroutines would come on
				require.NoError(t, s.reset(t.Context()))
			}
			require.Len(t, zombie.Steps(), before, "a frozen run has sent something")
			zombie.Thaw()
			require.Len(t, done, 3)
			require.Greater(t, len(zombie.Steps()), before)
		})
	}
}

// Fenced writes of parallel goroutines are right.
func TestProofOfParallelWrites(t *testing.T) {
	t.Parallel()
	for range 3 {
		s := newShop(t, database(t))
		s.kit.Guard(interceptor.For("settle", policy()))
		s.kit.Register(parallel(s, 4, 2), registerAs("settle"))
		testsuite.ProveFenced(t, s.kit, testsuite.Proof{Activity: "settle", Input: order{Account: 1}, Reset: s.reset, State: s.state})
	}
}
