//go:build unix

package deploy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/interceptor/internal/deploy"
	"github.com/fencekit/fencekit-go/primitives"
)

// attemptLimit is how long Temporal waits for the attempt of a worker that has died.
const attemptLimit = 5 * time.Second

// keyFor is what a call of an activity has by WithKey.
func keyFor(activity string) string {
	if activity == deploy.ByHeader {
		return "order of the test"
	}
	return ""
}

// N06: the first attempt charges on one release and dies, the second runs on another one
// whose struct has other fields. It is the same call: its key is the same, and it takes
// over at once.
func TestDeployInMidRetry(t *testing.T) {
	t.Parallel()
	call, key := []string{deploy.Default, deploy.Resource, deploy.Keyed}, []string{deploy.ByHeader, deploy.Whole, deploy.Business}
	all := append(append([]string{}, call...), key...)
	for _, c := range []struct {
		name, first, second string
		added               payment // what the input has beside the first release's fields
		activities          []string
	}{
		{"a field is added", "release1", "release2", nil, all},
		{"fields of all kinds are added", "release1", "release3", nil, all},
		{"rolled back", "release3", "release1", nil, all},
		{"written by the new one", "release1", "release2", payment{"Note": ""}, all},
		// A release without the field cannot see what it held: a key of the whole input is another one.
		{"rolled back, the field holds something", "release2", "release1", payment{"Note": "a gift"}, call},
		{"the field holds something", "release1", "release2", payment{"Note": "a gift"}, call},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, endlessLease)
			worker := r.spawn(c.first)
			runs := map[string]client.WorkflowRun{}
			for _, activity := range c.activities {
				heard := r.hang(activity)
				runs[activity] = r.start(pay{Activity: activity, Key: keyFor(activity), Timeout: attemptLimit, Payment: of(activity, c.added)})
				await(t, heard, "the first attempt of "+activity)
			}
			require.NoError(t, worker.Kill())
			r.spawn(c.second)
			for _, activity := range c.activities {
				t.Run(activity, func(t *testing.T) {
					receipt, err := r.receipt(runs[activity])
					require.NoError(t, err)
					require.Equal(t, c.second, receipt)
					require.Equal(t, 1, r.charges(activity), r.of(activity))
					last := r.last(activity)
					require.Equal(t, string(primitives.TakenOver), last.Outcome)
					require.Greater(t, last.Token, r.of(activity)[0].Token)
				})
			}
		})
	}
}

// last is the last request of an order.
func (s *service) last(order string) request {
	all := s.of(order)
	return all[len(all)-1]
}

// N07: what one release has done is not done again by another, whichever of them has
// encoded the input, and however the activity is called.
func TestDoneByAnotherRelease(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, first, second string
		zero                payment // fields that the second release has added, at zero
	}{
		{"a field is added", "release1", "release2", payment{"Note": ""}},
		{"fields of all kinds are added", "release1", "release3", payment{"Note": "", "Items": []string{}, "Labels": map[string]string{},
			"Rate": nil, "Address": payment{"Lines": []string{}}, "Urgent": false, "Due": time.Time{}}},
		{"rolled back", "release3", "release1", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, endlessLease)
			calls := []pay{{Activity: deploy.Business}, {Activity: deploy.Whole}, {Activity: deploy.Business, Local: true}, {Activity: deploy.Whole, Local: true}}
			order := func(p pay) string {
				if p.Local {
					return "local " + p.Activity
				}
				return p.Activity
			}
			worker := r.spawn(c.first)
			for _, p := range calls {
				p.Payment = of(order(p), nil)
				receipt, err := r.receipt(r.start(p))
				require.NoError(t, err)
				require.Equal(t, c.first, receipt)
			}
			r.stop(worker)
			r.spawn(c.second)
			for _, p := range calls {
				t.Run(order(p), func(t *testing.T) {
					for _, added := range []payment{nil, c.zero} {
						p.Payment = of(order(p), added)
						receipt, err := r.receipt(r.start(p))
						require.NoError(t, err)
						require.Equal(t, c.first, receipt, "a replay")
					}
					p.Local, p.Payment = !p.Local, of(order(p), nil)
					receipt, err := r.receipt(r.start(p))
					require.NoError(t, err)
					require.Equal(t, c.first, receipt, "a replay on the other path")
					require.Len(t, r.of(order(p)), 1)
				})
			}
		})
	}
}

// N07: a field that holds something is other input. The error says what may be the
// reason, and shows nothing of the input.
func TestFieldThatHoldsSomethingIsOtherInput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, first, second string
		before, after       payment
	}{
		{"a field is added", "release1", "release2", nil, payment{"Note": "a gift"}},
		{"rolled back", "release2", "release1", payment{"Note": "a gift"}, payment{"Note": "a gift"}},
		{"a time", "release1", "release3", nil, payment{"Due": time.Date(2024, 1, 2, 0, 0, 0, 0, time.UTC)}},
		{"a slice", "release1", "release3", nil, payment{"Items": []string{""}}},
		{"a map", "release1", "release3", nil, payment{"Labels": payment{"gift": ""}}},
		{"a pointer to zero", "release1", "release3", nil, payment{"Rate": 0}},
		{"a nested field", "release1", "release3", nil, payment{"Address": payment{"Street": "a gift"}}},
		{"an embedded field", "release1", "release3", nil, payment{"By": "a gift"}},
		{"a flag", "release1", "release3", nil, payment{"Urgent": true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, endlessLease)
			worker := r.spawn(c.first)
			for _, activity := range []string{deploy.Business, deploy.Whole} {
				_, err := r.receipt(r.start(pay{Activity: activity, Payment: of(activity, c.before)}))
				require.NoError(t, err)
			}
			r.stop(worker)
			r.spawn(c.second)
			refused := r.refusal(r.start(pay{Activity: deploy.Business, Payment: of(deploy.Business, c.after)}))
			require.Equal(t, interceptor.TypeMismatch, refused.Type())
			require.NotContains(t, refused.Error(), "gift")
			require.Len(t, r.of(deploy.Business), 1)
			receipt, err := r.receipt(r.start(pay{Activity: deploy.Whole, Payment: of(deploy.Whole, c.after)}))
			require.NoError(t, err)
			require.Equal(t, c.second, receipt, "another operation")
			require.Contains(t, refused.Error(), "shape may have changed", "the reason that a deploy gives")
		})
	}
}

// A local activity runs in the worker of its workflow. When that dies in the body, the
// workflow's next worker, of another release, makes the call again: it waits for the
// lease, for it cannot know that the process is dead, and its key is the same.
func TestLocalActivityOverADeploy(t *testing.T) {
	t.Parallel()
	const ttl = 12 * time.Second // longer than until the next worker asks
	for name, second := range map[string]string{"a field is added": "release2", "fields of all kinds are added": "release3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, ttl)
			worker := r.spawn("release1")
			runs, activities := map[string]client.WorkflowRun{}, []string{deploy.Default, deploy.Resource, deploy.Keyed, deploy.ByHeader, deploy.Whole, deploy.Business}
			for _, activity := range activities {
				heard := r.hang(activity)
				runs[activity] = r.start(pay{Activity: activity, Local: true, Key: keyFor(activity), Payment: of(activity, nil)})
				await(t, heard, "the first attempt of "+activity)
			}
			require.NoError(t, worker.Kill())
			killed := time.Now()
			r.spawn(second)
			for _, activity := range activities {
				t.Run(activity, func(t *testing.T) {
					receipt, err := r.receipt(runs[activity])
					require.NoError(t, err)
					require.Equal(t, second, receipt)
					require.Equal(t, 1, r.charges(activity), r.of(activity))
					last := r.last(activity)
					require.Equal(t, string(primitives.Reclaimed), last.Outcome)
					require.Greater(t, last.Token, r.of(activity)[0].Token)
					require.Greater(t, last.At.Sub(killed), ttl/2, "renewed a third of its time ago at most")
				})
			}
		})
	}
}

// N06: the releases do not agree about the key. While the lease of the attempt before can
// be seen, the next one is refused for good instead of run as another operation.
func TestKeyThatChangedBetweenReleases(t *testing.T) {
	t.Parallel()
	r := newRig(t, endlessLease)
	worker := r.spawn("release1")
	heard := r.hang("x")
	run := r.start(pay{Activity: deploy.Moved, Timeout: attemptLimit, Payment: of("x", nil)})
	await(t, heard, "the first attempt")
	require.NoError(t, worker.Kill())
	r.spawn("release2")
	refused := r.refusal(run)
	require.Equal(t, "fencekit.KeyChanged", refused.Type())
	require.Equal(t, 1, r.charges("x"), r.of("x"))
}
