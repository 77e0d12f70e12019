package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// temporalBuild makes the server's binary, once for all processes of a user.
type temporalBuild struct {
	target   string // where the binary belongs
	progress io.Writer
	every    time.Duration // between two signs of life
}

// buildBudget is for a slow machine that has to download everything first.
const buildBudget = 20 * time.Minute

// failedBuilds holds the error of a build that failed, by its target: for this
// process the next one would take as long to fail again.
var failedBuilds sync.Map

// binary returns the target when it is there.
func (b temporalBuild) binary(ctx context.Context) (string, error) {
	if known, err := b.known(); known {
		return b.target, err
	}
	ctx, cancel := context.WithTimeout(ctx, buildBudget)
	defer cancel()
	if err := os.MkdirAll(filepath.Dir(b.target), 0o755); err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoTemporal, err)
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if known, err := b.known(); known { // whoever had the lock has built it, or tried
		return b.target, err
	}
	err = b.build(ctx)
	if errors.Is(err, ErrNoTemporal) {
		failedBuilds.Store(b.target, err)
	}
	return b.target, err
}

// known reports whether nothing is left to be done, and what came of it.
func (b temporalBuild) known() (bool, error) {
	if b.there() {
		return true, nil
	}
	failure, failed := failedBuilds.Load(b.target)
	err, _ := failure.(error) // nothing else is stored
	return failed, err
}

func (b temporalBuild) there() bool {
	info, err := os.Stat(b.target)
	return err == nil && info.Mode().IsRegular()
}

// lock waits for the builds of other processes.
func (b temporalBuild) lock(ctx context.Context) (unlock func(), err error) {
	file, err := os.OpenFile(b.target+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoTemporal, err)
	}
	if err = tryLock(file); errors.Is(err, syscall.EWOULDBLOCK) {
		stop := b.report("waiting for another process that builds the Temporal server")
		err = waitFor(ctx, "another process has built the Temporal server", func() error { return tryLock(file) })
		stop()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil // which unlocks
}

// build puts the binary where it belongs when it is complete. What a killed build
// has left goes first: the lock is ours.
func (b temporalBuild) build(ctx context.Context) error {
	dir := b.target + ".building"
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
		return fmt.Errorf("%w: %w", ErrNoTemporal, err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the next build does it again
	start := time.Now()
	stop := b.report("building the Temporal server " + temporalVersion + ", once; this takes minutes")
	err := goInstall(ctx, dir)
	stop()
	if err != nil {
		b.tell("the Temporal server was not built")
		return err
	}
	if err := os.Rename(filepath.Join(dir, "temporal"+executable()), b.target); err != nil {
		return fmt.Errorf("%w: %w", ErrNoTemporal, err)
	}
	b.tell("built the Temporal server in " + age(start))
	return nil
}

// report says what is going on, and says it again until it is stopped.
func (b temporalBuild) report(what string) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	start := time.Now()
	b.tell(what)
	go func() {
		defer close(done)
		tick := time.NewTicker(b.every)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				b.tell(what + " (" + age(start) + ")")
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// tell goes on if nobody can hear it.
func (b temporalBuild) tell(what string) { _, _ = fmt.Fprintln(b.progress, "devstack:", what) }

func age(start time.Time) string { return time.Since(start).Round(time.Second).String() }

// goInstall builds the server into dir, and runs there, outside of any module. When
// ctx ends, so does the build.
func goInstall(ctx context.Context, dir string) error {
	name, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoTemporal, err)
	}
	cmd := exec.Command(name, "install", "-trimpath", "-ldflags", "-s -w", temporalPackage)
	cmd.Dir = dir
	cmd.Env = append(buildEnvironment(os.Environ()), "CGO_ENABLED=0", "GOWORK=off", "GOBIN="+dir)
	cmd.SysProcAttr = childAttributes()
	proc, err := startLogged(cmd)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoTemporal, err)
	}
	select {
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("devstack: building Temporal: %w: %s", context.Cause(ctx), proc.lastWords()), proc.kill())
	case <-proc.done:
	}
	if proc.err != nil {
		return fmt.Errorf("%w: go install: %w: %s", ErrNoTemporal, proc.err, proc.lastWords())
	}
	return nil
}

// buildEnvironment drops what would build for another platform, where GOBIN is
// refused, or against a vendor folder.
func buildEnvironment(env []string) (kept []string) {
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		switch name {
		case "GOOS", "GOARCH":
			continue
		case "GOFLAGS":
			flags := slices.DeleteFunc(strings.Fields(value), func(f string) bool {
				return strings.HasPrefix(strings.TrimLeft(f, "-"), "mod=")
			})
			entry = "GOFLAGS=" + strings.Join(flags, " ")
		}
		kept = append(kept, entry)
	}
	return kept
}
