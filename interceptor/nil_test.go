package interceptor

import (
	"bytes"
	stdlog "log"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives"
)

// The field of the options is named, not the argument of a constructor behind it.
func TestNewWithoutRedisNamesTheField(t *testing.T) {
	t.Parallel()
	_, err := New(Options{})
	var o *primitives.OptionError
	require.ErrorAs(t, err, &o)
	require.Equal(t, "Redis", o.Field)
}

// lockedText is a buffer for the default logger, which others may use.
type lockedText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// defaultLog is what slog's default logger is told during the test.
func defaultLog(t *testing.T) *lockedText {
	t.Helper()
	before, out, flags := slog.Default(), stdlog.Writer(), stdlog.Flags()
	t.Cleanup(func() { // slog has taken the log package along
		slog.SetDefault(before)
		stdlog.SetOutput(out)
		stdlog.SetFlags(flags)
	})
	text := &lockedText{}
	slog.SetDefault(slog.New(slog.NewTextHandler(text, nil)))
	return text
}

// A client without a logger, and a plugin on the worker alone, have the worker say all
// the same which guards guard nothing. It is not parallel: the default logger is the
// process's.
func TestUnknownGuardsAreNamedWithoutALogger(t *testing.T) {
	text := defaultLog(t)
	r := &roll{kit: unit(t, Policy{}), workers: map[string]map[string]bool{}}
	r.call("of workflows only")
	r.note("complete", "a")
	r.call("complete")
	require.Empty(t, text.String())
	r.note("w", "b")
	r.call("w")
	require.Contains(t, text.String(), "guards nothing")
	require.Contains(t, text.String(), "Guards=a")
}
