package interceptor

import (
	"encoding/json"
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// rawKey is a payload without its Go type, as a part of a key: by its content, so that
// the order of members does not matter in JSON, and a protobuf message is the same in
// both of its encodings.
type rawKey struct {
	Encoding string          `json:"encoding,omitempty"` // of what is neither JSON nor a message
	Type     string          `json:"type,omitempty"`     // of a protobuf message
	JSON     json.RawMessage `json:"json,omitempty"`
	Message  proto.Message   `json:"message,omitempty"`
	Data     []byte          `json:"data,omitempty"`
}

func keyOfPayload(p *commonpb.Payload) (any, error) {
	encoding := string(p.GetMetadata()[converter.MetadataEncoding])
	switch encoding {
	case converter.MetadataEncodingJSON:
		return rawKey{JSON: p.GetData()}, nil
	case converter.MetadataEncodingProtoJSON, converter.MetadataEncodingProto:
		return keyOfMessage(string(p.GetMetadata()[converter.MetadataMessageType]), encoding, p.GetData())
	}
	return rawKey{Encoding: encoding, Data: p.GetData()}, nil
}

// keyOfMessage decodes a message whose type this program knows. The bytes of one that it
// does not know are no key: maps are written in any order. Its JSON is.
func keyOfMessage(name, encoding string, data []byte) (any, error) {
	known, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		if encoding == converter.MetadataEncodingProtoJSON {
			return rawKey{Type: name, JSON: data}, nil
		}
		return nil, fmt.Errorf("the type of the protobuf message, %.80q, is not registered in this program, so it cannot be keyed: "+
			"equal messages can have different bytes", name)
	}
	m := known.New().Interface()
	unmarshal := proto.Unmarshal
	if encoding == converter.MetadataEncodingProtoJSON {
		unmarshal = protojson.Unmarshal
	}
	if unmarshal(data, m) != nil {
		return nil, fmt.Errorf("the protobuf message of type %s cannot be decoded", name)
	}
	return rawKey{Type: name, Message: m}, nil
}

// payloadsOf are the payloads behind an argument that is one, or several: those of a
// dynamic activity, or raw ones.
func payloadsOf(arg any) (keys []any, ok bool, err error) {
	switch v := arg.(type) {
	case converter.EncodedValues:
		keys, err = encodedValues(v)
		return keys, true, err
	case converter.RawValue:
		keys, err = keysOf(v.Payload())
		return keys, true, err
	case *commonpb.Payload:
		keys, err = keysOf(v)
		return keys, true, err
	case *commonpb.Payloads:
		keys, err = keysOf(v.GetPayloads()...)
		return []any{keys}, true, err
	}
	return nil, false, nil
}

func keysOf(payloads ...*commonpb.Payload) ([]any, error) {
	keys := make([]any, len(payloads))
	for i, p := range payloads {
		k, err := keyOfPayload(p)
		if err != nil {
			return nil, err
		}
		keys[i] = k
	}
	return keys, nil
}

// encodedValues decodes no further than to payloads. How many there are only the
// SDK's own type tells: Get leaves what it has nothing for as it is, and a call that
// shows fewer than it has would share its key with others.
func encodedValues(v converter.EncodedValues) ([]any, error) {
	if !v.HasValues() {
		return nil, nil
	}
	counted, ok := v.(interface{ Payloads() *commonpb.Payloads })
	if !ok {
		return nil, errors.New("the values of the dynamic activity do not tell how many they are")
	}
	values := make([]converter.RawValue, len(counted.Payloads().GetPayloads()))
	into, payloads := make([]any, len(values)), make([]*commonpb.Payload, len(values))
	for i := range values {
		into[i] = &values[i]
	}
	err := v.Get(into...)
	for i := range values {
		if err != nil || values[i].Payload() == nil {
			return nil, errors.New("the data converter cannot give the payloads of a dynamic activity as raw values")
		}
		payloads[i] = values[i].Payload()
	}
	return keysOf(payloads...)
}
