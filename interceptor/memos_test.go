package interceptor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/fencekit/fencekit-go/interceptor"
)

// fixed is a business key for activities that take no input.
var fixed = interceptor.Policy{Scope: interceptor.ScopeNamespace, Key: interceptor.KeyFromArgs(func([]any) any { return "the only one" })}

func memoising(p interceptor.Policy) interceptor.Policy {
	p.MemoiseFailures = true
	return p
}

type receipt struct {
	ID    int64
	Notes []string
}

type empty struct{}

// C14, C15: what activities return, by name.
var bodies = map[string]any{
	"only an error":     func(context.Context) error { return nil },
	"nil pointer":       func(context.Context) (*receipt, error) { return nil, nil }, //nolint:nilnil // the point
	"no text":           func(context.Context) (string, error) { return "", nil },
	"zero":              func(context.Context) (int, error) { return 0, nil },
	"false":             func(context.Context) (bool, error) { return false, nil },
	"nil slice":         func(context.Context) ([]string, error) { return nil, nil },
	"empty slice":       func(context.Context) ([]string, error) { return []string{}, nil },
	"empty struct":      func(context.Context) (empty, error) { return empty{}, nil },
	"nil interface":     func(context.Context) (any, error) { return nil, nil }, //nolint:nilnil // the point
	"2^53+1":            func(context.Context) (int64, error) { return 1<<53 + 1, nil },
	"bytes":             func(context.Context) ([]byte, error) { return []byte{0, 1, 255}, nil },
	"no bytes":          func(context.Context) ([]byte, error) { return []byte{}, nil },
	"time with a zone":  func(context.Context) (time.Time, error) { return noon, nil },
	"map":               func(context.Context) (map[string]any, error) { return map[string]any{"b": 1, "a": []any{nil}}, nil },
	"proto":             func(context.Context) (*structpb.Value, error) { return structpb.NewStringValue("x"), nil },
	"pointer to struct": func(context.Context) (*receipt, error) { return &receipt{1<<53 + 1, nil}, nil },
	"raw": func(context.Context) (converter.RawValue, error) {
		return converter.NewRawValue(&commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("own"), "x": []byte("y")}, Data: []byte("z")}), nil
	},
}

var noon = time.Date(2026, 5, 6, 12, 0, 0, 1, time.FixedZone("", 3600))

// C14, C15: a result arrives as it would without the kit, also when it is replayed:
// the payloads in history have the same bytes.
func TestResultsAreReplayedByteForByte(t *testing.T) {
	t.Parallel()
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("guarded", fixed))
			w, seen := e.attend()
			e.worker(and(named("guarded", body), named("plain", body)), seen)
			var got []*commonpb.Payloads
			for _, activity := range []string{"plain", "guarded", "guarded"} {
				run := e.start(call(activity))
				_ = run.Get(e.ctx(), nil) // a raw payload of one's own encoding has no Go value
				got = append(got, e.results(run)...)
			}
			require.Len(t, got, 3)
			require.True(t, proto.Equal(got[0], got[1]), "first: %s instead of %s", got[1], got[0])
			require.True(t, proto.Equal(got[0], got[2]), "replayed: %s instead of %s", got[2], got[0])
			require.Equal(t, 1, w.kinds("completed"))
			require.Equal(t, 2, w.kinds("began"))
		})
	}
}

// C15: a type that only a converter of one's own knows is never decoded for a replay.
func TestATypeOfACustomConverter(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("make", fixed))
	e.dial(converter.NewCompositeDataConverter(converter.NewNilPayloadConverter(), spelled{}, converter.NewJSONPayloadConverter()))
	var runs counted
	e.worker(and(named("make", func(ctx context.Context) (word, error) { runs.ran(ctx); return word{"abc"}, nil })))
	for range 2 {
		run := e.start(call("make"))
		_ = run.Get(e.ctx(), nil)
		require.Equal(t, "spelled", string(e.results(run)[0].Payloads[0].Metadata["encoding"]))
		require.Equal(t, "a-b-c", string(e.results(run)[0].Payloads[0].Data))
	}
	require.Equal(t, 1, runs.runs())
}

type word struct{ text string }

// spelled is a converter of words.
type spelled struct{ converter.PayloadConverter }

func (spelled) Encoding() string { return "spelled" }

func (spelled) ToPayload(v any) (*commonpb.Payload, error) {
	w, ok := v.(word)
	if !ok {
		return nil, nil //nolint:nilnil // for the next converter
	}
	return &commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("spelled")}, Data: []byte(strings.Join(strings.Split(w.text, ""), "-"))}, nil
}

func (spelled) FromPayload(p *commonpb.Payload, into any) error {
	if a, ok := into.(*any); ok {
		*a = string(p.Data)
	}
	return nil
}

func (spelled) ToString(p *commonpb.Payload) string { return string(p.Data) }

// D19: through an encrypting converter nothing is readable in Redis or in history, and
// the very ciphertext of the first result is replayed.
func TestEncryptedResults(t *testing.T) {
	t.Parallel()
	const secret = "IBAN XX00 1234"
	declined := temporal.NewNonRetryableApplicationError(secret, "Declined", nil, secret)
	e := newEnv(t, interceptor.For("pay", fixed), interceptor.For("decline", memoising(fixed)))
	e.dial(newSealing(false).converter())
	e.dialFailures(temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{
		DataConverter: e.opts.DataConverter, EncodeCommonAttributes: true}))
	var runs counted
	e.worker(and(named("pay", func(ctx context.Context, _ string) (string, error) { runs.ran(ctx); return secret, nil }),
		named("decline", func(ctx context.Context, _ string) error { runs.ran(ctx); return declined })))
	var got []*commonpb.Payloads
	for range 2 {
		run := e.start(call("pay", secret))
		var out string
		require.NoError(t, run.Get(e.ctx(), &out))
		require.Equal(t, secret, out)
		got = append(got, e.results(run)...)
		require.NotContains(t, e.written(run), "XX00")

		run = e.start(call("decline", secret))
		var details string
		require.NoError(t, failure(t, run.Get(e.ctx(), nil)).Details(&details))
		require.Equal(t, secret, details)
		require.NotContains(t, e.written(run), "XX00")
	}
	require.True(t, proto.Equal(got[0], got[1]), "the nonce is random, so only the first ciphertext is equal to itself")
	require.Equal(t, 2, runs.runs())
	require.NotContains(t, e.stored(), "XX00")
	require.Contains(t, e.stored(), "binary/sealed", "or the test has looked at nothing")
}

// D19, negative control: without word of the converter, the memo is in plain text, as
// the documentation says.
func TestWithoutWordOfTheConverterMemosArePlain(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("pay", fixed))
	e.dial(newSealing(false).converter())
	e.opts.DataConverter = nil
	e.worker(and(named("pay", func(context.Context) (string, error) { return "IBAN XX00", nil })))
	e.steps(call("pay"))
	require.Contains(t, e.stored(), "IBAN XX00")
}

// D19: the SDK's default failure converter shows details in history, also beside a
// data converter that encrypts. That is no reason to have them in Redis, and a replay
// must be as readable to the workflow as the first time.
func TestFailuresBesideAnEncryptingConverter(t *testing.T) {
	t.Parallel()
	const secret = "IBAN XX00 1234"
	e := newEnv(t, interceptor.For("decline", memoising(fixed)))
	e.dial(newSealing(false).converter())
	var runs counted
	e.worker(and(named("decline", func(ctx context.Context) error {
		runs.ran(ctx)
		return temporal.NewNonRetryableApplicationError(secret, "Declined", nil, secret)
	})))
	for range 2 {
		var details string
		f := failure(t, e.start(call("decline")).Get(e.ctx(), nil))
		require.NoError(t, f.Details(&details))
		require.Equal(t, []string{secret, secret}, []string{details, f.Message()})
	}
	require.Equal(t, 1, runs.runs())
	require.NotContains(t, e.stored(), "XX00")
}

// bindingFailures binds what a failure holds to its context.
type bindingFailures struct{ converter.FailureConverter }

func (bindingFailures) WithSerializationContext(sc converter.SerializationContext) converter.FailureConverter {
	return failuresThrough(binding{testSealing}.WithSerializationContext(sc))
}

var testSealing = newSealing(true)

func failuresThrough(codec converter.PayloadCodec) bindingFailures {
	return bindingFailures{temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{
		EncodeCommonAttributes: true, DataConverter: converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), codec)})}
}

// A codec that binds its ciphertext to a workflow: what one workflow has stored is
// decoded and sealed anew for the next, results and failures alike.
func TestResultsBoundToAnotherWorkflow(t *testing.T) {
	t.Parallel()
	for name, failures := range map[string]converter.FailureConverter{
		"the SDK's failures": nil,
		"its failures, unbound": temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{
			EncodeCommonAttributes: true, DataConverter: testSealing.converter()}),
		"bound failures": failuresThrough(binding{testSealing}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("pay", fixed), interceptor.For("void", fixed), interceptor.For("decline", memoising(fixed)))
			e.dial(testSealing.converter())
			e.dialFailures(failures)
			var runs counted
			cause := temporal.NewNonRetryableApplicationError("cause", "Cause", temporal.NewCanceledError("inner details"), "cause details")
			e.worker(and(named("pay", func(ctx context.Context) (receipt, error) { runs.ran(ctx); return receipt{ID: 42}, nil }),
				named("void", func(ctx context.Context) error { runs.ran(ctx); return nil }),
				named("decline", func(ctx context.Context) error {
					runs.ran(ctx)
					return temporal.NewNonRetryableApplicationError("declined", "Declined", cause, "details", 42)
				})))
			var got []*commonpb.Payloads
			for range 2 {
				run := e.start(call("pay"))
				var out receipt
				require.NoError(t, run.Get(e.ctx(), &out))
				require.Equal(t, receipt{ID: 42}, out)
				got = append(got, e.results(run)...)
				require.NoError(t, e.start(call("void")).Get(e.ctx(), nil))
				requireDeclined(t, failuresOf(e, call("decline")))
			}
			require.Equal(t, 3, runs.runs())
			require.False(t, proto.Equal(got[0], got[1]), "sealed anew")
			require.NotContains(t, e.stored(), "details")
		})
	}
}

// failuresOf is how the workflow itself reads the failure of an activity.
func failuresOf(e *env, p plan) (seen seenFailure) {
	e.Helper()
	run, err := e.client.ExecuteWorkflow(e.ctx(), client.StartWorkflowOptions{TaskQueue: e.queue}, readFailure, p)
	require.NoError(e, err)
	require.NoError(e, run.Get(e.ctx(), &seen))
	return seen
}

type seenFailure struct {
	Message, Type, Details, Cause, Inner string
	Number                               int
}

// readFailure is a workflow that reads everything in an activity's failure.
func readFailure(ctx workflow.Context, p plan) (seen seenFailure, err error) {
	_, err = runOne(ctx, p)
	var a, cause *temporal.ApplicationError
	var canceled *temporal.CanceledError
	if !errors.As(err, &a) || !errors.As(a.Unwrap(), &cause) || !errors.As(cause, &canceled) {
		return seen, err
	}
	seen.Message, seen.Type = a.Message(), a.Type()
	return seen, errors.Join(a.Details(&seen.Details, &seen.Number), cause.Details(&seen.Cause), canceled.Details(&seen.Inner))
}

func requireDeclined(t *testing.T, seen seenFailure) {
	t.Helper()
	require.Equal(t, seenFailure{"declined", "Declined", "details", "cause details", "inner details", 42}, seen)
}

// C17: a result above the limit is not kept, and not made again: the next call is told
// its size and the limit.
func TestAResultAboveTheLimit(t *testing.T) {
	t.Parallel()
	limited := fixed
	limited.MaxMemo = 1 << 10
	e := newEnv(t, interceptor.For("large", fixed), interceptor.For("small", limited))
	var runs counted
	of := func(size int) func(context.Context) ([]byte, error) {
		return func(ctx context.Context) ([]byte, error) { runs.ran(ctx); return make([]byte, size), nil }
	}
	e.worker(and(named("large", of(3<<20)), named("small", of(2<<10))))
	_, err := e.run(call("large").once())
	require.Error(t, err, "Temporal itself takes no such result")
	_, err = e.run(call("large"))
	f := failure(t, err)
	require.Equal(t, interceptor.TypeResultUnavailable, f.Type())
	require.True(t, f.NonRetryable())
	require.Contains(t, f.Error(), "3145811", "the size")
	require.Contains(t, f.Error(), "2097152", "the limit")
	require.Equal(t, 1, runs.runs())

	_, err = e.run(call("small"))
	require.NoError(t, err, "the first caller has it")
	_, err = e.run(call("small"))
	require.Equal(t, interceptor.TypeResultUnavailable, failure(t, err).Type())
	require.Contains(t, err.Error(), "1024")
	require.Equal(t, 2, runs.runs())
	require.Less(t, len(e.stored()), 4<<10, "neither lies in Redis")
}

// A memo that cannot be given back is an error of its own; the body does not run again.
func TestAnUndecodableMemo(t *testing.T) {
	t.Parallel()
	for name, memo := range map[string]string{
		"garbage": "\xff\xff", "nothing": "", "another program's": string(mustMarshal(t, &commonpb.Payloads{
			Payloads: []*commonpb.Payload{{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte("1")}}})),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("pay", fixed))
			var runs counted
			e.worker(and(named("pay", func(ctx context.Context) (int, error) { return runs.ran(ctx), nil })))
			e.steps(call("pay"))
			require.Len(t, e.records(), 1)
			require.NoError(t, e.rdb.HSet(e.ctx(), e.records()[0], "memo", memo).Err())
			_, err := e.run(call("pay"))
			require.Equal(t, interceptor.TypeMemoUndecodable, failure(t, err).Type())
			require.True(t, failure(t, err).NonRetryable())
			require.Equal(t, 1, runs.runs())
		})
	}
}

func mustMarshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	return b
}
