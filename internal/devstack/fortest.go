package devstack

import (
	"context"
	"errors"
)

// TB is the part of [testing.TB] that the ForTest functions use. Naming it here
// keeps the testing package out of programs that use the dev stack.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// RedisForTest is [StartRedis] for a test: it fails the test when the start
// fails, and stops the server when the test ends. Without a Redis server on the
// machine it skips a test that needs one, or fails it if [RequireReal] says so.
// It takes at most one config.
func RedisForTest(t TB, cfg ...RedisConfig) *Redis {
	t.Helper()
	return startForTest(t, StartRedis, one(t, cfg))
}

// startForTest maps the outcome of a start function to the test's.
func startForTest[C any, S interface{ Stop() error }](t TB, start func(context.Context, C) (S, error), cfg C) S {
	t.Helper()
	s, err := start(context.Background(), cfg)
	switch {
	case isMissing(err) && !RequireReal():
		t.Skipf("skipped: %v", err)
	case err != nil:
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("devstack: stop: %v", err)
		}
	})
	return s
}

// isMissing reports whether the machine lacks the program to start.
func isMissing(err error) bool {
	return errors.Is(err, ErrNoRedis) || errors.Is(err, ErrNoPostgres) || errors.Is(err, ErrNoPgBouncer) ||
		errors.Is(err, ErrNoTemporal)
}

// one returns the only config, or the zero one.
func one[C any](t TB, cfg []C) (c C) {
	t.Helper()
	switch len(cfg) {
	case 0:
	case 1:
		c = cfg[0]
	default:
		t.Fatalf("devstack: %d configs where at most one is taken", len(cfg))
	}
	return c
}
