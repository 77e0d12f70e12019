package interceptor_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/fencekit/fencekit-go/interceptor"
)

// withMap is a message with a map, which Go writes in another order each time.
func withMap(last string) *commonpb.Memo {
	m := &commonpb.Memo{Fields: map[string]*commonpb.Payload{}}
	for i := range 12 {
		m.Fields[fmt.Sprint("field ", i)] = &commonpb.Payload{Data: []byte(last)}
	}
	return m
}

// unregistered is a message of a type that no program knows but the one that makes it.
func unregistered(t *testing.T) proto.Message {
	t.Helper()
	str := func(s string) *string { return &s }
	one := int32(1)
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: str("shop.proto"), Package: str("shop"), Syntax: str("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: str("Order"), Field: []*descriptorpb.FieldDescriptorProto{{
			Name: str("id"), Number: &one, Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}}}}}, nil)
	require.NoError(t, err)
	m := dynamicpb.NewMessage(file.Messages().Get(0))
	m.Set(m.Descriptor().Fields().Get(0), protoreflect.ValueOfString("jo@example.test"))
	return m
}

// unread calls activities whose parameters have no type, with each of args, one after
// another, and returns how the calls ended and how often a body ran.
func unread(t *testing.T, activityName string, policy interceptor.Policy, args ...any) (errs []error, runs int) {
	t.Helper()
	e := newEnv(t, interceptor.For("raw", policy), interceptor.ForDynamic(policy))
	e.dial(converter.NewCompositeDataConverter(converter.NewNilPayloadConverter(), converter.NewByteSlicePayloadConverter(),
		converter.NewProtoPayloadConverter(), converter.NewJSONPayloadConverter()))
	var ran counted
	e.worker(func(w worker.Registry) {
		named("raw", func(ctx context.Context, v converter.RawValue) error {
			require.Equal(t, "binary/protobuf", string(v.Payload().GetMetadata()["encoding"]), "or the test shows nothing")
			ran.ran(ctx)
			return nil
		})(w)
		w.RegisterDynamicActivity(func(ctx context.Context, v converter.EncodedValues) error { ran.ran(ctx); return nil },
			activity.DynamicRegisterOptions{})
		w.RegisterWorkflowWithOptions(func(ctx workflow.Context, i int) error {
			return way{Activity: activityName}.do(ctx, args[i]).Get(ctx, nil)
		}, workflow.RegisterOptions{Name: "passes"})
	})
	for i := range args {
		run, err := e.client.ExecuteWorkflow(e.ctx(), startOn(e), "passes", i)
		require.NoError(t, err)
		errs = append(errs, run.Get(e.ctx(), nil))
	}
	return errs, ran.runs()
}

// N12: twelve equal calls with a message are one operation, though its bytes differ.
func TestAMessageWithoutItsTypeHasOneKey(t *testing.T) {
	t.Parallel()
	one, err := proto.Marshal(withMap("x"))
	require.NoError(t, err)
	for other := one; string(other) == string(one); { // or the test shows nothing
		other, err = proto.Marshal(withMap("x"))
		require.NoError(t, err)
	}
	for _, name := range []string{"raw", "anything"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs, runs := unread(t, name, oncePerNamespace, append(repeat(any(withMap("x")), 12), withMap("y"))...)
			require.Equal(t, make([]error, 13), errs)
			require.Equal(t, 2, runs, "one for each input")
		})
	}
}

// N12: nobody can tell whether two messages of an unknown type are equal. Where there is
// another key, nobody asks.
func TestAMessageOfAnUnregisteredType(t *testing.T) {
	t.Parallel()
	byNothing := interceptor.KeyFromArgs(func([]any) any { return "one" })
	for _, name := range []string{"raw", "anything"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			order := unregistered(t)
			errs, runs := unread(t, name, interceptor.Policy{Scope: interceptor.ScopeNamespace}, order)
			require.Equal(t, interceptor.TypeKeyError, kindOf(errs[0]))
			require.Contains(t, errs[0].Error(), "shop.Order")
			require.Contains(t, errs[0].Error(), "not registered")
			require.NotContains(t, errs[0].Error(), "jo@example.test")
			require.Zero(t, runs)

			errs, runs = unread(t, name, interceptor.Policy{}, order, order)
			require.Equal(t, make([]error, 2), errs)
			require.Equal(t, 2, runs)
			errs, runs = unread(t, name, interceptor.Policy{Scope: interceptor.ScopeNamespace, Key: byNothing}, order, order)
			require.Equal(t, make([]error, 2), errs)
			require.Equal(t, 1, runs)
		})
	}
}
