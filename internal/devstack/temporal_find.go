package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// The release that is built. Its name is part of the cached binary's, so another
// release is built beside it.
const (
	temporalVersion = "v1.5.1"
	temporalPackage = "github.com/temporalio/cli/cmd/temporal@" + temporalVersion
)

// ErrNoTemporal says that the machine has no Temporal server to run and could not
// build one. Its text names the install command; the reason follows.
var ErrNoTemporal = errors.New("devstack: temporal is not on PATH and could not be built; " +
	"install it: go install " + temporalPackage + ", brew install temporal, make setup, docker compose up, or set TEMPORAL_ADDRESS")

// TemporalBinary is the path of the program that [StartTemporal] runs: temporal on
// PATH, else the one in the user's cache folder, which is built first if need be.
// That takes minutes, and progress is told.
func TemporalBinary(ctx context.Context, progress io.Writer) (string, error) {
	if path, err := exec.LookPath("temporal"); err == nil {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoTemporal, err)
	}
	b := temporalBuild{
		target:   filepath.Join(cache, "fencekit", temporalName()),
		progress: progress,
		every:    10 * time.Second,
	}
	return b.binary(ctx)
}

func temporalName() string {
	return fmt.Sprintf("temporal-%s-%s-%s", temporalVersion, runtime.GOOS, runtime.GOARCH) + executable()
}

// executable is how the names of programs end.
func executable() string {
	if runtime.GOOS == "windows" {
		return ".exe"
	}
	return ""
}
