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

// importsOfPrograms lists what a program that uses the dev stack links.
func importsOfPrograms(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(testContext(t), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}
