package stack

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/internal/devstack"
)

// ForTest is Start for a test, with a database of its own. The test is skipped where a
// server is missing, unless FENCEKIT_REQUIRE_REAL says to fail.
func ForTest(t devstack.TB, cfg Config) *Stack {
	t.Helper()
	cfg.OwnDatabase = true
	s, err := Start(context.Background(), cfg)
	for _, missing := range []error{devstack.ErrNoRedis, devstack.ErrNoPostgres, devstack.ErrNoTemporal} {
		if errors.Is(err, missing) && !devstack.RequireReal() {
			t.Skipf("%v", err)
		}
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(s.Close)
	return s
}

var names atomic.Int64

// Unique makes a task queue or a prefix that no other test has, on shared servers
// either.
func Unique(name string) string {
	return fmt.Sprintf("%s-%d-%d", name, time.Now().UnixNano(), names.Add(1))
}

// WorkForTest starts a worker for a test, guarded by kit unless that is nil, and
// returns its client.
func (s *Stack) WorkForTest(t devstack.TB, queue string, kit *interceptor.Interceptor, register func(worker.Registry)) client.Client {
	t.Helper()
	c, err := s.Dial(func(o *client.Options) {
		if kit != nil {
			o.Plugins = append(o.Plugins, kit.Plugin())
		}
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	w := worker.New(c, queue, worker.Options{})
	register(w)
	if err := w.Start(); err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(w.Stop)
	return c
}
