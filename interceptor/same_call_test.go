package interceptor_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
)

// pair is two calls of one input, or of another if the row says so.
type pair struct {
	Name  string
	First plan
	Then  plan
	Where string // the second call: "" for the same run, "next run", "other workflow"
}

// pairs make the first calls of all pairs, and the second ones that belong here. It
// returns their results: equal ones are those of one operation.
func pairs(ctx workflow.Context, all []pair, where string, results map[string][2]any) (map[string][2]any, error) {
	for _, p := range all {
		r := results[p.Name]
		var err error
		if where == "" {
			if r[0], err = runOne(ctx, p.First); err != nil {
				return nil, err
			}
		}
		if p.Where == where {
			if r[1], err = runOne(ctx, p.Then); err != nil {
				return nil, err
			}
		}
		if results == nil {
			results = map[string][2]any{}
		}
		results[p.Name] = r
	}
	if where == "" {
		return nil, workflow.NewContinueAsNewError(ctx, "pairs", all, "next run", results)
	}
	return results, nil
}

// Which differences between two calls are the same operation: by scope, and by the kind of
// the two calls.
func TestWhichCallsAreTheSameOperation(t *testing.T) {
	t.Parallel()
	const (
		never     = interceptor.ScopeNamespace + 1
		run       = interceptor.ScopeRun
		whole     = interceptor.ScopeWorkflow
		namespace = interceptor.ScopeNamespace
	)
	type row struct {
		name string
		same interceptor.Scope // from this scope on, the two are one operation
		edit func(kind string, p pair) pair
	}
	then := func(edit func(plan) plan) func(string, pair) pair {
		return func(_ string, p pair) pair { p.Then = edit(p.Then); return p }
	}
	in := func(where string) func(string, pair) pair {
		return func(_ string, p pair) pair { p.Where = where; return p }
	}
	rows := []row{
		{"the same again", run, then(func(p plan) plan { return p })},
		{"other arguments", never, then(func(p plan) plan { p.Args = []any{"other arguments, that is"}; return p })},
		{"another activity type", never, then(func(p plan) plan { p.Activity += "-2"; return p })},
		{"other timeouts", run, then(func(p plan) plan { p.Options.StartToCloseTimeout = forever; return p })},
		{"another activity id", run, func(_ string, p pair) pair { p.First, p.Then = p.First.as("a"), p.Then.as("b"); return p }},
		{"N01: one activity id", run, func(_ string, p pair) pair { p.First, p.Then = p.First.as("one"), p.Then.as("one"); return p }},
		{"the other kind", run, func(kind string, p pair) pair { p.Then.Local = kind == "regular"; return p }},
		{"the next run", whole, in("next run")},
		{"the next run, with one activity id", whole, func(_ string, p pair) pair {
			p.First, p.Then, p.Where = p.First.as("next"), p.Then.as("next"), "next run"
			return p
		}},
		{"another workflow", namespace, in("other workflow")},
	}
	for _, kind := range []string{"regular", "local", "dynamic"} {
		for _, scope := range []interceptor.Scope{interceptor.ScopeExecution, interceptor.ScopeRun, interceptor.ScopeWorkflow, interceptor.ScopeNamespace} {
			t.Run(kind+" "+scope.String(), func(t *testing.T) {
				t.Parallel()
				name := map[string]string{"dynamic": "any"}[kind] + "work"
				policy := interceptor.Policy{Scope: scope}
				e := newEnv(t, interceptor.For("work", policy), interceptor.For("work-2", policy), interceptor.ForDynamic(policy))
				var runs counted
				body := func(ctx context.Context, _ string) (int, error) { return runs.ran(ctx), nil }
				e.worker(and(named("work", body), named("work-2", body), func(w worker.Registry) {
					w.RegisterDynamicActivity(func(ctx context.Context, _ converter.EncodedValues) (int, error) { return runs.ran(ctx), nil },
						activity.DynamicRegisterOptions{})
					w.RegisterWorkflow(pairs)
				}))
				var all []pair
				for _, r := range rows {
					if kind == "dynamic" && r.name == "the other kind" {
						continue // a dynamic activity is never local
					}
					p := call(name, r.name).once()
					p.Local = kind == "local"
					all = append(all, r.edit(kind, pair{Name: r.name, First: p, Then: p}))
				}
				var results map[string][2]any
				for _, where := range []string{"", "other workflow"} {
					started, err := e.client.ExecuteWorkflow(e.ctx(), startOn(e), pairs, all, where, results)
					require.NoError(t, err)
					require.NoError(t, started.Get(e.ctx(), &results))
				}
				for _, r := range rows {
					if got, ok := results[r.name]; ok && (got[0] == got[1]) != (scope >= r.same && r.same != never) {
						t.Errorf("%s: the same operation: %t", r.name, got[0] == got[1])
					}
				}
				require.Len(t, results, len(all))
			})
		}
	}
}
