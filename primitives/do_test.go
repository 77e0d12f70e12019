package primitives

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

func TestDoRunsOnceAndReplays(t *testing.T) {
	for name, memo := range map[string][]byte{
		"memo": []byte("m\x00\xff"), "empty": {}, "nil": nil, "large": make([]byte, 1<<20), // C14
	} {
		t.Run(name, func(t *testing.T) {
			behaviour(t, func(e *env) {
				g, op := e.guard(GuardOptions{}), e.op()
				runs := 0
				body := func(context.Context) ([]byte, error) { runs++; return memo, nil }
				first, err := g.Do(e.ctx(), op, body)
				require.NoError(e, err)
				require.Equal(e, Begun, first.Outcome)
				require.Equal(e, memo, first.Memo)
				require.True(e, first.MemoStored)
				require.True(e, first.Token.Valid())

				again, err := g.Do(e.ctx(), op, body)
				require.NoError(e, err)
				require.Equal(e, Replayed, again.Outcome)
				require.Equal(e, string(memo), string(again.Memo))
				require.False(e, again.Token.Valid(), "nothing was granted")
				require.Equal(e, 1, runs)

				// C20: nothing answers from memory once an operator has cleared it.
				require.NoError(e, e.store.Clear(e.ctx(), op))
				third, err := g.Do(e.ctx(), op, body)
				require.NoError(e, err)
				require.Equal(e, Begun, third.Outcome)
				require.Greater(e, third.Token.Value, first.Token.Value)
			})
		})
	}
}

// C11: fifty callers, one run, and everybody gets its result.
func TestDoByManyAtOnceRunsOnce(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op, body := e.guard(GuardOptions{Wait: time.Minute}), e.op(), &counted{memo: "m"}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				r, err := g.Do(e.ctx(), op, body.body)
				if err != nil || string(r.Memo) != "m" {
					e.Errorf("%q, %v", r.Memo, err)
				}
			})
		}
		all.Wait()
		require.EqualValues(e, 1, body.runs.Load())
	})
}

// C10: whoever waits, at whatever moment the holder finishes, never runs the body
// again. The moments are drawn at random, as many as fit into the time.
func TestWaiterNeverRunsTheBodyAgain(t *testing.T) {
	behaviour(t, func(e *env) {
		guards := []*Guard{e.guard(GuardOptions{Wait: time.Minute}), e.guard(GuardOptions{})}
		var rounds sync.WaitGroup
		for range 4 {
			rounds.Go(func() {
				for end, n := time.Now().Add(time.Second), 0; n < 20 || n < 5000 && time.Now().Before(end); n++ {
					op, body := e.op(), &counted{memo: "m"}
					var callers sync.WaitGroup
					for range 3 {
						callers.Go(func() { untilDone(e, guards[rand.N(2)], op, body) })
					}
					callers.Wait()
					if runs := body.runs.Load(); runs != 1 {
						e.Errorf("round %d: the body ran %d times", n, runs)
					}
				}
			})
		}
		rounds.Wait()
	})
}

// untilDone calls Do from a random moment on, again and again while it is busy.
func untilDone(e *env, g *Guard, op Op, body *counted) {
	for {
		time.Sleep(rand.N(2 * time.Millisecond))
		r, err := g.Do(e.ctx(), op, body.body)
		switch {
		case errors.Is(err, ErrBusy):
			continue
		case err != nil || string(r.Memo) != "m":
			e.Errorf("%q, %v", r.Memo, err)
		}
		return
	}
}

func TestDoReturnsTheErrorOfTheBodyAsItIs(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{}), e.op()
		for _, want := range []error{
			errStop, fmt.Errorf("wrapped: %w", errStop), context.Canceled, ErrBusy,
			&UnavailableError{"x", errStop}, &fence.StaleError{Resource: "other", Current: 1 << 40},
		} {
			runs := 0
			r, err := g.Do(e.ctx(), op, func(context.Context) ([]byte, error) { runs++; return []byte("half"), want })
			require.True(e, err == want, "%v", err) //nolint:errorlint // identity is the point
			require.Equal(e, 1, runs, "C07: errors are not remembered")
			require.Nil(e, r.Memo)
			require.False(e, r.MemoStored)
			require.Equal(e, Absent, e.status(op).State)
			free, err := e.store.Inspect(e.ctx(), op.resource())
			require.NoError(e, err)
			require.False(e, free.Held, "the next attempt need not wait")
		}
	})
}

// D05: a panic goes on with its value, and runtime.Goexit goes on; both clean up.
func TestDoCleansUpAfterAPanicAndAnExit(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{}), e.op()
		value := &struct{ s string }{"boom"}
		clean := func() {
			require.Equal(e, Absent, e.status(op).State)
			info, err := e.store.Inspect(e.ctx(), op.resource())
			require.NoError(e, err)
			require.False(e, info.Held)
			require.Empty(e, e.store.keeper.all, "nothing is renewed any more")
		}
		func() {
			defer func() { require.True(e, recover() == any(value), "the value is unchanged") }()
			_, _ = g.Do(e.ctx(), op, func(context.Context) ([]byte, error) { panic(value) })
		}()
		clean()
		var held context.Context
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = g.Do(e.ctx(), op, func(ctx context.Context) ([]byte, error) {
				held = ctx
				runtime.Goexit()
				return nil, nil
			})
			e.Error("Goexit did not go on")
		}()
		<-gone
		clean()
		require.Error(e, held.Err(), "the body's context has ended")
		_, err := g.Do(e.ctx(), op, (&counted{}).body)
		require.NoError(e, err)
	})
}

// C06: with a context that has ended, nothing is run and nothing is left.
func TestDoOnAnEndedContextDoesNothing(t *testing.T) {
	behaviour(t, func(e *env) {
		canceled, cancel := context.WithCancelCause(e.ctx())
		cancel(errStop)
		past, cancelPast := context.WithDeadline(e.ctx(), time.Now().Add(-time.Second))
		defer cancelPast()
		for ctx, want := range map[context.Context]error{canceled: errStop, past: context.DeadlineExceeded} {
			for _, opts := range []GuardOptions{{}, {FailOpen: true}, {Wait: time.Minute}} {
				body := &counted{}
				_, err := e.guard(opts).Do(ctx, e.op(), body.body)
				require.ErrorIs(e, err, want)
				require.Zero(e, body.runs.Load())
				_, err = e.store.TryBegin(ctx, e.op(), RecordOptions{})
				require.ErrorIs(e, err, want)
			}
		}
		require.Empty(e, e.stored())
	})
}

// B16, D20: the end of the attempt is told to Redis although its context has ended.
func TestDoEndsTheOperationOnADeadContext(t *testing.T) {
	behaviour(t, func(e *env) {
		g := e.guard(GuardOptions{Judge: func(_ context.Context, err error) Verdict {
			if errors.Is(err, errStop) {
				return MemoiseFailure([]byte("f"))
			}
			return Abort
		}})
		for _, end := range []struct {
			memo  []byte
			err   error
			state State
		}{
			{nil, context.Canceled, Absent}, {[]byte("m"), nil, Done}, {nil, errStop, Failed},
		} {
			ctx, cancel := context.WithCancel(e.ctx())
			op := e.op()
			_, err := g.Do(ctx, op, func(held context.Context) ([]byte, error) {
				cancel()
				<-held.Done()
				return end.memo, end.err
			})
			require.Equal(e, end.err, err)
			require.Equal(e, end.state, e.status(op).State)
			info, err := e.store.Inspect(e.ctx(), op.resource())
			require.NoError(e, err)
			require.False(e, info.Held)
		}
	})
}

// B15: the nonce is drawn per attempt: a second attempt in the same process is not
// taken for the first.
func TestTwoAttemptsInOneProcessAreTwo(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{}), e.op()
		r, err := g.Do(e.ctx(), attempt(op, "x", 100, 1), func(ctx context.Context) ([]byte, error) {
			_, err := g.Do(e.ctx(), op, (&counted{}).body)
			require.ErrorIs(e, err, ErrBusy)

			second, err := g.Do(e.ctx(), attempt(op, "x", 101, 1), (&counted{memo: "second"}).body)
			require.NoError(e, err)
			require.Equal(e, TakenOver, second.Outcome)
			first, err := fence.FromContext(ctx)
			require.NoError(e, err)
			require.Greater(e, second.Token.Value, first.Value)
			require.NotEqual(e, first.Owner, second.Token.Owner)
			return []byte("first"), nil
		})
		require.ErrorIs(e, err, ErrSuperseded)
		require.ErrorIs(e, err, fence.ErrLeaseLost)
		require.Equal(e, "first", string(r.Memo))
		require.False(e, r.MemoStored)
		require.Equal(e, "second", string(e.status(op).Memo))
	})
}

// The lease was lost, but nobody came: the result counts.
func TestDoStoresTheResultIfNobodyCame(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{RenewEvery: 10 * time.Millisecond}), e.op()
		r, err := g.Do(e.ctx(), op, func(ctx context.Context) ([]byte, error) {
			e.expire(op.resource())
			<-ctx.Done()
			require.ErrorIs(e, context.Cause(ctx), fence.ErrLeaseLost)
			return []byte("m"), nil
		})
		require.NoError(e, err)
		require.True(e, r.MemoStored)
		require.Equal(e, "m", string(e.status(op).Memo))
	})
}

// G12: what a guard is told governs all that it does, and what operators see.
func TestGuardOptionsGovernEveryStep(t *testing.T) {
	behaviour(t, func(e *env) {
		const ttl, kept = 7 * time.Minute, 3 * time.Hour
		e.guard(GuardOptions{}) // another guard on the store has no say
		g := e.guard(GuardOptions{LeaseTTL: ttl, RenewEvery: 10 * time.Millisecond, Retention: kept, NoTakeover: true})
		op := e.op()
		like := func(want, got time.Duration) {
			e.Helper()
			require.LessOrEqual(e, got, want)
			require.Greater(e, got, want-time.Minute)
		}
		_, err := g.Do(e.ctx(), attempt(op, "x", 100, 1), func(context.Context) ([]byte, error) {
			like(ttl, e.ttl(e.lease(op)))
			like(ttl+kept, e.ttl(e.record(op)))
			_, err := g.Begin(e.ctx(), attempt(op, "x", 100, 2))
			like(ttl, busyWith(e, err, "").Remaining)
			_, err = e.store.Result(e.ctx(), op)
			like(ttl, busyWith(e, err, "").Remaining)
			for l, err := range e.store.Leases(e.ctx()) {
				require.NoError(e, err)
				like(ttl, l.Remaining)
			}
			for r, err := range e.store.Records(e.ctx()) {
				require.NoError(e, err)
				like(ttl, r.Lease)
				like(ttl+kept, r.Expires)
			}
			require.NoError(e, e.rdb.PExpire(e.ctx(), e.record(op), time.Minute).Err())
			require.NoError(e, e.rdb.PExpire(e.ctx(), e.lease(op), time.Minute).Err())
			eventually(e, "it is renewed", func() bool { return e.ttl(e.lease(op)) > time.Minute })
			like(ttl, e.ttl(e.lease(op)))
			like(ttl+kept, e.ttl(e.record(op)))
			return nil, nil
		})
		require.NoError(e, err)
		like(kept, e.ttl(e.record(op)))
	})
}

// A panic in the caller's verdict leaves no more behind than one in the body.
func TestDoCleansUpAfterAPanickingJudge(t *testing.T) {
	behaviour(t, func(e *env) {
		op := e.op()
		g := e.guard(GuardOptions{Judge: func(context.Context, error) Verdict { panic("boom") }})
		require.PanicsWithValue(e, "boom", func() {
			_, _ = g.Do(e.ctx(), op, func(context.Context) ([]byte, error) { return nil, errStop })
		})
		require.Equal(e, Absent, e.status(op).State)
		info, err := e.store.Inspect(e.ctx(), op.resource())
		require.NoError(e, err)
		require.False(e, info.Held)
	})
}
