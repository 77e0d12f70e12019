package devstack_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// playEcho repeats its input line by line, and ends with status 3.
func playEcho() {
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(in.Text())
	}
	fmt.Print("last\nnot a line")
	os.Exit(3)
}

func TestChildTalks(t *testing.T) {
	t.Parallel()
	c := child(t, "echo")
	require.NotEqual(t, os.Getpid(), c.PID())
	require.Equal(t, "ready", hears(t, c))
	require.NoError(t, c.Say("one"))
	require.NoError(t, c.Say("two"))
	require.Equal(t, "one", hears(t, c))
	require.NoError(t, c.CloseInput())
	require.Equal(t, "two", hears(t, c))
	require.Equal(t, "last", hears(t, c))
	_, err := c.Line(testContext(t))
	require.ErrorIs(t, err, io.EOF)
	require.ErrorContains(t, err, "exit status 3")
	var exit *exec.ExitError
	require.ErrorAs(t, c.Wait(testContext(t)), &exit)
	require.Equal(t, 3, exit.ExitCode())

	require.NoError(t, c.Kill(), "killing an ended child is fine")
	require.ErrorIs(t, c.Freeze(), os.ErrProcessDone)
	require.Error(t, c.Say("three"))
	require.NoError(t, c.Stop())
	require.NoError(t, c.Stop(), "twice is fine")
}

func TestChildFreezesAndThaws(t *testing.T) {
	t.Parallel()
	c := child(t, "echo")
	hears(t, c)
	for range 3 {
		require.NoError(t, c.Freeze())
		requireStopped(t, c.PID())
		require.NoError(t, c.Say("later"))
		require.NoError(t, c.Thaw())
		require.Equal(t, "later", hears(t, c))
	}
	require.NoError(t, c.Freeze())
	require.NoError(t, c.Kill(), "also when it is frozen")
	require.Error(t, c.Wait(testContext(t)))
}

// requireStopped looks at the state in the process table.
func requireStopped(t *testing.T, pid int) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	require.Contains(t, string(status), "T (stopped)")
}

func TestChildHeedsContext(t *testing.T) {
	t.Parallel()
	c := child(t, "echo")
	hears(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Line(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, c.Wait(ctx), context.Canceled)
}

func TestChildThatDoesNotStart(t *testing.T) {
	t.Parallel()
	_, err := devstack.StartChild(devstack.ChildConfig{Path: t.TempDir() + "/nothing"})
	require.ErrorIs(t, err, os.ErrNotExist)
}
