package interceptor

import (
	"context"
	"encoding/json"
	"flag"
	"math"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/fencekit/fencekit-go/primitives"
)

var updateKeys = flag.Bool("update-keys", false, "rewrite the golden file of the interceptor's keys")

const goldenKeys = "testdata/keys.json"

// unit is an interceptor that guards the activity "a" and whatever is dynamic, and
// never talks to Redis.
func unit(t testing.TB, p Policy) *Interceptor {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	k, err := New(Options{Redis: rdb, Guards: []Guard{For("a", p), ForDynamic(p)}})
	require.NoError(t, err)
	return k
}

// ofWorkflow is the info of the activity that a workflow has scheduled.
func ofWorkflow() activity.Info {
	return activity.Info{
		Namespace: "default", WorkflowExecution: workflow.Execution{ID: "w", RunID: "r"},
		WorkflowType: &workflow.Type{Name: "W"}, ActivityID: "5", ActivityType: activity.Type{Name: "a"},
		TaskQueue: "q", Attempt: 1, TaskToken: []byte("token"), ScheduledTime: time.Unix(1, 5), StartedTime: time.Unix(2, 0),
	}
}

// standalone is the info of an activity that no workflow has scheduled.
func standalone(id, run string) activity.Info {
	info := ofWorkflow()
	info.WorkflowExecution, info.WorkflowType = workflow.Execution{}, nil
	info.ActivityID, info.ActivityRunID = id, run
	return info
}

// opOf is the operation that a call with args asks for.
func opOf(t testing.TB, p Policy, info activity.Info, args ...any) (primitives.Op, error) {
	t.Helper()
	k := unit(t, p)
	plan := k.planFor(info.ActivityType.Name, args)
	require.NotNil(t, plan)
	return newCall(context.Background(), k, plan, info).op(context.Background(), args)
}

// keyOf is its key.
func keyOf(t testing.TB, p Policy, info activity.Info, args ...any) string {
	t.Helper()
	op, err := opOf(t, p, info, args...)
	require.NoError(t, err)
	return op.Key.String()
}

func encoded(t testing.TB, args ...any) converter.EncodedValues {
	t.Helper()
	p, err := converter.GetDefaultDataConverter().ToPayloads(args...)
	require.NoError(t, err)
	return client.NewValues(p)
}

type charge struct {
	Order  string `json:"order"`
	Amount int64  `json:"amount"`
	Trace  string `json:"trace,omitempty"`
}

type goldenCase struct {
	name   string
	policy Policy
	info   activity.Info
	args   []any
}

func goldenCases(t testing.TB) []goldenCase {
	byOrder := KeyFrom(func(c charge) any { return c.Order })
	order := charge{Order: "A1", Amount: 1<<53 + 1}
	elsewhere, longName := ofWorkflow(), ofWorkflow()
	elsewhere.Namespace, longName.ActivityType.Name = "other", "line\nbreak"
	plan := func(s Scope) Policy { return Policy{Scope: s} }
	inNamespace := plan(ScopeNamespace)
	list := []goldenCase{
		{"business key", Policy{Scope: ScopeNamespace, Key: byOrder}, ofWorkflow(), []any{order}},
		{"business key, other namespace", Policy{Scope: ScopeNamespace, Key: byOrder}, elsewhere, []any{order}},
		{"no arguments", Policy{}, ofWorkflow(), nil},
		{"A07 two arguments", inNamespace, ofWorkflow(), []any{"ab", "c"}},
		{"A07 two arguments split elsewhere", inNamespace, ofWorkflow(), []any{"a", "bc"}},
		{"A07 nil slice", inNamespace, ofWorkflow(), []any{1, []string(nil)}},
		{"A07 empty slice", inNamespace, ofWorkflow(), []any{1, []string{}}},
		{"A16 negative zero", inNamespace, ofWorkflow(), []any{math.Copysign(0, -1)}},
		{"A16 one hour east", inNamespace, ofWorkflow(), []any{time.Date(2026, 5, 6, 12, 0, 0, 0, time.FixedZone("", 3600))}},
		{"bytes", inNamespace, ofWorkflow(), []any{[]byte{0, 255}}},
		{"proto", inNamespace, ofWorkflow(), []any{structpb.NewStringValue("x")}},
		{"A08 raw payload", inNamespace, ofWorkflow(), []any{converter.NewRawValue(&commonpb.Payload{
			Metadata: map[string][]byte{"encoding": []byte("binary/plain")}, Data: []byte("raw")})}},
		{"A01 dynamic", inNamespace, dynamicInfo("unknown-a"), []any{encoded(t, "alice", 1)}},
		{"unprintable activity type", inNamespace, longName, []any{"x"}},
	}
	for scope, name := range scopeNames {
		list = append(list,
			goldenCase{"scope " + name, plan(scope), ofWorkflow(), []any{order}},
			goldenCase{"D16 scope " + name, plan(scope), standalone("act", "run"), []any{order}})
	}
	return list
}

func dynamicInfo(name string) activity.Info {
	info := ofWorkflow()
	info.ActivityType.Name = name
	return info
}

// G02: a change of any of these is a breaking release: what is done would be done
// again. Rewrite the file with -update-keys, and say so under Storage in CHANGELOG.md.
func TestKeysAreThoseOfTheGoldenFile(t *testing.T) {
	t.Parallel()
	got := map[string]string{}
	for _, c := range goldenCases(t) {
		if c.info.ActivityType.Name == "line\nbreak" {
			k := unit(t, c.policy)
			op, err := newCall(context.Background(), k, k.plans["a"], c.info).op(context.Background(), c.args)
			require.NoError(t, err)
			got[c.name] = op.Key.String()
			continue
		}
		op, err := opOf(t, c.policy, c.info, c.args...)
		require.NoError(t, err, c.name)
		got[c.name] = op.Key.String()
		if !op.Fingerprint.IsZero() {
			got[c.name] += " " + op.Fingerprint.String()
		}
	}
	if *updateKeys {
		text, err := json.MarshalIndent(got, "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(goldenKeys, append(text, '\n'), 0o600))
	}
	text, err := os.ReadFile(goldenKeys)
	require.NoError(t, err)
	var want map[string]string
	require.NoError(t, json.Unmarshal(text, &want))
	require.Equal(t, want, got)
}
