package devstack_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeTB records how a test would have ended.
type fakeTB struct{ outcome string }

// run calls f as the testing package does: an outcome ends it.
func (f *fakeTB) run(test func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		test()
	}()
	<-done
}

func (f *fakeTB) end(outcome string) {
	f.outcome = outcome
	panic(outcome)
}

func (f *fakeTB) Helper()               {}
func (f *fakeTB) Cleanup(func())        {}
func (f *fakeTB) Errorf(string, ...any) { f.outcome = "error" }
func (f *fakeTB) Fatalf(string, ...any) { f.end("fatal") }
func (f *fakeTB) Skipf(string, ...any)  { f.end("skip") }

// importsOfOurs lists what this module's packages import in a program that uses the
// dev stack.
func importsOfOurs(t *testing.T) []string {
	t.Helper()
	ours := `{{with .Module}}{{if .Main}}{{range $.Imports}}{{.}} {{end}}{{end}}{{end}}`
	out, err := exec.CommandContext(testContext(t), "go", "list", "-deps", "-f", ours, ".").Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}
