package interceptor

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/fencekit/fencekit-go/primitives"
)

// converters are those of the worker's client: given in the options, or found by the
// plugin. The SDK shows them to no interceptor.
type converters struct {
	data    converter.DataConverter
	failure converter.FailureConverter

	mu    sync.Mutex
	found *client.Options
}

// find takes the converters of a client, unless they were given. Two clients that
// encode differently cannot share an interceptor: one of them would be replayed the
// other's payloads.
func (c *converters) find(o *client.Options) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found == nil {
		c.found = &client.Options{DataConverter: o.DataConverter, FailureConverter: o.FailureConverter}
		return nil
	}
	for _, pair := range []struct {
		field       string
		given       bool
		first, this any
	}{
		{"DataConverter", c.data != nil, c.found.DataConverter, o.DataConverter},
		{"FailureConverter", c.failure != nil, c.found.FailureConverter, o.FailureConverter},
	} {
		if !pair.given && !same(pair.first, pair.this) {
			return &primitives.OptionError{Field: pair.field,
				Rule: "differs between two clients that share the plugin: give it in Options, or give each client an interceptor of its own"}
		}
	}
	return nil
}

// same compares two converters by identity.
func same(a, b any) bool {
	t := reflect.TypeOf(a)
	return t == reflect.TypeOf(b) && (t == nil || t.Comparable() && a == b)
}

func (c *converters) get() (data converter.DataConverter, failure converter.FailureConverter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, failure = c.data, c.failure
	if c.found != nil {
		if data == nil {
			data = c.found.DataConverter
		}
		if failure == nil {
			failure = c.found.FailureConverter
		}
	}
	if data == nil {
		data = converter.GetDefaultDataConverter()
	}
	if failure == nil {
		failure = temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{DataConverter: data})
	}
	return data, failure
}

// codec turns results into memos and back, for one activity.
type codec struct {
	data    converter.DataConverter
	failure converter.FailureConverter
	plain   converter.DataConverter // data before it was bound to this activity
	context converter.ActivitySerializationContext
}

// bind binds the converters to an activity as the SDK does.
func (c *converters) bind(ctx context.Context, info activity.Info) codec {
	data, failure := c.get()
	if aware, ok := data.(workflow.ContextAware); ok {
		data = aware.WithContext(ctx)
	}
	return bound(data, failure, converter.ActivitySerializationContext{
		Namespace: info.Namespace, WorkflowID: info.WorkflowExecution.ID, WorkflowType: workflowType(info),
		ActivityType: info.ActivityType.Name, TaskQueue: info.TaskQueue, IsLocal: info.IsLocalActivity,
	})
}

func bound(data converter.DataConverter, failure converter.FailureConverter, sc converter.ActivitySerializationContext) codec {
	return codec{
		data:    converter.WithDataConverterSerializationContext(data, sc),
		failure: converter.WithFailureConverterSerializationContext(failure, sc),
		plain:   data, context: sc,
	}
}

func workflowType(info activity.Info) string {
	if info.WorkflowType == nil { // nobody's activity
		return ""
	}
	return info.WorkflowType.Name
}

// encode encodes a result as the SDK does, and as a memo. No result is no payloads.
func (c codec) encode(result any) (payloads *commonpb.Payloads, memo []byte, err error) {
	if result == nil {
		memo, err = c.memo(memoVoid, nil)
		return nil, memo, err
	}
	payloads, ok := result.(*commonpb.Payloads)
	if !ok {
		if payloads, err = c.data.ToPayloads(result); err != nil {
			return nil, nil, err
		}
	}
	memo, err = c.memo(memoResult, payloads.GetPayloads())
	return payloads, memo, err
}

// decode is the inverse of encode. What another activity has encoded for itself alone
// is decoded and encoded anew; all else is given back as it is.
func (c codec) decode(memo []byte) (*commonpb.Payloads, error) {
	kind, from, payloads, err := parseMemo(memo)
	switch {
	case err != nil:
		return nil, err
	case kind == memoVoid:
		return nil, nil //nolint:nilnil // no payloads is a result
	case kind != memoResult:
		return nil, fmt.Errorf("it is a %s", kind)
	case from == nil || *from == c.context:
		return payloads, nil
	}
	return c.rebind(payloads, *from)
}

func (c codec) rebind(payloads *commonpb.Payloads, from converter.ActivitySerializationContext) (*commonpb.Payloads, error) {
	theirs := converter.WithDataConverterSerializationContext(c.plain, from)
	values := make([]converter.RawValue, len(payloads.GetPayloads()))
	into, again := make([]any, len(values)), make([]any, len(values))
	for i := range values {
		into[i] = &values[i]
	}
	if err := theirs.FromPayloads(payloads, into...); err != nil {
		return nil, err
	}
	for i, v := range values {
		again[i] = v
	}
	return c.data.ToPayloads(again...)
}

// encodeFailure is the memo of a failure. A failure that cannot be written is not
// memoised.
func (c codec) encodeFailure(err error) (memo []byte, ok bool) {
	defer func() {
		if recover() != nil { // the SDK's converter panics at details that it cannot encode
			ok = false
		}
	}()
	data, failure := proto.Marshal(c.failure.ErrorToFailure(err))
	if failure != nil {
		return nil, false
	}
	memo, failure = c.memo(memoFailure, []*commonpb.Payload{{Data: data}})
	return memo, failure == nil
}

// decodeFailure is the error that was memoised.
func (c codec) decodeFailure(memo []byte) (before, err error) {
	kind, from, payloads, err := parseMemo(memo)
	if err != nil {
		return nil, err
	}
	if kind != memoFailure || len(payloads.GetPayloads()) != 1 {
		return nil, fmt.Errorf("it is a %s", kind)
	}
	var f failurepb.Failure
	if err := proto.Unmarshal(payloads.Payloads[0].GetData(), &f); err != nil {
		return nil, err
	}
	if from != nil && *from != c.context {
		if err := c.rebindFailure(&f, *from); err != nil {
			return nil, err
		}
	}
	return c.failure.FailureToError(&f), nil
}

// rebindFailure does what rebind does, for all payloads in a failure and its causes.
func (c codec) rebindFailure(f *failurepb.Failure, from converter.ActivitySerializationContext) error {
	for ; f != nil; f = f.GetCause() {
		if f.EncodedAttributes != nil {
			again, err := c.rebind(&commonpb.Payloads{Payloads: []*commonpb.Payload{f.EncodedAttributes}}, from)
			if err != nil {
				return err
			}
			f.EncodedAttributes = again.GetPayloads()[0]
		}
		if info := f.GetApplicationFailureInfo(); info.GetDetails() != nil {
			again, err := c.rebind(info.GetDetails(), from)
			if err != nil {
				return err
			}
			info.Details = again
		}
	}
	return nil
}
