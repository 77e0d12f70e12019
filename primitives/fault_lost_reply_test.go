package primitives

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Whatever reply or request is lost, a call ends as if nothing had happened: it
// succeeds, nothing happens twice, and nobody waits for himself (B01, B02). The leases
// here outlast the context of the calls by far, so a wait for one shows as an error.
//
// The calls are those of publicCalls, and each command of each call is lost once.
func TestALostReplyOrRequestChangesNothing(t *testing.T) {
	t.Parallel()
	for _, call := range publicCalls {
		t.Run(call.name, func(t *testing.T) {
			t.Parallel()
			count := len(sentBy(t, call))
			for _, client := range faultyClients {
				for n := 1; n <= count; n++ {
					t.Run(fmt.Sprintf("%s/reply %d", client.name, n), func(t *testing.T) {
						r := newRig(t, client.edit, Options{})
						r.faultOf(call, devstack.Rule{Nth: n, Fault: devstack.DropReply()})
					})
					t.Run(fmt.Sprintf("%s/request %d", client.name, n), func(t *testing.T) {
						r := newRig(t, client.edit, Options{})
						r.faultOf(call, devstack.Rule{Nth: n, Fault: devstack.DropRequest()})
					})
				}
			}
		})
	}
}

// The calls above run every script there is, so a new one cannot be forgotten.
func TestEveryScriptMeetsLostReplies(t *testing.T) {
	t.Parallel()
	met := map[string]bool{}
	for _, call := range publicCalls {
		for _, c := range sentBy(t, call) {
			met[c.Args[0]] = true
		}
	}
	for _, s := range everyScript(t) {
		require.True(t, met[s.sha], "no public call of publicCalls runs %s.lua", s.name)
	}
}

// sentBy is which scripts a call runs when all goes well.
func sentBy(t *testing.T, call publicCall) (ran []devstack.Command) {
	t.Helper()
	r := newRig(t, nil, Options{})
	call.run(r)
	for _, c := range r.proxy.Commands() {
		if running()(c) {
			ran = append(ran, c)
		}
	}
	require.NotEmpty(t, ran, call.name)
	return ran
}

// faultOf makes the call under a fault, and sees to it that it was struck.
func (r *rig) faultOf(call publicCall, rule devstack.Rule) {
	r.Helper()
	rule.Match = running()
	hit := r.proxy.Add(rule)
	call.run(r)
	select {
	case <-hit.Struck():
	default:
		r.Fatal("the fault was never met: the test tests nothing")
	}
}

// When no reply ever comes back although all is executed, the call says in time
// that Redis is unavailable, the body does not run, and what the lost begins have
// taken is given back.
func TestWhenEveryReplyIsLostNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	for _, client := range faultyClients {
		t.Run(client.name, func(t *testing.T) {
			t.Parallel()
			// A quarter of it is for giving back: enough on a loaded machine.
			r := newRig(t, client.edit, Options{Timeout: 10 * time.Second})
			r.proxy.Add(devstack.Rule{Match: running(), Fault: devstack.DropReply()})
			op := Op{Key: r.key(), Resource: "account"}
			body := &counted{}
			within(t, 40*time.Second, func() {
				other := make(chan error, 1)
				go func() {
					_, err := r.far.TryAcquire(r.ctx(), "other", LeaseOptions{TTL: time.Hour})
					other <- err
				}()
				_, err := r.farGuard(GuardOptions{LeaseTTL: time.Hour}).Do(r.ctx(), op, body.body)
				require.ErrorIs(t, err, ErrUnavailable)
				require.ErrorIs(t, <-other, ErrUnavailable)
			})
			require.Zero(t, body.runs.Load())
			for _, resource := range []string{"account", "other"} {
				eventually(t, "no lease is left", func() bool {
					info, err := r.store.Inspect(r.ctx(), resource)
					return err == nil && !info.Held
				})
			}
			require.Equal(t, Absent, r.status(op).State)
		})
	}
}

// The result of a body whose complete is executed but never answered is returned,
// and replayed to whoever comes next (B02, C18).
func TestAMemoWhoseRepliesAreAllLostIsStored(t *testing.T) {
	t.Parallel()
	for _, client := range faultyClients {
		t.Run(client.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, client.edit, Options{Timeout: 5 * time.Second})
			r.proxy.Add(devstack.Rule{Match: running(r.far.scripts.complete), Fault: devstack.DropReply()})
			op, body := r.op(), &counted{memo: "paid"}
			res, err := r.farGuard(GuardOptions{}).Do(r.ctx(), op, body.body)
			require.NoError(t, err)
			require.Equal(t, Result{Outcome: Begun, Memo: []byte("paid"), Token: res.Token}, res)

			res, err = r.guard(GuardOptions{}).Do(r.ctx(), op, body.body)
			require.NoError(t, err)
			require.Equal(t, Replayed, res.Outcome)
			require.Equal(t, "paid", string(res.Memo))
			require.EqualValues(t, 1, body.runs.Load())
		})
	}
}

// A lost reply of a renewal, or of all renewals for a while, is no lost lease (B08).
func TestALostRenewalIsRepeated(t *testing.T) {
	t.Parallel()
	for _, client := range faultyClients {
		for name, fault := range map[string]devstack.Fault{"reply": devstack.DropReply(), "request": devstack.DropRequest()} {
			t.Run(client.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, client.edit, Options{})
				renewals := running(r.far.scripts.renew)
				hits := []*devstack.Hit{
					r.proxy.Add(devstack.Rule{Match: renewals, Nth: 1, Fault: fault}),
					r.proxy.Add(devstack.Rule{Match: renewals, Nth: 3, Fault: fault}),
				}
				after := r.proxy.Add(devstack.Rule{Match: renewals, Nth: 5, Fault: devstack.Call(func() {})})
				_, err := r.farGuard(GuardOptions{LeaseTTL: 20 * time.Second, RenewEvery: 20 * time.Millisecond}).
					Do(r.ctx(), r.op(), func(ctx context.Context) ([]byte, error) {
						for _, hit := range append(hits, after) {
							select {
							case <-hit.Struck():
							case <-ctx.Done():
								return nil, context.Cause(ctx)
							}
						}
						return nil, nil
					})
				require.NoError(t, err)
			})
		}
	}
}

func (r *rig) status(op Op) Record {
	r.Helper()
	record, err := r.store.Status(r.ctx(), op)
	require.NoError(r, err)
	return record
}

func (r *rig) inspect(resource string) LeaseInfo {
	r.Helper()
	info, err := r.store.Inspect(r.ctx(), resource)
	require.NoError(r, err)
	return info
}

// held says that l is the only grant of its resource: token and lease are as
// stored, and no other token was minted.
func (r *rig) held(token fence.Token) {
	r.Helper()
	info := r.inspect(token.Resource)
	require.True(r, info.Held)
	require.Equal(r, token.Value, info.Token, "the token returned is the token stored")
	require.Equal(r, token.Value, info.Last, "one grant, one token")
}

var errBody = errors.New("the body failed")
