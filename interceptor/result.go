package interceptor

import (
	"context"
	"fmt"
	"reflect"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"

	"github.com/fencekit/fencekit-go/primitives"
)

// DecodeResult reads a result that an interceptor before the guard has got from the next
// one. Of a guarded activity that is a *commonpb.Payloads, on a run and on a replay alike:
// it has been encoded for Redis, and a second encoding need not have the same bytes. Of
// others it is the body's own value, which takes the same way. No result sets what into
// points to to zero.
//
// ctx is that of the activity. An error names the types, and wraps the converter's, whose
// text may show the result.
func (k *Interceptor) DecodeResult(ctx context.Context, result, into any) error {
	target := reflect.ValueOf(into)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return &primitives.OptionError{Field: "into", Rule: "is not a pointer to a value"}
	}
	if !activity.IsActivity(ctx) {
		return &primitives.OptionError{Field: "ctx", Rule: "is not that of an activity"}
	}
	info := activity.GetInfo(ctx)
	data := k.converters.bind(ctx, info).data
	target.Elem().SetZero()
	payloads, encoded := result.(*commonpb.Payloads)
	if !encoded && result != nil {
		var err error
		if payloads, err = data.ToPayloads(result); err != nil {
			return &resultError{fmt.Sprintf("%T cannot be encoded", result), info, err}
		}
	}
	switch n := len(payloads.GetPayloads()); n {
	case 0:
		return nil
	case 1:
		if err := data.FromPayloads(payloads, into); err != nil {
			target.Elem().SetZero()
			return &resultError{fmt.Sprintf("it cannot be decoded as %s", target.Type().Elem()), info, err}
		}
		return nil
	default:
		return &resultError{fmt.Sprintf("it is %d values, not one", n), info, nil}
	}
}

// resultError keeps the converter's words out of its text.
type resultError struct {
	why   string
	of    activity.Info
	cause error
}

func (e *resultError) Error() string {
	return fmt.Sprintf("fencekit: the result of activity %s: %s", e.of.ActivityType.Name, e.why)
}

func (e *resultError) Unwrap() error { return e.cause }
