package primitives

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// offClock gives the store of e scripts whose clock is off by some time.
func (e *env) offClock(by time.Duration) {
	e.Helper()
	e.rewrite("lua/lib/clock.lua", "tonumber(t[1])", fmt.Sprintf("tonumber(t[1]) + (%d)", int64(by/time.Second)))
}

// rewrite gives the store of e scripts of which one file reads otherwise in one place.
func (e *env) rewrite(name, old, text string) {
	e.Helper()
	files := fstest.MapFS{}
	require.NoError(e, fs.WalkDir(luaFiles, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := luaFiles.ReadFile(path)
		files[path] = &fstest.MapFile{Data: text}
		return err
	}))
	file := files[name]
	require.Equal(e, 1, strings.Count(string(file.Data), old))
	file.Data = []byte(strings.Replace(string(file.Data), old, text, 1))
	scripts, err := newScripts(files)
	require.NoError(e, err)
	e.store.scripts = scripts
}

// While Redis remembers the last token, a clock that goes back changes nothing.
func TestTokensRiseWhenTheClockGoesBack(t *testing.T) {
	behaviour(t, func(e *env) {
		last := e.grant("account")
		for _, by := range []time.Duration{-3 * time.Hour, -24 * 365 * time.Hour, 0, time.Hour, -time.Hour} {
			e.offClock(by)
			next := e.grant("account")
			require.Greater(e, next.Value, last.Value, by)
			last = next
		}
	})
}

// The token is forgotten and the clock is behind: the one case in which tokens go
// back. A fenced store refuses the new holder then, which raises the floor: the next
// grant passes. It must never be stale for ever: B04, F09.
func TestAStoreThatHasSeenAHigherTokenRaisesTheFloor(t *testing.T) {
	behaviour(t, func(e *env) {
		gate := newEnv(e.T, onMiniredis(e.T), false).gate() // the store that is not lost
		op := Op{Key: e.key(), Resource: "account"}
		before := e.grant(op.Resource)
		require.NoError(e, gate.Advance(e.ctx(), before))
		require.NoError(e, e.rdb.Del(e.ctx(), e.store.names.resource(op.Resource).token()).Err())
		e.offClock(-3 * time.Hour)

		told := &events{}
		g := e.guard(GuardOptions{Observer: told})
		write := func(ctx context.Context) ([]byte, error) {
			token, err := fence.FromContext(ctx)
			require.NoError(e, err)
			return nil, gate.SetIfFresh(ctx, token, "balance", []byte("50"), 0)
		}
		res, err := g.Do(e.ctx(), op, write)
		require.ErrorIs(e, err, fence.ErrStale)
		require.Less(e, res.Token.Value, before.Value, "the control: it has gone back")
		require.Contains(e, told.kinds(), EventTokenRegressed)

		res, err = g.Do(e.ctx(), op, write)
		require.NoError(e, err)
		require.Greater(e, res.Token.Value, before.Value)
		require.ErrorIs(e, gate.Advance(e.ctx(), before), fence.ErrStale)
	})
}

// A refusal that is right, because the holder is not the newest, raises nothing.
func TestARightRefusalRaisesNoFloor(t *testing.T) {
	behaviour(t, func(e *env) {
		op := Op{Key: e.key(), Resource: "account"}
		start, err := e.guard(GuardOptions{}).Begin(e.ctx(), op)
		require.NoError(e, err)
		e.expire("account")
		next := e.grant("account")
		raised, err := start.Claim.AbortAbove(e.ctx(), next.Value+1e12)
		require.NoError(e, err)
		require.False(e, raised)
		info, err := e.store.Inspect(e.ctx(), "account")
		require.NoError(e, err)
		require.Equal(e, next.Value, info.Last)
	})
}

// The clock of the server jumps by a day under a running body, and its lease ends
// with it: both bodies run, with different tokens, and the first is refused by the
// store and told that it is lost (B18).
func TestAClockThatJumpsEndsTheLeaseAndFencesItsHolder(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	rdb := redis.NewClient(clientOptions(m.Addr(), nil))
	t.Cleanup(func() { _ = rdb.Close() })
	e := newEnv(t, rdb, false)
	gate := realEnv(t).gate()
	g := e.guard(GuardOptions{LeaseTTL: 2 * time.Minute, RenewEvery: 30 * time.Millisecond})
	op := Op{Key: e.key(), Resource: "account"}
	_, err := g.Do(e.ctx(), op, func(ctx context.Context) ([]byte, error) {
		m.SetTime(time.Now().Add(24 * time.Hour))
		m.FastForward(24 * time.Hour)
		first, err := fence.FromContext(ctx)
		require.NoError(t, err)
		res, err := g.Do(e.ctx(), Op{Key: e.key(), Resource: "account"}, func(ctx context.Context) ([]byte, error) {
			second, err := fence.FromContext(ctx)
			require.NoError(t, err)
			return nil, gate.Advance(ctx, second)
		})
		require.NoError(t, err)
		require.Greater(t, res.Token.Value, first.Value)
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), fence.ErrLeaseLost)
		require.ErrorIs(t, gate.Advance(e.ctx(), first), fence.ErrStale)
		return nil, context.Cause(ctx)
	})
	require.ErrorIs(t, err, fence.ErrLeaseLost)
}
