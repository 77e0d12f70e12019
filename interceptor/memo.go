package interceptor

import (
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"
)

// A memo is a temporal.api.common.v1.Payloads message: a head, whose metadata say what
// follows, and the payloads as the worker's data converter has encoded them. This is a
// wire format.
const (
	memoEncoding = "fencekit/memo/1"

	metaEncoding     = "encoding"
	metaKind         = "kind"
	metaNamespace    = "namespace"
	metaWorkflow     = "workflow"
	metaWorkflowType = "workflow-type"
	metaActivityType = "activity-type"
	metaTaskQueue    = "task-queue"
	metaLocal        = "local"
)

type memoKind string

const (
	memoVoid    memoKind = "void"    // the activity returns nothing but an error
	memoResult  memoKind = "result"  // the payloads of its result
	memoFailure memoKind = "failure" // a temporal.api.failure.v1.Failure message, as bytes
)

// memo writes one. What its payloads are bound to stands in the head, if the converter
// binds them to anything.
func (c codec) memo(kind memoKind, payloads []*commonpb.Payload) ([]byte, error) {
	head := map[string][]byte{metaEncoding: []byte(memoEncoding), metaKind: []byte(kind)}
	if c.binds() {
		sc := c.context
		for name, value := range map[string]string{
			metaNamespace: sc.Namespace, metaWorkflow: sc.WorkflowID, metaWorkflowType: sc.WorkflowType,
			metaActivityType: sc.ActivityType, metaTaskQueue: sc.TaskQueue,
		} {
			head[name] = []byte(value)
		}
		if sc.IsLocal {
			head[metaLocal] = []byte("true")
		}
	}
	list := append([]*commonpb.Payload{{Metadata: head}}, payloads...)
	return proto.MarshalOptions{Deterministic: true}.Marshal(&commonpb.Payloads{Payloads: list})
}

// binds reports whether payloads can be read for this activity alone.
func (c codec) binds() bool {
	_, aware := c.plain.(converter.DataConverterWithSerializationContext)
	return aware && !same(c.plain, c.data) || c.bindsFailures()
}

// bindsFailures is the same for failures.
func (c codec) bindsFailures() bool {
	_, aware := c.plainFailure.(converter.FailureConverterWithSerializationContext)
	return aware && !same(c.plainFailure, c.failure)
}

// parseMemo is the inverse of memo. A memo that is bound to nothing has no context.
func parseMemo(memo []byte) (kind memoKind, from *converter.ActivitySerializationContext, payloads *commonpb.Payloads, err error) {
	var all commonpb.Payloads
	if err := proto.Unmarshal(memo, &all); err != nil {
		return "", nil, nil, err
	}
	if len(all.Payloads) == 0 {
		return "", nil, nil, errors.New("it is empty")
	}
	head := all.Payloads[0].GetMetadata()
	if string(head[metaEncoding]) != memoEncoding {
		return "", nil, nil, fmt.Errorf("its encoding is %q, not %q", head[metaEncoding], memoEncoding)
	}
	if _, ok := head[metaActivityType]; ok {
		from = &converter.ActivitySerializationContext{
			Namespace: string(head[metaNamespace]), WorkflowID: string(head[metaWorkflow]),
			WorkflowType: string(head[metaWorkflowType]), ActivityType: string(head[metaActivityType]),
			TaskQueue: string(head[metaTaskQueue]), IsLocal: len(head[metaLocal]) > 0,
		}
	}
	return memoKind(head[metaKind]), from, &commonpb.Payloads{Payloads: all.Payloads[1:]}, nil
}
