package pgxfence_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// writers and writes make 10,240 fenced writes.
const (
	writers = 64
	writes  = 160
)

// 64 writers with random tokens: the row's token never goes down, and its value
// always belongs to its token. The row's history is kept by a trigger, in the order
// in which the row lock was given.
func TestManyWritersKeepTheOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool := b.open(b.url, func(c *pgxpool.Config) { c.MaxConns = 16 })
	b.exec("CREATE TABLE history (n bigint GENERATED ALWAYS AS IDENTITY, balance bigint, fence_token bigint)")
	b.exec(`CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN INSERT INTO history (balance, fence_token) VALUES (NEW.balance, NEW.fence_token); RETURN NULL; END'`)
	b.exec("CREATE TRIGGER keep AFTER UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION keep()")

	var wg sync.WaitGroup
	accepted := make([]int, writers)
	for w := range writers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			for i := range writes {
				token := int64(i) + random.Int64N(20) + 1
				err := accounts.Update(b.at(token), pool, set(1, token*1000))
				if err == nil {
					accepted[w]++
				} else if !errors.Is(err, fence.ErrStale) {
					t.Errorf("token %d: %v", token, err)
					return
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range accepted {
		total += n
	}
	require.Greater(t, total, writers)
	require.Equal(t, total, get[int](b, "SELECT count(*) FROM history"), "every accepted write, and no other, changed the row")
	require.Zero(t, get[int](b, "SELECT count(*) FROM history WHERE balance <> fence_token * 1000"))
	require.Zero(t, get[int](b, `SELECT count(*) FROM (SELECT fence_token - lag(fence_token) OVER (ORDER BY n) AS step FROM history) x WHERE step < 0`))
}

// The fenced row as a register, for porcupine.
type (
	registerInput struct {
		read         bool
		token, value int64
	}
	registerState  struct{ token, value int64 }
	registerOutput struct {
		stale, unknown bool
		state          registerState
	}
)

var register = porcupine.NondeterministicModel{
	Init: func() []any { return []any{registerState{}} },
	Step: func(state, input, output any) []any {
		return registerStep(state.(registerState), input.(registerInput), output.(registerOutput))
	},
	Equal: func(a, b any) bool { return a == b },
}

// registerStep lists the states that the register can have after an operation; none
// if the output cannot be.
func registerStep(s registerState, in registerInput, out registerOutput) []any {
	wrote := registerState{in.token, in.value}
	passes := in.token >= s.token
	switch {
	case in.read && (out.unknown || out.state == s):
		return []any{s}
	case in.read:
		return nil
	case out.unknown && passes:
		return []any{s, wrote}
	case out.unknown:
		return []any{s}
	case out.stale == passes:
		return nil
	case out.stale:
		return []any{s}
	}
	return []any{wrote}
}

// The histories of a fenced row are linearizable, unknown outcomes included: a proxy
// breaks every connection from time to time.
func TestFencedRowIsLinearizable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("UPDATE accounts SET fence_token = 0 WHERE id = 1")
	proxy, pool := b.proxied(func(c *pgxpool.Config) { c.MaxConns = 8 })
	const clients, each = 8, 40
	start := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	record := func(client int, call time.Duration, in registerInput, out registerOutput) {
		mu.Lock()
		defer mu.Unlock()
		back := time.Since(start)
		if out.unknown && in.read {
			return
		}
		if out.unknown {
			back = time.Hour // it may take effect at any later time
		}
		history = append(history, porcupine.Operation{ClientId: client, Input: in, Call: int64(call), Output: out, Return: int64(back)})
		if len(history)%50 == 0 {
			proxy.Reset()
		}
	}
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(client)))
			for i := range each {
				in := registerInput{read: random.IntN(3) == 0, token: int64(i) + random.Int64N(8) + 1, value: int64(client*1000 + i)}
				call := time.Since(start)
				record(client, call, in, registerCall(b, pool, in))
			}
		})
	}
	wg.Wait()
	require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(register.ToModel(), history, time.Minute))
}

// The check above can fail: a newer token's write, and then an older one's.
func TestLinearizabilityCheckCanFail(t *testing.T) {
	t.Parallel()
	history := []porcupine.Operation{
		{ClientId: 0, Input: registerInput{token: 5, value: 50}, Output: registerOutput{}, Call: 0, Return: 1},
		{ClientId: 1, Input: registerInput{token: 4, value: 40}, Output: registerOutput{}, Call: 2, Return: 3},
	}
	require.False(t, porcupine.CheckOperations(register.ToModel(), history))
}

// registerCall reads or writes; it holds a connection, so that a lost reply stays
// unknown.
func registerCall(b *bundle, pool *pgxpool.Pool, in registerInput) (out registerOutput) {
	conn, err := pool.Acquire(b.ctx)
	if err != nil {
		return registerOutput{unknown: true}
	}
	defer conn.Release()
	if in.read {
		err := conn.QueryRow(b.ctx, "SELECT fence_token, balance FROM accounts WHERE id = 1").Scan(&out.state.token, &out.state.value)
		return registerOutput{unknown: err != nil, state: out.state}
	}
	err = accounts.Update(b.at(in.token), conn, set(1, in.value))
	switch {
	case errors.Is(err, fence.ErrStale):
		return registerOutput{stale: true}
	case err != nil:
		return registerOutput{unknown: true}
	}
	return out
}

// counter is a way to add one to an account under a token. It reports whether the
// increment is acknowledged. pause stands for the moment in which a process can be
// frozen.
type counter func(ctx context.Context, pool *pgxpool.Pool, pause func()) error

// claimed claims the row before reading it.
func claimed(ctx context.Context, pool *pgxpool.Pool, pause func()) error {
	balance, err := pgxfence.Claim(ctx, pool, accounts,
		pgxfence.Change{Key: pgxfence.Values{"id": 1}, Returning: []string{"balance"}}, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	pause()
	return accounts.Update(ctx, pool, set(1, balance+1))
}

// unclaimed reads, and lets only the write be checked.
func unclaimed(ctx context.Context, pool *pgxpool.Pool, pause func()) error {
	balance, err := readBalance(ctx, pool)
	if err != nil {
		return err
	}
	pause()
	return accounts.Update(ctx, pool, set(1, balance+1))
}

// unfencedCounter trusts its lease.
func unfencedCounter(ctx context.Context, pool *pgxpool.Pool, pause func()) error {
	balance, err := readBalance(ctx, pool)
	if err != nil {
		return err
	}
	pause()
	_, err = pool.Exec(ctx, "UPDATE accounts SET balance = $1 WHERE id = 1", balance+1)
	return err
}

// sealedCounter does all in one sealed transaction.
func sealedCounter(ctx context.Context, pool *pgxpool.Pool, pause func()) error {
	return pgxfence.InTx(ctx, pool, func(tx pgx.Tx) error {
		var balance int64
		if err := tx.QueryRow(ctx, "SELECT balance FROM accounts WHERE id = 1").Scan(&balance); err != nil {
			return err
		}
		pause()
		_, err := tx.Exec(ctx, "UPDATE accounts SET balance = $1 WHERE id = 1", balance+1)
		return err
	})
}

func readBalance(ctx context.Context, pool *pgxpool.Pool) (balance int64, err error) {
	err = pool.QueryRow(ctx, "SELECT balance FROM accounts WHERE id = 1").Scan(&balance)
	return balance, err
}

// The counter harness of 5-proof.md, with the lock server replaced by tokens that
// are handed out directly: every increment has a token of its own, as if each one's
// lease had run out under it. Acknowledged increments are never lost, and the
// negative controls, which fail, show that the harness can see a loss.
func TestCounterLosesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		add   counter
		loses bool
	}{
		"claimed":         {claimed, false},
		"in a sealed tx":  {sealedCounter, false},
		"no claim":        {unclaimed, true},
		"no fence at all": {unfencedCounter, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			acknowledged := count(b, c.add)
			for c.loses && acknowledged == b.account(1).Balance {
				acknowledged += count(b, c.add) // a control that has been lucky so far
			}
			final := b.account(1).Balance
			t.Logf("%d acknowledged, %d in the database", acknowledged, final)
			require.Positive(t, acknowledged)
			if c.loses {
				require.Less(t, final, acknowledged, "the control must lose")
			} else {
				require.Equal(t, acknowledged, final)
			}
		})
	}
}

// count runs increments by several clients, which stall between read and write at
// random, as a process does that is frozen there.
func count(b *bundle, add counter) (acknowledged int64) {
	const clients, each = 5, 60
	var mu sync.Mutex
	token := get[int64](b, "SELECT coalesce(fence_token, 0) FROM accounts WHERE id = 1")
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(3, uint64(client)))
			for range each {
				mu.Lock()
				token++
				ctx := b.at(token)
				mu.Unlock()
				stall := func() {
					if random.IntN(3) == 0 {
						time.Sleep(time.Duration(random.IntN(8)) * time.Millisecond)
					}
				}
				err := add(ctx, b.pool, stall)
				mu.Lock()
				if err == nil {
					acknowledged++
				} else if !errors.Is(err, fence.ErrStale) {
					b.t.Errorf("%s: %v", strconv.FormatInt(token, 10), err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return acknowledged
}
