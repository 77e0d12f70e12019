package interceptor_test

import (
	"context"
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
)

// shouts has a marshaller for its pointer, which encoding/json does not find where a
// value of it stands in an interface.
type shouts struct{ Text string }

func (s *shouts) MarshalJSON() ([]byte, error) { return json.Marshal(s.Text + "!") }

type row struct {
	N    int
	Tags []string
}

// N10: one input has one key, whether a body is given the workflow's own values or what
// JSON has made of them. Where nothing has a type, a nil is what JSON makes of it.
func TestOneInputHasOneKeyLocallyAndNot(t *testing.T) {
	t.Parallel()
	values := map[string]any{
		"a nil slice":               []string(nil),
		"a nil slice of any":        []any(nil),
		"a nil map":                 map[string]int(nil),
		"nil bytes":                 []byte(nil),
		"nil in a slice":            [][]int{nil},
		"nil maps in a slice":       []map[string]any{nil, {}},
		"a nil pointer":             (*row)(nil),
		"nil raw JSON":              json.RawMessage(nil),
		"raw JSON":                  json.RawMessage(` { "b" : 1.0, "a" : 2e0 } `),
		"a nil in a struct":         row{N: 1},
		"a nil in a pointer":        &row{N: 1},
		"a pointer's marshaller":    shouts{"hey"},
		"in a slice of any":         []any{shouts{"hey"}, []string(nil)},
		"in a map of any":           map[string]any{"a": shouts{"hey"}, "b": map[string]any(nil)},
		"addressable, in a slice":   []shouts{{"hey"}},
		"not addressable, in a map": map[string]shouts{"a": {"hey"}},
		"an empty slice":            []string{},
		"bytes":                     []byte{0, 255},
		"html and a separator":      "<a href='x'>&\u2028",
		"a float":                   1.5e-7,
		"a negative zero":           math.Copysign(0, -1),
		"a small float":             float32(0.1),
	}
	byID := interceptor.KeyFrom(func(m map[string]any) any { return m["id"] })
	for policyName, policy := range map[string]interceptor.Policy{
		"namespace": {Scope: interceptor.ScopeNamespace}, "workflow": {Scope: interceptor.ScopeWorkflow},
		"run": {Scope: interceptor.ScopeRun}, "beside a key": {Scope: interceptor.ScopeNamespace, Key: byID},
	} {
		t.Run(policyName, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("ship", policy))
			var runs counted
			e.worker(func(w worker.Registry) {
				named("ship", func(ctx context.Context, _ map[string]any) (int, error) { return runs.ran(ctx), nil })(w)
				w.RegisterWorkflowWithOptions(func(ctx workflow.Context, name string, localFirst bool) ([2]string, error) {
					in := map[string]any{"id": name, "first": localFirst, "v": values[name]}
					if localFirst {
						in["id"] = name + ", locally first"
					}
					first := way{"ship", localFirst}.do(ctx, in).Get(ctx, nil)
					second := way{"ship", !localFirst}.do(ctx, in).Get(ctx, nil)
					return [2]string{kindOf(first), kindOf(second)}, nil
				}, workflow.RegisterOptions{Name: "both"})
			})
			for name := range values {
				for _, localFirst := range []bool{true, false} {
					before := runs.runs()
					run, err := e.client.ExecuteWorkflow(e.ctx(), startOn(e), "both", name, localFirst)
					require.NoError(t, err)
					var kinds [2]string
					require.NoError(t, run.Get(e.ctx(), &kinds))
					if kinds != [2]string{"done", "done"} || runs.runs() != before+1 {
						t.Errorf("%s, locally first %t: %v, %d runs", name, localFirst, kinds, runs.runs()-before)
					}
				}
			}
		})
	}
}
