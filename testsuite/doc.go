// Package testsuite tests guarded activities in milliseconds, without servers, in
// Temporal's own test environments; and it proves that an activity survives being a
// zombie: an attempt that Temporal has given up, and that wakes up and writes.
//
// # A kit
//
// A [Kit] is one test's world. Its Redis is in memory, under a prefix of its own, with a
// clock that runs; it cleans up with the test. Give the activities what the kit sees:
// its pool, its Redis client, its HTTP transport.
//
//	kit := testsuite.New(t, testsuite.Options{Postgres: pool})
//	acts := &Activities{DB: kit.Pool()}
//	kit.Guard(interceptor.For(acts.Settle, policy))
//
// Options.Redis or Options.FromEnvironment (REDIS_URL, DATABASE_URL) take real servers.
//
// # Deliveries
//
// [Kit.Execute] runs the first attempt of a newly scheduled activity, and every [Run] can
// come again: [Run.NextAttempt], [Run.Duplicate], [Run.OtherWorkflow], [Run.AfterReset].
//
//	run := kit.Execute(acts.Settle, in)
//	testsuite.RequireExecuted(t, run)
//	testsuite.RequireReplayed(t, run.NextAttempt())
//
// The SDK's test environments give every activity the same ids, and the attempt 1; the
// kit rewrites what activity.GetInfo answers. [Kit.ActivityEnvironment] and
// [Kit.WorkflowEnvironment] are those of the SDK with the guard wired in, each with an
// identity space of its own.
//
// # Crashes, freezes, faults
//
// Whatever a run sends is a [Step], and each of them a [Point] at which it can stop:
//
//	dead := kit.Call(acts.Settle, in).CrashAt(testsuite.AfterEffect(1))
//	testsuite.RequireExecuted(t, dead.NextAttempt())
//
//	zombie := kit.Call(acts.Settle, in).FreezeAt(testsuite.BeforeComplete)
//	testsuite.RequireBusy(t, zombie.Duplicate())
//	zombie.NextAttempt() // takes over
//	zombie.Thaw()
//	testsuite.RequireLeaseLost(t, zombie)
//
// The kit also breaks Redis: [Kit.ExpireLease], [Kit.StealLease], [Kit.FreeLease],
// [Kit.FlushRedis], [Kit.RedisDown], [Kit.LoseReply], [Kit.RegressClock] and their
// neighbours. None of them takes time.
//
// # Proofs
//
// [ProveFenced] freezes an activity at each statement in turn, lets a successor run to
// its end, thaws it, and checks that nothing that it writes from then on is accepted.
// [ProveIdempotent] has it die at each statement in turn, and checks that the effects are
// those of one run.
//
//	testsuite.ProveFenced(t, kit, testsuite.Proof{
//		Activity: acts.Settle, Input: in,
//		Reset: func(ctx context.Context) error { ... }, // the first state
//		State: func(ctx context.Context) (any, error) { ... }, // what must not differ
//	})
//
// They fail with the first write that got through, its SQL, its line, and the cause. A
// proof covers the paths that Input takes; use one for each that matters.
//
// # Other stores
//
// Package conformance has the guard's behaviour as a table of cases, for whoever builds
// another store or speaks the protocol from another language.
package testsuite
