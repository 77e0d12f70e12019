//go:build linux || darwin

package devstack_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

func init() { roles["builder"] = playBuilder }

// playBuilder prints its progress, and then the path or the error.
func playBuilder() {
	path, err := devstack.TemporalBinary(context.Background(), os.Stdout)
	fmt.Println(path, err)
}

// fakeGo is a folder with a go command that notes how it was called, writes half a
// binary and waits at the gate before it writes the rest.
type fakeGo struct {
	t     *testing.T
	dir   string
	cache string
	gate  *os.File
}

// The shell's own commands must do: there is no other on PATH.
const fakeGoScript = `#!/bin/sh
echo "$@ CGO_ENABLED=$CGO_ENABLED GOFLAGS=$GOFLAGS GOOS=$GOOS" >>"$FAKE_GO/calls"
printf 'half ' >"$GOBIN/temporal"
read -r order <"$FAKE_GO/gate"
if [ "$order" = fail ]; then
	echo 'dial tcp: lookup modules.example: no such host'
	exit 1
fi
printf 'whole' >>"$GOBIN/temporal"
`

func newFakeGo(t *testing.T) *fakeGo {
	t.Helper()
	f := &fakeGo{t: t, dir: t.TempDir(), cache: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "go"), []byte(fakeGoScript), 0o755))
	gate := filepath.Join(f.dir, "gate")
	require.NoError(t, syscall.Mkfifo(gate, 0o600))
	var err error
	f.gate, err = os.OpenFile(gate, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.gate.Close()) })
	return f
}

func (f *fakeGo) env() map[string]string {
	return map[string]string{"PATH": f.dir, "FAKE_GO": f.dir, "XDG_CACHE_HOME": f.cache, "HOME": f.cache,
		"GOFLAGS": "-mod=vendor -v", "GOOS": "plan9", "FENCEKIT_REQUIRE_REAL": ""}
}

func (f *fakeGo) setenv() {
	for name, value := range f.env() {
		f.t.Setenv(name, value)
	}
}

func (f *fakeGo) builder() *devstack.Child {
	f.t.Helper()
	var env []string
	for name, value := range f.env() {
		env = append(env, name+"="+value)
	}
	return child(f.t, "builder", env...)
}

func (f *fakeGo) order(what string) {
	f.t.Helper()
	_, err := f.gate.WriteString(what + "\n")
	require.NoError(f.t, err)
}

func (f *fakeGo) calls() []string {
	text, err := os.ReadFile(filepath.Join(f.dir, "calls"))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// cached lists what is in the cache, but for the lock.
func (f *fakeGo) cached() (names []string) {
	err := filepath.WalkDir(f.cache, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) != ".lock" {
			names = append(names, filepath.Base(path))
		}
		return err
	})
	require.NoError(f.t, err)
	return names
}

func (f *fakeGo) requireBuilt(answer string) {
	f.t.Helper()
	path, ok := strings.CutSuffix(answer, " <nil>")
	require.True(f.t, ok, answer)
	text, err := os.ReadFile(path)
	require.NoError(f.t, err)
	require.Equal(f.t, "half whole", string(text))
	require.Equal(f.t, []string{filepath.Base(path)}, f.cached())
}

func TestTemporalIsBuiltByOneProcess(t *testing.T) {
	t.Parallel()
	f := newFakeGo(t)
	first := f.builder()
	require.Contains(t, hears(t, first), "building the Temporal server")
	second := f.builder()
	require.Contains(t, hears(t, second), "waiting for another process")
	f.order("build")
	require.Contains(t, hears(t, first), "built the Temporal server in")
	for _, c := range []*devstack.Child{first, second} {
		f.requireBuilt(hears(t, c))
	}
	f.requireBuilt(hears(t, f.builder()))
	require.Equal(t, []string{"install -trimpath -ldflags -s -w github.com/temporalio/cli/cmd/temporal@v1.5.1 " +
		"CGO_ENABLED=0 GOFLAGS=-v GOOS="}, f.calls())
}

func TestTemporalBuildThatIsKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills the children of a killed parent")
	}
	t.Parallel()
	f := newFakeGo(t)
	first := f.builder()
	hears(t, first)
	eventually(t, func() bool { return len(f.cached()) > 1 }, "half a binary is there")
	second := f.builder()
	require.Contains(t, hears(t, second), "waiting for another process")
	require.NoError(t, first.Kill())
	require.Contains(t, hears(t, second), "building the Temporal server", "the lock is gone with its holder")
	eventually(t, func() bool { return len(f.calls()) == 2 }, "the second build runs")
	f.order("build")
	require.Contains(t, hears(t, second), "built")
	f.requireBuilt(hears(t, second))
}

func TestTemporalBuildThatIsInterrupted(t *testing.T) {
	f := newFakeGo(t)
	f.setenv()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := devstack.StartTemporal(ctx, devstack.TemporalConfig{Own: true, Progress: new(strings.Builder)})
		ended <- err
	}()
	eventually(t, func() bool { return len(f.calls()) == 1 }, "the build runs")
	cancel()
	err := <-ended
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, devstack.ErrNoTemporal, "it might be had another time")
	require.Empty(t, f.cached())
}

func TestTemporalBuildThatFails(t *testing.T) {
	f := newFakeGo(t)
	f.setenv()
	ended := make(chan error)
	start := func() {
		_, err := devstack.StartTemporal(testContext(t), devstack.TemporalConfig{Own: true, Progress: new(strings.Builder)})
		ended <- err
	}
	for range 3 {
		go start()
	}
	f.order("fail")
	for i := range 4 {
		if i == 3 {
			go start()
		}
		err := <-ended
		require.ErrorIs(t, err, devstack.ErrNoTemporal)
		for _, words := range []string{"no such host", "go install github.com/temporalio/cli", "docker compose up"} {
			require.ErrorContains(t, err, words)
		}
	}
	require.Len(t, f.calls(), 1, "none of them tries again")
	require.Empty(t, f.cached())
}

func TestTemporalForTestWithoutServer(t *testing.T) {
	f := newFakeGo(t)
	f.setenv()
	t.Setenv("PATH", t.TempDir())
	for real, want := range map[string]string{"": "skip", "1": "fatal"} {
		t.Setenv("FENCEKIT_REQUIRE_REAL", real)
		fake := &fakeTB{}
		fake.run(func() {
			devstack.TemporalForTest(fake, devstack.TemporalConfig{Own: true, Progress: new(strings.Builder)})
		})
		require.Equal(t, want, fake.outcome)
	}
}
