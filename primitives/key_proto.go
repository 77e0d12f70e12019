package primitives

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// writeMessage writes a protobuf message in its JSON form. protojson adds white
// space at random, from build to build; canonicalization takes it out again.
func writeMessage(enc *jsontext.Encoder, m proto.Message) error {
	if err := protorange.Range(m.ProtoReflect(), inspectStep); err != nil {
		return err
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return &KeyError{Reason: "the protobuf message has no JSON form", Err: err}
	}
	return enc.WriteValue(text)
}

// inspectStep refuses what the JSON form hides or has rounded.
func inspectStep(p protopath.Values) error {
	last := p.Index(-1)
	reason := ""
	switch last.Step.Kind() {
	case protopath.UnknownAccessStep:
		reason = "the protobuf message has fields that this build does not know"
	case protopath.FieldAccessStep:
		if isUntyped(last.Step.FieldDescriptor()) {
			reason = untypedFloat(last.Value.Float())
		}
	}
	if reason == "" {
		return nil
	}
	return messageError(p.Path, reason)
}

// isUntyped: google.protobuf.Value carries JSON numbers as double, as an
// interface does in Go.
func isUntyped(fd protoreflect.FieldDescriptor) bool {
	return fd.FullName() == "google.protobuf.Value.number_value"
}

func messageError(path protopath.Path, reason string) *KeyError {
	e := &KeyError{Reason: reason}
	for i := len(path) - 1; i >= 0; i-- {
		switch step := path[i]; step.Kind() {
		case protopath.FieldAccessStep:
			e = e.within(step.FieldDescriptor().JSONName())
		case protopath.ListIndexStep:
			e = e.within(strconv.Itoa(step.ListIndex()))
		case protopath.MapIndexStep:
			e = e.within(step.MapIndex().String())
		}
	}
	return e
}
