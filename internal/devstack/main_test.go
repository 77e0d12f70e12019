package devstack_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// childVariable makes the test binary play one of the roles, for a test that needs
// a process to kill.
const childVariable = "FENCEKIT_DEVSTACK_CHILD"

var roles = map[string]func(){"parent": playParent, "echo": playEcho}

func TestMain(m *testing.M) {
	if role := os.Getenv(childVariable); role != "" {
		roles[role]()
		return
	}
	code := m.Run()
	if err := leaked(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines are left when all tests are over:", err)
		code = 1
	}
	os.Exit(code)
}

// leaked finds goroutines that outlive the tests.
func leaked() (err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		// go-redis: a pool that could not dial looks once a second whether it can
		// again, and only then notices that it has been closed.
		if err = goleak.Find(goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")); err == nil {
			return nil
		}
	}
	return err
}

// child is this binary in a role.
func child(t *testing.T, role string, env ...string) *devstack.Child {
	t.Helper()
	return devstack.ChildForTest(t, devstack.ChildConfig{Env: append(env, childVariable+"="+role)})
}

// hears waits for the next line of a child's.
func hears(t *testing.T, c *devstack.Child) string {
	t.Helper()
	line, err := c.Line(testContext(t))
	require.NoError(t, err)
	return line
}

// patience is for what a machine that stalls for seconds does in the end.
const patience = 30 * time.Second

// testContext ends when no test should still be waiting.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// eventually is for what a server does in its own time.
func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, 2*patience, 5*time.Millisecond, what)
}
