package devstack_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

const temporalQueue = "devstack"

// greetWorkflow has one activity.
func greetWorkflow(ctx workflow.Context, name string) (greeting string, err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	err = workflow.ExecuteActivity(ctx, greet, name).Get(ctx, &greeting)
	return greeting, err
}

func greet(_ context.Context, name string) (string, error) { return "hello " + name, nil }

// greetOn runs a worker and a workflow in the client's namespace.
func greetOn(t *testing.T, c client.Client, id string) client.WorkflowRun {
	t.Helper()
	w := worker.New(c, temporalQueue, worker.Options{})
	w.RegisterWorkflow(greetWorkflow)
	w.RegisterActivity(greet)
	require.NoError(t, w.Start())
	defer w.Stop()
	run, err := c.ExecuteWorkflow(testContext(t), client.StartWorkflowOptions{ID: id, TaskQueue: temporalQueue}, greetWorkflow, id)
	require.NoError(t, err)
	requireGreeting(t, run, id)
	return run
}

func requireGreeting(t *testing.T, run client.WorkflowRun, id string) {
	t.Helper()
	var greeting string
	require.NoError(t, run.Get(testContext(t), &greeting))
	require.Equal(t, "hello "+id, greeting)
}

func TestTemporalRunsAWorkflow(t *testing.T) {
	t.Parallel()
	s := devstack.TemporalForTest(t)
	require.Equal(t, "default", s.Namespace())
	require.Empty(t, s.UIURL())
	greetOn(t, s.ClientForTest(t), "one")
}

func TestTemporalNamespaces(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := devstack.TemporalForTest(t)
	require.NoError(t, s.CreateNamespace(ctx, "another"))
	for _, namespace := range []string{"default", "another"} {
		c := s.ClientForTest(t, func(o *client.Options) { o.Namespace = namespace })
		greetOn(t, c, "same-id")
	}
	var there *serviceerror.NamespaceAlreadyExists
	require.ErrorAs(t, s.CreateNamespace(ctx, "another"), &there)
}

func TestTemporalStartsTwoAtOnce(t *testing.T) {
	t.Parallel()
	servers := make(chan *devstack.Temporal, 2)
	for range cap(servers) {
		go func() {
			s, err := devstack.StartTemporal(context.Background(), devstack.TemporalConfig{Own: true})
			if err != nil {
				fmt.Println(err)
			}
			servers <- s
		}()
	}
	first, second := <-servers, <-servers
	require.NotNil(t, first)
	require.NotNil(t, second)
	require.NotEqual(t, first.Addr(), second.Addr())
	for _, s := range []*devstack.Temporal{first, second} {
		greetOn(t, s.ClientForTest(t), "one of two")
		require.NoError(t, s.Stop())
		require.NoError(t, s.Stop(), "twice is fine")
		require.False(t, listens(s.Addr()))
	}
}

func TestTemporalKillAndRestart(t *testing.T) {
	t.Parallel()
	for _, persistent := range []bool{true, false} {
		t.Run(fmt.Sprint("persistent ", persistent), func(t *testing.T) {
			t.Parallel()
			s := devstack.TemporalForTest(t, devstack.TemporalConfig{Own: true, Persistent: persistent})
			c, addr := s.ClientForTest(t), s.Addr()
			run := greetOn(t, c, "kept")

			require.NoError(t, s.Kill())
			require.False(t, listens(addr))
			require.NoError(t, s.Restart(testContext(t)))
			require.Equal(t, addr, s.Addr())
			c = s.ClientForTest(t)
			if persistent {
				requireGreeting(t, c.GetWorkflow(testContext(t), run.GetID(), run.GetRunID()), "kept")
				return
			}
			_, err := c.DescribeWorkflow(testContext(t), run.GetID(), run.GetRunID())
			var absent *serviceerror.NotFound
			require.ErrorAs(t, err, &absent)
		})
	}
}

func TestTemporalFreezeAndThaw(t *testing.T) {
	t.Parallel()
	s := devstack.TemporalForTest(t, devstack.TemporalConfig{Own: true})
	c := s.ClientForTest(t)
	_, err := c.CheckHealth(testContext(t), nil)
	require.NoError(t, err)

	require.NoError(t, s.Freeze())
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err = c.CheckHealth(short, nil)
	require.Error(t, err)
	require.Error(t, short.Err(), "it did not answer")

	require.NoError(t, s.Thaw())
	_, err = c.CheckHealth(testContext(t), nil)
	require.NoError(t, err)
}

func TestTemporalConfig(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := devstack.TemporalForTest(t, devstack.TemporalConfig{
		UI:               true,
		DynamicConfig:    []string{"limit.maxIDLength=20"},
		SearchAttributes: []string{"CustomerId=Keyword"},
	})
	c := s.ClientForTest(t)
	_, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "an ID of more than twenty letters", TaskQueue: temporalQueue}, greetWorkflow, "x")
	var invalid *serviceerror.InvalidArgument
	require.ErrorAs(t, err, &invalid)
	_, err = c.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Query: "CustomerId = '42'"})
	require.NoError(t, err)

	page, err := http.Get(s.UIURL())
	require.NoError(t, err)
	require.NoError(t, page.Body.Close())
	require.Equal(t, http.StatusOK, page.StatusCode)
	http.DefaultClient.CloseIdleConnections()
}

func TestTemporalRefusesBadConfig(t *testing.T) {
	t.Parallel()
	devstack.TemporalForTest(t) // skips where there is no server
	_, err := devstack.StartTemporal(testContext(t), devstack.TemporalConfig{SearchAttributes: []string{"CustomerId=Nonsense"}})
	require.ErrorContains(t, err, "Nonsense", "the server's own words are in the error")
}

func TestTemporalAtAddress(t *testing.T) {
	server := devstack.TemporalForTest(t, devstack.TemporalConfig{Own: true})
	t.Setenv("TEMPORAL_ADDRESS", server.Addr())
	found, err := devstack.StartTemporal(testContext(t), devstack.TemporalConfig{})
	require.NoError(t, err)
	require.Equal(t, server.Addr(), found.Addr())
	for _, err := range []error{found.Kill(), found.Freeze(), found.Thaw(), found.Restart(t.Context())} {
		require.ErrorIs(t, err, errors.ErrUnsupported, "it is not ours to break")
	}
	require.NoError(t, found.Stop())
	require.True(t, listens(server.Addr()), "a server that was found is left alone")

	own := devstack.TemporalForTest(t, devstack.TemporalConfig{Own: true})
	require.NotEqual(t, server.Addr(), own.Addr())

	require.NoError(t, server.Kill())
	_, err = devstack.StartTemporal(testContext(t), devstack.TemporalConfig{})
	require.ErrorContains(t, err, "TEMPORAL_ADDRESS")
}

// A port that somebody else took between the look and the server's bind: StartTemporal
// tries another, Restart again and again.
func TestTemporalWhosePortIsTaken(t *testing.T) {
	calls := loserOnPath(t)
	server := devstack.TemporalForTest(t, devstack.TemporalConfig{Own: true})
	require.Equal(t, 2, calls())

	require.NoError(t, server.Kill())
	l, err := net.Listen("tcp", server.Addr())
	require.NoError(t, err)
	restarted := make(chan error)
	go func() { restarted <- server.Restart(testContext(t)) }()
	eventually(t, func() bool { return calls() >= 4 }, "it has lost the port and tries again")
	require.NoError(t, l.Close())
	require.NoError(t, <-restarted)
	greetOn(t, server.ClientForTest(t), "one")
}

// loserOnPath puts a temporal on PATH that loses its port the first time, and counts
// how often it was called.
func loserOnPath(t *testing.T) (calls func() int) {
	t.Helper()
	binary, err := devstack.TemporalBinary(testContext(t), os.Stderr)
	require.NoError(t, err)
	dir := t.TempDir()
	script := fmt.Sprintf(`#!/bin/sh
echo "$@" >>'%[1]s/calls'
if [ ! -e '%[1]s/lost' ]; then
	echo >'%[1]s/lost'
	echo "Error: can't set frontend port: listen tcp: bind: address already in use"
	exit 1
fi
exec '%[2]s' "$@"
`, dir, binary)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "temporal"), []byte(script), 0o755))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return func() int {
		text, err := os.ReadFile(filepath.Join(dir, "calls"))
		require.NoError(t, err)
		return strings.Count(string(text), "start-dev")
	}
}
