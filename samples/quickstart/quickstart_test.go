package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// asProgram makes the test binary the program itself.
const asProgram = "FENCEKIT_QUICKSTART_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// heartbeat is long, so that no worker is given up but the one that is frozen: a machine
// may stand still for some seconds.
const heartbeat = "10s"

// play runs the demo as a process of its own, as fast as it goes, and returns what it
// printed and drew.
func play(t *testing.T, temporal *devstack.Temporal, args ...string) (printed, svg, page string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	folder := t.TempDir()
	cmd := exec.CommandContext(ctx, os.Args[0], append(args, "-out", folder, "-pace", "1ms", "-heartbeat", heartbeat)...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "TEMPORAL_ADDRESS="+temporal.Addr())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	for _, missing := range []error{devstack.ErrNoRedis, devstack.ErrNoPostgres} {
		if err != nil && !devstack.RequireReal() && strings.Contains(stderr.String(), missing.Error()) {
			t.Skip(missing)
		}
	}
	require.NoError(t, err, "%s\n%s", out, stderr.String())
	return string(out), one(t, folder, "*.svg"), one(t, folder, "*.html")
}

func one(t *testing.T, folder, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, pattern))
	require.NoError(t, err)
	require.Len(t, found, 1)
	text, err := os.ReadFile(found[0])
	require.NoError(t, err)
	return string(text)
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewBufferString(text)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

var refused = regexp.MustCompile(`write 4 refused: (\d+) &lt; (\d+)`)

// Both plays are on one Temporal server at the same time, and neither gets the other's
// tasks.
func TestDemo(t *testing.T) {
	t.Parallel()
	temporal := devstack.TemporalForTest(t)
	t.Run("guarded", func(t *testing.T) {
		t.Parallel()
		playGuarded(t, temporal)
	})
	t.Run("unguarded", func(t *testing.T) {
		t.Parallel()
		playUnguarded(t, temporal)
	})
}

// The demo plays, its own checks pass, and the picture shows what it printed.
func playGuarded(t *testing.T, temporal *devstack.Temporal) {
	t.Helper()
	printed, svg, page := play(t, temporal)
	require.NotContains(t, printed, "BROKEN")
	require.NotContains(t, printed, "\x1b[", "colour is for terminals")

	wellFormed(t, svg)
	tokens := refused.FindStringSubmatch(svg)
	require.NotNil(t, tokens, svg)
	require.Contains(t, printed, "its token   "+tokens[1])
	require.Contains(t, printed, "has seen    "+tokens[2])
	for _, text := range []string{
		"attempt 1, token " + tokens[1], "attempt 2, token " + tokens[2], "Heartbeat timeout",
		"lease taken over", "result stored", "result replayed", "frozen (SIGSTOP)", "prefers-color-scheme: dark",
	} {
		require.Contains(t, svg, text)
	}
	require.NotContains(t, svg, "goes from")
	require.Contains(t, page, svg)
	require.NotRegexp(t, `(src|href)=`, page, "the page needs nothing from elsewhere")
}

// The negative control: without the kit the same play ends badly.
func playUnguarded(t *testing.T, temporal *devstack.Temporal) {
	t.Helper()
	printed, svg, _ := play(t, temporal, "-unguarded")
	require.Regexp(t, `BROKEN +no update is lost: paid is 4 of 8 after the late write`, printed)
	require.Regexp(t, `BROKEN +every invoice is paid once: 660.00 of 360.00`, printed)
	wellFormed(t, svg)
	require.Contains(t, svg, "stale write 4 accepted: progress goes from 8 back to 4")
	require.NotContains(t, svg, "refused:")
	require.NotContains(t, svg, "lease granted")
}
