package interceptor

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives"
)

// goldenPending is what Pending has returned, but for the digits of the key. The texts
// lie about for days.
const goldenPending = `{"version":"fencekit/pending/1","task_token":"dG9rZW4=",` +
	`"claim":{"key":"v1:a:` + zeros + `","resource":"r","nonce":"00000000000000000000000000000000","token":"7","holder":"worker=x"},` +
	`"dynamic":true,"namespace":"default","workflow":"w","workflow_type":"W","activity_type":"a","task_queue":"q"}`

const zeros = "0000000000000000000000000000000000000000000000000000000000000000"

// G02: a change of the names or of the version is a breaking release: whoever has such a
// text could no longer complete the activity.
func TestPendingIsAWireFormat(t *testing.T) {
	t.Parallel()
	var parts struct{ Claim json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(goldenPending), &parts))
	made := pending{
		Version: pendingVersion, TaskToken: []byte("token"), Claim: parts.Claim, Dynamic: true, Namespace: "default",
		Workflow: "w", WorkflowType: "W", ActivityType: "a", TaskQueue: "q",
	}
	text, err := json.Marshal(made)
	require.NoError(t, err)
	require.Equal(t, goldenPending, string(text))

	k := unit(t, Policy{})
	read, plan, err := k.parsePending([]byte(goldenPending))
	require.NoError(t, err)
	require.Equal(t, made, read)
	require.Same(t, k.dynamic, plan)
	claim, err := plan.guard.ParseClaim(read.Claim)
	require.NoError(t, err)
	require.EqualValues(t, 7, claim.Token().Value)
	again, err := claim.MarshalText()
	require.NoError(t, err)
	require.Equal(t, string(parts.Claim), string(again), "the names in the claim")
}

// What is not such a text is refused before Redis or Temporal is asked. Control: the text
// itself gets as far as to Redis, which is not there.
func TestCompleteRefusesWhatPendingDidNotReturn(t *testing.T) {
	t.Parallel()
	k := unit(t, Policy{})
	complete := func(text string) error { return k.Complete(context.Background(), nil, []byte(text), "x", nil) }
	for name, c := range map[string]struct{ text, rule string }{
		"malformed":              {goldenPending[:len(goldenPending)-1], "is not what Pending returned"},
		"empty":                  {"", "is not what Pending returned"},
		"another type":           {"[]", "is not what Pending returned"},
		"null":                   {"null", "version"},
		"no version":             {"{}", "version"},
		"another version":        {strings.Replace(goldenPending, "pending/1", "pending/2", 1), `"fencekit/pending/2"`},
		"unguarded":              {replaced(`"dynamic":true,`, "", `"activity_type":"a"`, `"activity_type":"b"`), `activity "b"`},
		"another activity's":     {strings.Replace(goldenPending, "v1:a:", "v1:b:", 1), "another activity"},
		"another dynamic one's":  {strings.Replace(goldenPending, `"activity_type":"a"`, `"activity_type":"b"`, 1), "another activity"},
		"another of its guards'": {replaced(`"dynamic":true,`, "", "v1:a:", "v1:b:"), "another activity"},
	} {
		err := complete(c.text)
		var o *primitives.OptionError
		require.ErrorAs(t, err, &o, name)
		require.Equal(t, "pending", o.Field, name)
		require.Contains(t, o.Rule, c.rule, name)
	}
	require.ErrorIs(t, complete(goldenPending), primitives.ErrUnavailable)
}

func replaced(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(goldenPending) }
