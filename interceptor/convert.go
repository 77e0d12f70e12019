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
	return t == reflect.TypeOf(b) && (t == nil || reflect.ValueOf(a).Comparable() && a == b)
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
		failure = temporal.GetDefaultFailureConverter() // as the SDK does, whatever data is
	}
	return data, failure
}

// codec turns results into memos and back, for one activity.
type codec struct {
	data    converter.DataConverter
	failure converter.FailureConverter
	context converter.ActivitySerializationContext

	// Both before they were bound to this activity.
	plain        converter.DataConverter
	plainFailure converter.FailureConverter
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
		plain:   data, plainFailure: failure, context: sc,
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

// of is the data converter bound to another activity.
func (c codec) of(from converter.ActivitySerializationContext) converter.DataConverter {
	return converter.WithDataConverterSerializationContext(c.plain, from)
}

func (c codec) rebind(payloads *commonpb.Payloads, from converter.ActivitySerializationContext) (*commonpb.Payloads, error) {
	theirs := c.of(from)
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

// encodeFailure is the memo of a failure, as one value for the data converter: the SDK
// leaves texts, and by default details too, as they are, which is no reason to have
// them in Redis. A failure that cannot be written is not memoised.
func (c codec) encodeFailure(err error) (memo []byte, ok bool) {
	defer func() {
		if recover() != nil { // the SDK's converter panics at details that it cannot encode
			ok = false
		}
	}()
	text, failure := proto.Marshal(c.failure.ErrorToFailure(err))
	if failure != nil {
		return nil, false
	}
	payloads, failure := c.data.ToPayloads(text)
	if failure != nil {
		return nil, false
	}
	memo, failure = c.memo(memoFailure, payloads.GetPayloads())
	return memo, failure == nil
}

// decodeFailure is the error that was memoised.
func (c codec) decodeFailure(memo []byte) (before, err error) {
	kind, from, payloads, err := parseMemo(memo)
	if err != nil {
		return nil, err
	}
	if kind != memoFailure {
		return nil, fmt.Errorf("it is a %s", kind)
	}
	data, foreign := c.data, from != nil && *from != c.context
	if foreign {
		data = c.of(*from)
	}
	var text []byte
	if err := data.FromPayloads(payloads, &text); err != nil {
		return nil, err
	}
	var f failurepb.Failure
	if err := proto.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	if foreign && c.bindsFailures() {
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
		for _, details := range detailsOf(f) {
			again, err := c.rebind(*details, from)
			if err != nil {
				return err
			}
			*details = again
		}
	}
	return nil
}

// detailsOf are the payloads that an error of a body can hold.
func detailsOf(f *failurepb.Failure) (found []**commonpb.Payloads) {
	if info := f.GetApplicationFailureInfo(); info.GetDetails() != nil {
		found = append(found, &info.Details)
	}
	if info := f.GetCanceledFailureInfo(); info.GetDetails() != nil {
		found = append(found, &info.Details)
	}
	if info := f.GetTimeoutFailureInfo(); info.GetLastHeartbeatDetails() != nil {
		found = append(found, &info.LastHeartbeatDetails)
	}
	return found
}
