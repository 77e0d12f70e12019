package testsuite

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"go.temporal.io/sdk/activity"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
)

// TB is the part of testing.TB that a kit uses. *testing.T, *testing.B and *testing.F
// have it.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Options configure a [Kit]. The zero value works: Redis in memory, no Postgres.
type Options struct {
	// Guards name the activities to guard, as for interceptor.Options. Guards that
	// need something of the kit, such as its pool, are added by [Kit.Guard].
	Guards []interceptor.Guard

	// Interceptor are all other options of the interceptor under test: converters,
	// lease time, observer. Its Redis, Guards and Store.Prefix are the kit's.
	// Default of Store.Timeout: 20s, so that a frozen run does not end by it.
	Interceptor interceptor.Options

	// Redis is a real Redis to use; its options are copied and it is left open. Default:
	// Redis in memory.
	Redis *redis.Client

	// Postgres is the database that the activities write to. The kit opens a pool of
	// its own on it, [Kit.Pool], which the activities must use; this one stays as it is.
	// Default: none.
	Postgres *pgxpool.Pool

	// FromEnvironment takes what is not given from REDIS_URL and DATABASE_URL, where
	// they are set. Default: the environment is not looked at.
	FromEnvironment bool

	// Before and After are further interceptors, outside and inside of the guard.
	Before, After []sdk.WorkerInterceptor

	// Logger gets what activities and the SDK log. Default: nobody.
	Logger log.Logger
}

// Kit is one test's world: a Redis prefix, an interceptor, a traced pool, and identities
// that no other kit or environment has. Make one with [New]; it ends with its test. It
// is safe for concurrent use.
type Kit struct {
	t       TB
	opts    Options
	prefix  string
	ctx     context.Context // ends with the test
	memory  *memory         // nil on a real Redis
	rdb     *redis.Client   // watched
	control *redis.Client   // the kit's own, not watched
	store   *primitives.Store
	pool    *pgxpool.Pool // watched; nil without Postgres
	direct  *pgxpool.Pool // the kit's own, not watched
	faults  faults

	environments atomic.Int64
	started      time.Time

	mu         sync.Mutex
	guards     []interceptor.Guard
	guard      *interceptor.Interceptor // made when it is first needed
	registered []registration
	runs       map[*Run]struct{} // those that have not ended
}

type registration struct {
	activity any
	options  activity.RegisterOptions
}

const defaultTimeout = 20 * time.Second

// New returns a kit that is cleaned up with t. What it needs and cannot have fails t.
func New(t TB, opts Options) *Kit {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	k := &Kit{
		t: t, opts: opts, ctx: ctx, prefix: uniquePrefix(), guards: opts.Guards,
		started: time.Now(), runs: map[*Run]struct{}{},
	}
	if err := k.openRedis(); err != nil {
		t.Fatalf("testsuite: Redis: %v", err)
		return k
	}
	if err := k.openPostgres(); err != nil {
		t.Fatalf("testsuite: Postgres: %v", err)
		return k
	}
	t.Cleanup(k.release)
	return k
}

// uniquePrefix is this kit's own in a Redis that others use too.
func uniquePrefix() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "test-" + hex.EncodeToString(b[:])
}

// Prefix is the kit's own Redis prefix.
func (k *Kit) Prefix() string { return k.prefix }

// Redis is a client whose commands the kit sees: give it to activities that use a gate
// or leases of their own. The kit closes it.
func (k *Kit) Redis() *redis.Client { return k.rdb }

// Pool is a pool whose statements the kit sees: give it to the activities, and to the
// Seal and Ledger hooks of policies. The kit closes it. Nil without Postgres.
func (k *Kit) Pool() *pgxpool.Pool { return k.pool }

// Store is a store on the kit's prefix, for looking at records and leases. What it
// sends is neither counted nor hit by faults.
func (k *Kit) Store() *primitives.Store { return k.store }

// Guard adds guards. Call it before the first activity is run.
func (k *Kit) Guard(guards ...interceptor.Guard) {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.guard != nil {
		k.t.Fatalf("testsuite: Guard: an activity has been run already")
		return
	}
	k.guards = append(k.guards, guards...)
}

// Register registers an activity, or a struct of them, in all environments to come. A
// function that is run by [Kit.Execute] need not be registered, unless under a name.
func (k *Kit) Register(a any, options ...activity.RegisterOptions) {
	r := registration{activity: a}
	if len(options) > 0 {
		r.options = options[0]
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.registered = append(k.registered, r)
}

// Interceptor is the interceptor under test, made of the guards so far.
func (k *Kit) Interceptor() *interceptor.Interceptor {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.guard != nil {
		return k.guard
	}
	o := k.opts.Interceptor
	o.Redis, o.Guards, o.Store.Prefix = k.rdb, k.guards, k.prefix
	if o.Store.Timeout == 0 {
		o.Store.Timeout = defaultTimeout
	}
	o.Observer = recorder{o.Observer}
	guard, err := interceptor.New(o)
	if err != nil {
		k.t.Fatalf("testsuite: %v", err)
		return nil
	}
	k.guard = guard
	return guard
}

// release lets go of frozen runs, so that nothing outlives the test.
func (k *Kit) release() {
	k.mu.Lock()
	var left []*Run
	for r := range k.runs {
		left = append(left, r)
	}
	k.mu.Unlock()
	for _, r := range left {
		r.kill()
	}
	for _, r := range left {
		select {
		case <-r.done:
		case <-time.After(patience):
			k.t.Errorf("testsuite: %s has not ended with its test", r)
		}
	}
}

// patience is how long the kit waits for what should take milliseconds.
const patience = 30 * time.Second

func (k *Kit) String() string { return fmt.Sprintf("kit %s", k.prefix) }
