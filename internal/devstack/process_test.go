package devstack_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// ownRedis is a server process of the test's own.
func ownRedis(t *testing.T, conf ...string) *devstack.Redis {
	t.Helper()
	return devstack.RedisForTest(t, devstack.RedisConfig{Own: true, Conf: conf})
}

func listens(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

func TestChildrenDieWithTheirParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills the children of a killed parent")
	}
	ownRedis(t) // skips where there is no server
	parent := child(t, "parent", "TMPDIR="+t.TempDir())
	addr := hears(t, parent)
	require.True(t, listens(addr), "the server at %q is up while its parent lives", addr)
	require.NoError(t, parent.Kill())
	eventually(t, func() bool { return !listens(addr) }, "the server ends with its parent")
}

// playParent starts a server, prints its address and waits to be killed.
func playParent() {
	r, err := devstack.StartRedis(context.Background(), devstack.RedisConfig{Own: true})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(r.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// The kernel takes the end of the forking thread for the end of the parent. So
// the threads that ask for servers end here, and the servers must not notice.
// There are several because one may be the main thread, which never ends.
func TestChildOutlivesThreads(t *testing.T) {
	ownRedis(t) // skips where there is no server
	servers := make([]*devstack.Redis, 4)
	var wg sync.WaitGroup
	for i := range servers {
		inDyingThread(&wg, func() { servers[i] = ownRedis(t) })
	}
	wg.Wait()
	for range 50 {
		inDyingThread(&wg, func() {})
	}
	wg.Wait()
	for _, r := range servers {
		require.NotNil(t, r)
		require.NoError(t, r.Client().Ping(testContext(t)).Err())
	}
}

// inDyingThread runs f on a thread that ends with it.
func inDyingThread(wg *sync.WaitGroup, f func()) {
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread
		f()
	})
}
