package interceptor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
)

// The workflow's own key holds for regular and local activities alike, whatever
// Policy.Key picks.
func TestAKeyOfTheWorkflowsOwn(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("charge", interceptor.Policy{Scope: interceptor.ScopeNamespace,
		Key: interceptor.KeyFrom(func(string) any { panic("not asked") })}))
	var runs counted
	e.worker(and(named("charge", func(ctx context.Context, order string) (int, error) { return runs.ran(ctx), nil })))
	run, got := e.steps(call("charge", "A1").keyed("charge-A1"), call("charge", "A1").keyed("charge-A1").local(),
		call("charge", "A1").keyed("charge-A2").local(), call("charge", "A1").keyed("charge-A2"))
	require.Equal(t, []any{1.0, 1.0, 2.0, 2.0}, got)
	require.NotEqual(t, runs.keys[0], runs.keys[1])
	for _, scheduled := range e.history(run, 10) {
		header := scheduled.GetActivityTaskScheduledEventAttributes().GetHeader().String()
		require.Contains(t, header, "fencekit-key")
		require.NotContains(t, header, "charge-A", "history shows a digest")
	}
	require.NotContains(t, e.stored(), "charge-A")
}

// C08: the same key with other input is somebody's mistake.
func TestAKeyOfTheWorkflowsOwnWithOtherInput(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("charge", oncePerNamespace))
	var runs counted
	e.worker(and(named("charge", func(ctx context.Context, amount int) (int, error) { return runs.ran(ctx), nil })))
	e.steps(call("charge", 100).keyed("k1"))
	for _, p := range []plan{call("charge", 200).keyed("k1"), call("charge", 200).keyed("k1").local()} {
		_, err := e.run(p)
		var f *temporal.ApplicationError // a local activity's stands alone
		require.ErrorAs(t, err, &f)
		require.Equal(t, interceptor.TypeMismatch, f.Type())
		require.True(t, f.NonRetryable())
	}
	_, got := e.steps(call("charge", 100).keyed("k1"))
	require.Equal(t, []any{1.0}, got, "what was stored is untouched")
}

// G02: the digest of a workflow's own key is a wire format: see testdata/keys.json for
// the others. It was written once by this very call.
func TestAKeyOfTheWorkflowsOwnIsAWireFormat(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("golden", oncePerNamespace))
	var runs counted
	e.worker(and(named("golden", func(ctx context.Context, order string) (int, error) { return runs.ran(ctx), nil })))
	run, _ := e.steps(call("golden", "A1").keyed("charge-A1"))
	header := e.history(run, 10)[0].GetActivityTaskScheduledEventAttributes().GetHeader().GetFields()["fencekit-key"]
	require.Equal(t, "v1:explicit:a668910279f24654cdd9bdd788fbfbf39ca59bbd77578057449263ca31b23113", string(header.GetData()))
	require.Equal(t, "v1:golden:27587876f9e3001e60fdb1838cca98bdb649f7139b2cc59f5c6ee93732eb4ad0", runs.keys[0].String())
}

func TestWithKeyRefuses(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("charge", oncePerNamespace))
	var keyError *primitives.KeyError
	var optionError *primitives.OptionError
	for name, c := range map[string]struct {
		key         string
		intercepted bool
		want        any
	}{
		"an empty key":                       {"", true, &keyError},
		"invalid UTF-8":                      {"a\xff", true, &keyError},
		"a workflow without the interceptor": {"k", false, &optionError},
	} {
		var env testsuite.WorkflowTestSuite
		w := env.NewTestWorkflowEnvironment()
		w.SetTestTimeout(time.Minute)
		if c.intercepted {
			w.SetWorkerOptions(worker.Options{Interceptors: []interceptorOf{e.interceptor()}})
		}
		w.ExecuteWorkflow(func(ctx workflow.Context) error {
			_, err := interceptor.WithKey(ctx, c.key)
			require.ErrorAs(t, err, c.want, name)
			return nil
		})
		require.NoError(t, w.GetWorkflowError(), name)
	}
}

// A header that is not what WithKey writes is no key, rather than anybody's.
func TestAForeignHeaderIsNoKey(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("charge", oncePerNamespace))
	for _, text := range []string{"", "charge-A1", "v1:other:" + string(make([]byte, 64))} {
		var suite testsuite.WorkflowTestSuite
		suite.SetHeader(&commonpb.Header{Fields: map[string]*commonpb.Payload{"fencekit-key": {
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte("binary/plain")}, Data: []byte(text)}}})
		a := suite.NewTestActivityEnvironment()
		a.SetWorkerOptions(worker.Options{Interceptors: []interceptorOf{e.interceptor()}})
		a.RegisterActivityWithOptions(func(context.Context) error { t.Error("it ran"); return nil }, registerAs("charge"))
		_, err := a.ExecuteActivity("charge")
		require.Equal(t, interceptor.TypeKeyError, failure(t, err).Type())
	}
}
