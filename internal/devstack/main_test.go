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
	// go-redis: a pool that could not dial looks once a second whether it can
	// again, and only then notices that it has been closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
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

// testContext ends when no test should still be waiting.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// eventually is for what a server does in its own time.
func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, 30*time.Second, 5*time.Millisecond, what)
}
