// Package devstack starts the servers that samples, integration tests and fault
// tests need, and breaks them on purpose. Every server is a child process on free
// ports, in a temporary folder of its own, ready when Start returns, and gone
// when the parent is gone, however that ended (on Linux even by kill -9, which
// leaves the folder behind).
//
// One Redis, for a test:
//
//	r := devstack.RedisForTest(t)           // stopped by t.Cleanup
//	rdb := r.Client()
//
// A test that breaks its server asks for one of its own, with any redis.conf
// lines that it needs:
//
//	r := devstack.RedisForTest(t, devstack.RedisConfig{
//		Own:  true,
//		Conf: []string{"maxmemory 4mb", "maxmemory-policy noeviction"},
//	})
//	r.Freeze() // then Thaw, Kill, Restart
//
// [StartSentinel] and [StartCluster] form whole topologies out of such servers.
// [Proxy] stands between a client and a server and loses, delays or counts what
// passes; [FakeRedis] answers whatever a test scripts. Programs use the Start
// functions, tests the ForTest ones; the package imports no test library.
//
// # Which Redis
//
// [StartRedis] takes the server at REDIS_URL, else runs redis-server or
// valkey-server from PATH, else miniredis inside this process, and then says on
// standard error that this is a stand-in. Everything but a plain [RedisConfig]
// needs a real server process; without one, Start functions return [ErrNoRedis]
// and the ForTest functions skip the test. With FENCEKIT_REQUIRE_REAL=1, which
// make test sets, nothing stands in and nothing is skipped: what is missing
// fails, and the error names the install command.
//
// # Which Postgres
//
// [StartPostgres] takes the server at DATABASE_URL, else runs an installed one; as
// root, with the credentials of user postgres, because the server refuses root's.
// A test takes a database of its own out of a template, in some 20 ms:
//
//	p := devstack.PostgresForTest(t)
//	url := p.URL(p.DatabaseForTest(t, template))
//
// [PostgresProxyForTest] counts round trips and cuts connections at a chosen
// protocol message; [StartPgBouncer] puts a pooler in transaction mode in front.
//
// # Which Temporal
//
// [StartTemporal] takes the server at TEMPORAL_ADDRESS, else runs temporal from PATH,
// else the one in the user's cache folder. If that is not there, it is built by go
// install, once for all processes, which takes minutes; make setup does so before
// any test runs. The server is a program and no dependency of this module.
//
//	s := devstack.TemporalForTest(t, devstack.TemporalConfig{Own: true, Persistent: true})
//	c := s.ClientForTest(t)
//	s.Kill() // then Restart, which finds every workflow again
//
// A test that kills or freezes a worker runs it as a [Child], a process of its own.
package devstack
