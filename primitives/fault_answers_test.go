package primitives

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// troubles are the answers of a server that is up but cannot serve, as Redis words
// them, and as Redis 6 does when a script meets them.
var troubles = func() []string {
	texts := []string{
		"LOADING Redis is loading the dataset in memory",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"CLUSTERDOWN The cluster is down",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"NOREPLICAS Not enough good replicas to write.",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"READONLY You can't write against a read only replica.",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"ERR max number of clients reached",
	}
	for _, text := range texts[:len(texts)-1] {
		texts = append(texts, "ERR Error running script (call to f_"+strings.Repeat("0a", 20)+
			"): @user_script:12: @user_script: 12: -"+text)
		texts = append(texts, "ERR Error running script (call to f_"+strings.Repeat("0a", 20)+"): @user_script:12: -"+text)
	}
	return texts
}()

func eachTrouble(t *testing.T, test func(t *testing.T, edit func(*redis.Options), reply string)) {
	t.Helper()
	t.Parallel()
	for _, client := range faultyClients {
		for _, text := range troubles {
			name := text
			if i := strings.LastIndex(text, "@user_script"); i >= 0 {
				name = fmt.Sprintf("redis 6, %d marks: %s", strings.Count(text, "@user_script"), text[i:])
			}
			t.Run(client.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				test(t, client.edit, devstack.ErrorReply(text))
			})
		}
	}
}

// A server in trouble for a moment is not noticed: F06.
func TestAnAnswerOfTroubleIsWaitedOut(t *testing.T) {
	eachTrouble(t, func(t *testing.T, edit func(*redis.Options), reply string) {
		r := newRig(t, edit, Options{})
		for _, s := range []script{r.far.scripts.begin, r.far.scripts.complete} {
			r.proxy.Add(devstack.Rule{Match: running(s), Nth: 1, Fault: devstack.ForgeReply(reply)})
		}
		r.doOnce(r.op(), GuardOptions{}, Begun, 0)
	})
}

// A server in trouble for good is unavailable, never busy, and the body is not run:
// F06, C19. That is said within the budget, whatever go-redis would do.
func TestAServerInTroubleIsUnavailable(t *testing.T) {
	eachTrouble(t, func(t *testing.T, edit func(*redis.Options), reply string) {
		r := newRig(t, edit, Options{Timeout: 50 * time.Millisecond})
		r.proxy.Add(devstack.Rule{Match: running(), Fault: devstack.ForgeReply(reply)})
		body := &counted{}
		within(t, 15*time.Second, func() {
			_, err := r.farGuard(GuardOptions{Wait: time.Hour}).Do(r.ctx(), r.op(), body.body)
			require.ErrorIs(t, err, ErrUnavailable)
			require.NotErrorIs(t, err, ErrBusy)
		})
		require.Zero(t, body.runs.Load())
	})
}

// The effect has happened, the memo cannot be stored: the call succeeds, says so,
// and only a strict guard fails it (C18).
func TestAMemoThatCannotBeStoredDoesNotFailTheCall(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		r := newRig(t, nil, Options{})
		r.proxy.Add(devstack.Rule{Match: running(r.far.scripts.complete), Fault: devstack.ForgeReply(devstack.ErrorReply("ERR no retry helps"))})
		body, told := &counted{memo: "m"}, &events{}
		res, err := r.farGuard(GuardOptions{StrictMemo: strict, Observer: told}).Do(r.ctx(), r.op(), body.body)
		if strict {
			require.ErrorIs(t, err, ErrUnavailable)
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, "m", string(res.Memo))
		require.False(t, res.MemoStored)
		require.EqualValues(t, 1, body.runs.Load())
		require.Equal(t, []EventKind{EventBegan, EventMemoFailed}, told.kinds())
	}
}

// Without renewals the body's context ends at the deadline, whatever the server
// answers meanwhile: only a definite answer is a loss before it.
func TestTroubleDuringRenewalsEndsTheBodyAtTheDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, Options{})
	r.proxy.Add(devstack.Rule{Match: running(r.far.scripts.renew), Fault: devstack.ForgeReply(devstack.ErrorReply(troubles[0]))})
	lease, err := r.far.TryAcquire(r.ctx(), "account", LeaseOptions{TTL: 4 * time.Second})
	require.NoError(t, err)
	held, stop := lease.Keep(r.ctx())
	defer stop()
	<-held.Done()
	require.False(t, time.Now().Before(lease.Deadline()), "not before the deadline")
	var lost *LostError
	require.ErrorAs(t, context.Cause(held), &lost)
	require.Equal(t, "deadline", lost.Step)
}
