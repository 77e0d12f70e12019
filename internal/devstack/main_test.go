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

// parentVariable makes the test binary play a parent that starts servers and is
// then killed; see TestChildrenDieWithTheirParent.
const parentVariable = "FENCEKIT_DEVSTACK_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) != "" {
		playParent()
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

// playParent starts a server, prints its address and waits to be killed.
func playParent() {
	r, err := devstack.StartRedis(context.Background(), devstack.RedisConfig{Own: true})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(r.Addr())
	time.Sleep(time.Hour)
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
