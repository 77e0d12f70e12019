package interceptor

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
)

var updateMemos = flag.Bool("update-memos", false, "rewrite the golden file of the interceptor's memos")

const goldenMemos = "testdata/memos.json"

// bindingConverter says that it binds its payloads to an activity. It does not: what the
// head of a memo says is all that these tests look at.
type bindingConverter struct {
	converter.DataConverter

	to *converter.ActivitySerializationContext
}

func (b bindingConverter) WithSerializationContext(sc converter.SerializationContext) converter.DataConverter {
	to := sc.(converter.ActivitySerializationContext)
	return bindingConverter{b.DataConverter, &to}
}

// memoCodec is the codec of the activity that ofWorkflow has scheduled, or of the same
// as a local one.
func memoCodec(binds, local bool) codec {
	data := converter.GetDefaultDataConverter()
	if binds {
		data = bindingConverter{DataConverter: data}
	}
	return bound(data, temporal.GetDefaultFailureConverter(), converter.ActivitySerializationContext{
		Namespace: "default", WorkflowID: "w", WorkflowType: "W", ActivityType: "a", TaskQueue: "q", IsLocal: local,
	})
}

type memoCase struct {
	codec   codec
	result  any
	failure error
}

func memoCases() map[string]memoCase {
	declined := temporal.NewNonRetryableApplicationError("declined", "Declined", nil, "card", 7)
	plain, bound := memoCodec(false, false), memoCodec(true, false)
	return map[string]memoCase{
		"void":                        {codec: plain},
		"result":                      {codec: plain, result: charge{Order: "A1", Amount: 1<<53 + 1}},
		"failure":                     {codec: plain, failure: declined},
		"void, bound":                 {codec: bound},
		"result, bound":               {codec: bound, result: "paid"},
		"result of a local, bound":    {codec: memoCodec(true, true), result: "paid"},
		"failure, bound":              {codec: bound, failure: declined},
		"bytes, as the SDK sees them": {codec: plain, result: []byte{0, 1, 255}},
	}
}

func (m memoCase) memo(t *testing.T) []byte {
	t.Helper()
	if m.failure != nil {
		memo, ok := m.codec.encodeFailure(m.failure)
		require.True(t, ok)
		return memo
	}
	_, memo, err := m.codec.encode(m.result)
	require.NoError(t, err)
	return memo
}

// requireFrom asserts that the memo, as an earlier release has written it, is read as
// what it was made from.
func (m memoCase) requireFrom(t *testing.T, memo []byte) {
	t.Helper()
	_, from, _, err := parseMemo(memo)
	require.NoError(t, err)
	if m.codec.binds() {
		require.Equal(t, &m.codec.context, from)
	} else {
		require.Nil(t, from)
	}
	if m.failure != nil {
		got, err := m.codec.decodeFailure(memo)
		require.NoError(t, err)
		m.requireFailure(t, got)
		return
	}
	payloads, err := m.codec.decode(memo)
	require.NoError(t, err)
	want, _, err := m.codec.encode(m.result)
	require.NoError(t, err)
	require.Equal(t, want.String(), payloads.String())
}

func (m memoCase) requireFailure(t *testing.T, err error) {
	t.Helper()
	var a *temporal.ApplicationError
	require.ErrorAs(t, err, &a)
	var card string
	var n int
	require.NoError(t, a.Details(&card, &n))
	require.Equal(t, []any{"declined", "Declined", "card", 7, true}, []any{a.Message(), a.Type(), card, n, a.NonRetryable()})
}

// G02: a change of any of these is a breaking release: what is done could not be read.
// Rewrite the file with -update-memos, and say so under Storage in CHANGELOG.md.
func TestMemosAreThoseOfTheGoldenFile(t *testing.T) {
	t.Parallel()
	cases, got := memoCases(), map[string]string{}
	for name, c := range cases {
		got[name] = hex.EncodeToString(c.memo(t))
	}
	if *updateMemos {
		text, err := json.MarshalIndent(got, "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(goldenMemos, append(text, '\n'), 0o600))
	}
	text, err := os.ReadFile(goldenMemos)
	require.NoError(t, err)
	var want map[string]string
	require.NoError(t, json.Unmarshal(text, &want))
	require.Equal(t, want, got)
	for name, text := range want {
		memo, err := hex.DecodeString(text)
		require.NoError(t, err)
		cases[name].requireFrom(t, memo)
	}
}

// byValue is a data converter that people give by value, and that Go cannot compare. It
// is aware of no context, so what it has encoded is bound to nothing.
type byValue struct {
	converter.DataConverter

	_ []func()
}

// A converter that cannot be compared must not pass for one that binds: its payloads are
// replayed as they are. Control: one that binds has them encoded anew.
func TestAConverterThatCannotBeComparedReplaysVerbatim(t *testing.T) {
	t.Parallel()
	there := converter.ActivitySerializationContext{WorkflowID: "there", ActivityType: "a"}
	here := converter.ActivitySerializationContext{WorkflowID: "here", ActivityType: "a"}
	failures := temporal.GetDefaultFailureConverter()
	for name, c := range map[string]struct {
		data  converter.DataConverter
		binds bool
	}{
		"by value": {byValue{DataConverter: unread{converter.GetDefaultDataConverter()}}, false},
		"binding":  {bindingConverter{DataConverter: unread{converter.GetDefaultDataConverter()}}, true},
	} {
		payloads, memo, err := bound(c.data, failures, there).encode("paid")
		require.NoError(t, err, name)
		_, from, _, err := parseMemo(memo)
		require.NoError(t, err, name)
		require.Equal(t, c.binds, from != nil, name)
		got, err := bound(c.data, failures, here).decode(memo)
		if c.binds {
			require.ErrorIs(t, err, errUnread, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, payloads.String(), got.String(), name)
	}
}

var errUnread = errors.New("there is nothing to decode")

// unread is a converter that only encodes.
type unread struct{ converter.DataConverter }

func (unread) FromPayloads(*commonpb.Payloads, ...any) error { return errUnread }
