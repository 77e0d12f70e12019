//go:build unix

package pgxfence_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
)

// child is a running worker process.
type child struct {
	*devstack.Child
	b *bundle
}

func startChild(b *bundle, t *testing.T, work, url string) *child {
	t.Helper()
	return &child{b: b, Child: devstack.ChildForTest(t, devstack.ChildConfig{
		Env: []string{childVariable + "=" + work, childURL + "=" + url},
	})}
}

func (c *child) line() string {
	c.b.t.Helper()
	line, err := c.Line(c.b.ctx)
	require.NoError(c.b.t, err)
	return line
}

func (c *child) said(want string) {
	c.b.t.Helper()
	require.Equal(c.b.t, want, c.line())
}

func (c *child) stop() { require.NoError(c.b.t, c.Freeze()) }
func (c *child) thaw() { require.NoError(c.b.t, c.Thaw()) }

// freeze stops the child where it waits, and lets it go on as soon as it is thawed.
func (c *child) freeze() {
	c.stop()
	require.NoError(c.b.t, c.Say(""))
}

// takeOver is the successor: it seals, claims, and sets the balance to 50 under
// token 9.
func takeOver(b *bundle) (found int64) {
	require.NoError(b.t, pgxfence.Seal(b.at(9), b.pool))
	found, err := pgxfence.Claim(b.at(9), b.pool, accounts,
		pgxfence.Change{Key: pgxfence.Values{"id": 1}, Returning: []string{"balance"}}, pgx.RowTo[int64])
	require.NoError(b.t, err)
	require.NoError(b.t, accounts.Update(b.at(9), b.pool, set(1, 50)))
	return found
}

// B12: frozen between claim and write. The write is stale, the successor's stands.
func TestFrozenBetweenClaimAndWrite(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := startChild(b, t, "claim", b.url)
	c.said("ready")
	c.freeze()
	require.Zero(t, takeOver(b))
	c.thaw()
	c.said("ended: stale")
	require.Equal(t, is(50, 9), b.account(1))
}

// Frozen inside a transaction, holding the resource's row: the successor gets it
// when the server ends the idle transaction, and what was in there never happens.
func TestFrozenInsideInTx(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := startChild(b, t, "transaction", b.url)
	c.said("ready")
	c.freeze()
	require.Zero(t, takeOver(b))
	c.thaw()
	c.said("ended: unavailable")
	require.Equal(t, is(50, 9), b.account(1))
}

// Frozen after COMMIT was sent, before its reply: the effect has happened, its
// successor sees it, and the frozen one learns so.
func TestFrozenAfterCommitWasSent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy := devstack.PostgresProxyForTest(t, server.Addr())
	var c *child
	var once sync.Once
	frozen, started := make(chan struct{}), make(chan struct{})
	proxy.CutWhen(func(m devstack.PostgresMessage) bool {
		if !m.FromServer && bytes.HasPrefix(m.Body, []byte("commit")) {
			once.Do(func() {
				<-started
				c.stop()
				close(frozen)
			})
		}
		return false
	})
	c = startChild(b, t, "once", through(t, b.url, proxy.Addr()))
	close(started)
	<-frozen
	require.Equal(t, int64(100), takeOver(b), "the seal waited for the commit")
	r, err := pgxfence.Once(b.at(9), b.pool, effect("k"), debit(b.ctx))
	require.NoError(t, err)
	require.True(t, r.Replayed)
	c.thaw()
	c.said("ended: done")
	require.Equal(t, is(50, 9), b.account(1))
}

// C05: the process is killed after its effect; the successor's effect form reports
// that it is there, and a plain fenced write applies.
func TestKilledAfterEffect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := startChild(b, t, "once", b.url)
	c.said("ended: done")
	require.NoError(t, c.Kill())
	r, err := pgxfence.Once(b.at(6), b.pool, effect("k"), debit(b.ctx))
	require.NoError(t, err)
	require.True(t, r.Replayed)
	require.NoError(t, accounts.Update(b.at(6), b.pool, set(1, r.Value.Balance)))
	require.Equal(t, is(100, 6), b.account(1))
}

// Five processes add to a counter while one after the other is frozen for a while.
// With the claim no acknowledged increment is lost; the control without it loses.
// FENCEKIT_FAULT=long makes it last.
func TestFaultCounterOfProcesses(t *testing.T) {
	t.Parallel()
	for _, work := range []string{"count claimed", "count unclaimed"} {
		t.Run(work, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.exec("CREATE SEQUENCE tokens")
			freezes := 5
			if os.Getenv("FENCEKIT_FAULT") == "long" {
				freezes = 60
			}
			acknowledged := countInProcesses(b, t, work, freezes)
			for work == "count unclaimed" && acknowledged == b.account(1).Balance {
				acknowledged += countInProcesses(b, t, work, freezes) // a control that has been lucky so far
			}
			final := b.account(1).Balance
			t.Logf("%d acknowledged, %d in the database", acknowledged, final)
			require.Greater(t, acknowledged, int64(freezes), "it goes on")
			if work == "count claimed" {
				require.Equal(t, acknowledged, final)
			} else {
				require.Less(t, final, acknowledged, "the control must lose")
			}
		})
	}
}

func countInProcesses(b *bundle, t *testing.T, work string, freezes int) (acknowledged int64) {
	t.Helper()
	children := make([]*child, 5)
	for i := range children {
		children[i] = startChild(b, t, work, b.url)
	}
	for i := range freezes {
		before := b.account(1).Balance
		eventually(t, func() bool { return b.account(1).Balance > before+1 }, "somebody counts")
		c := children[i%len(children)]
		c.stop()
		time.Sleep(time.Duration(130+rand.IntN(150)) * time.Millisecond) // the fault itself
		c.thaw()
	}
	for _, c := range children {
		require.NoError(t, c.CloseInput())
	}
	for _, c := range children {
		line := c.line()
		n, err := strconv.ParseInt(line, 10, 64)
		require.NoError(t, err, line)
		acknowledged += n
		c.said("ended: done")
	}
	return acknowledged
}
