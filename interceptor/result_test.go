package interceptor_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
)

// N18: redaction before the guard reads results by the helper: of a run, of a replay, and of
// an activity without a guard; encrypted for one workflow alone, local and regular. What it
// changes, Temporal gets; the stored result stays whole, and so does the next replay.
func TestAnInterceptorBeforeTheGuardReadsResults(t *testing.T) {
	t.Parallel()
	for _, local := range []bool{false, true} {
		for name, data := range map[string]converter.DataConverter{
			"plain": converter.GetDefaultDataConverter(), "encrypted": newSealing(false).converter(), "bound": testSealing.converter(),
		} {
			t.Run(map[bool]string{true: "local, "}[local]+name, func(t *testing.T) {
				t.Parallel()
				e := newEnv(t, interceptor.For("guarded", fixed))
				e.dial(data)
				k := e.interceptor()
				var (
					mu   sync.Mutex
					seen []receipt
				)
				var runs atomic.Int64
				pay := func(context.Context) (*receipt, error) {
					runs.Add(1)
					return &receipt{ID: 42, Notes: []string{"jo"}}, nil
				}
				e.workerWith(k, and(named("guarded", pay), named("plain", pay)), before(&around{
					do: func(ctx context.Context, in *executeInput, next executeNext) (any, error) {
						result, err := next(ctx, in)
						if err != nil {
							return nil, err
						}
						r := receipt{ID: 7, Notes: []string{"left over"}}
						if err := k.DecodeResult(ctx, result, &r); err != nil {
							return nil, err
						}
						mu.Lock()
						seen = append(seen, r)
						mu.Unlock()
						r.Notes = []string{"redacted"}
						return r, nil
					}}))
				for _, activity := range []string{"plain", "guarded", "guarded"} {
					p := call(activity)
					p.Local = local
					p.Options.RetryPolicy = &temporal.RetryPolicy{MaximumAttempts: 1}
					out, err := e.run(p)
					require.NoError(t, err)
					require.Equal(t, map[string]any{"ID": 42.0, "Notes": []any{"redacted"}}, out)
				}
				require.EqualValues(t, 2, runs.Load())
				whole := receipt{ID: 42, Notes: []string{"jo"}}
				require.Equal(t, []receipt{whole, whole, whole}, seen)
			})
		}
	}
}

// N18: behind the guard an interceptor has the body's own value, and what it makes of it is
// what is stored, sent and replayed.
func TestAnInterceptorBehindTheGuardChangesWhatIsStored(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("pay", fixed))
	e.worker(named("pay", func(context.Context) (*receipt, error) { return &receipt{Notes: []string{"jo@example.test"}}, nil }),
		behind(&around{do: func(ctx context.Context, in *executeInput, next executeNext) (any, error) {
			result, err := next(ctx, in)
			r, ok := result.(*receipt)
			if !ok {
				return nil, temporal.NewNonRetryableApplicationError("not the body's value", "Test", err)
			}
			r.Notes = []string{"redacted"}
			return r, err
		}}))
	for range 2 {
		out, err := e.run(call("pay"))
		require.NoError(t, err)
		require.Equal(t, map[string]any{"ID": 0.0, "Notes": []any{"redacted"}}, out)
	}
	require.Contains(t, e.stored(), "redacted")
	require.NotContains(t, e.stored(), "jo@example.test")
}

// inActivity calls fn in an activity of the SDK's test environment.
func inActivity(t *testing.T, fn func(ctx context.Context, k *interceptor.Interceptor)) {
	t.Helper()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{}))
	k := e.interceptor()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(e.logs)
	a := suite.NewTestActivityEnvironment()
	a.SetWorkerOptions(worker.Options{Interceptors: []sdk.WorkerInterceptor{k}})
	a.RegisterActivityWithOptions(func(ctx context.Context) error { fn(ctx, k); return nil }, registerAs("work"))
	_, err := a.ExecuteActivity("work")
	require.NoError(t, err)
}

// N18: whatever a body may return, it is read the same plain and encoded.
func TestDecodeResultReadsPlainAndEncodedAlike(t *testing.T) {
	t.Parallel()
	number := int64(1<<53 + 1)
	inActivity(t, func(ctx context.Context, k *interceptor.Interceptor) {
		for name, c := range map[string]struct{ result, into, want any }{
			"text":                 {"paid", new(string), "paid"},
			"2^53+1":               {number, new(int64), number},
			"a pointer":            {&number, new(int64), number},
			"into a pointer":       {number, new(*int64), &number},
			"bytes":                {[]byte{0, 255}, new([]byte), []byte{0, 255}},
			"into another type":    {receipt{ID: 1}, new(map[string]any), map[string]any{"ID": 1.0, "Notes": nil}},
			"into any":             {"paid", new(any), "paid"},
			"a nil pointer":        {(*receipt)(nil), &receipt{ID: 9}, receipt{}},
			"nothing":              {nil, &receipt{ID: 9}, receipt{}},
			"payloads of nothing":  {(*commonpb.Payloads)(nil), &receipt{ID: 9}, receipt{}},
			"fields that are left": {map[string]int{"ID": 1}, &receipt{ID: 9, Notes: []string{"left over"}}, receipt{ID: 1}},
			"raw":                  {rawJSON(`"paid"`), new(string), "paid"},
			"into raw":             {"paid", new(converter.RawValue), rawJSON(`"paid"`)},
		} {
			encoded, err := converter.GetDefaultDataConverter().ToPayloads(c.result)
			require.NoError(t, err, name)
			if p, ok := c.result.(*commonpb.Payloads); ok || c.result == nil {
				encoded = p
			}
			for _, result := range []any{c.result, encoded} {
				require.NoError(t, k.DecodeResult(ctx, result, c.into), name)
				require.Equal(t, c.want, reflect.ValueOf(c.into).Elem().Interface(), name)
			}
		}
		var message structpb.Value
		require.NoError(t, k.DecodeResult(ctx, structpb.NewStringValue("paid"), &message))
		require.Equal(t, "paid", message.GetStringValue())
	})
}

func rawJSON(text string) converter.RawValue {
	return converter.NewRawValue(&commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(converter.MetadataEncodingJSON)}, Data: []byte(text)})
}

// N18: what cannot be read is said by type, and never shown.
func TestDecodeResultRefuses(t *testing.T) {
	t.Parallel()
	const secret = "jo@example.test"
	inActivity(t, func(ctx context.Context, k *interceptor.Interceptor) {
		two, err := converter.GetDefaultDataConverter().ToPayloads(secret, secret)
		require.NoError(t, err)
		var number int
		for name, c := range map[string]struct {
			ctx          context.Context
			result, into any
			text         string
			is           error
		}{
			"no pointer":      {ctx, secret, number, "into: is not a pointer to a value", primitives.ErrInvalid},
			"nil pointer":     {ctx, secret, (*int)(nil), "into: is not a pointer to a value", primitives.ErrInvalid},
			"nothing":         {ctx, secret, nil, "into: is not a pointer to a value", primitives.ErrInvalid},
			"no activity":     {context.Background(), secret, &number, "ctx: is not that of an activity", primitives.ErrInvalid},
			"another type":    {ctx, secret, &number, "fencekit: the result of activity work: it cannot be decoded as int", converter.ErrUnableToDecode},
			"two values":      {ctx, two, new(string), "fencekit: the result of activity work: it is 2 values, not one", nil},
			"no encoding":     {ctx, make(chan string), new(string), "fencekit: the result of activity work: chan string cannot be encoded", converter.ErrUnableToEncode},
			"its own refusal": {ctx, shy{secret}, new(string), "fencekit: the result of activity work: interceptor_test.shy cannot be encoded", converter.ErrUnableToEncode},
		} {
			err := k.DecodeResult(c.ctx, c.result, c.into)
			require.ErrorContains(t, err, c.text, name)
			require.NotContains(t, err.Error(), secret, name)
			if c.is != nil {
				require.ErrorIs(t, err, c.is, name)
			}
		}
		require.Zero(t, number)
	})
}

// shy is a value that shows itself only in the error of its encoding.
type shy struct{ text string }

func (s shy) MarshalJSON() ([]byte, error) { return nil, errors.New(s.text) }
