package interceptor

import (
	"encoding/json"
	"errors"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// rawKey is a payload without its Go type, as a part of a key: by its content, so that
// the order of members does not matter in JSON.
type rawKey struct {
	Encoding string          `json:"encoding"`
	Type     string          `json:"type,omitempty"` // of a protobuf message
	JSON     json.RawMessage `json:"json,omitempty"`
	Data     []byte          `json:"data,omitempty"`
}

func keyOfPayload(p *commonpb.Payload) any {
	k := rawKey{Encoding: string(p.GetMetadata()[converter.MetadataEncoding]), Type: string(p.GetMetadata()["messageType"])}
	switch k.Encoding {
	case converter.MetadataEncodingJSON, converter.MetadataEncodingProtoJSON:
		k.JSON = p.GetData()
	default:
		k.Data = p.GetData()
	}
	return k
}

// payloadsOf are the payloads behind an argument that is one, or several: those of a
// dynamic activity, or raw ones.
func payloadsOf(arg any) (keys []any, ok bool, err error) {
	switch v := arg.(type) {
	case converter.EncodedValues:
		keys, err = encodedValues(v)
		return keys, true, err
	case converter.RawValue:
		return []any{keyOfPayload(v.Payload())}, true, nil
	case *commonpb.Payload:
		return []any{keyOfPayload(v)}, true, nil
	case *commonpb.Payloads:
		for _, p := range v.GetPayloads() {
			keys = append(keys, keyOfPayload(p))
		}
		return []any{keys}, true, nil
	}
	return nil, false, nil
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
	into, keys := make([]any, len(values)), make([]any, len(values))
	for i := range values {
		into[i] = &values[i]
	}
	err := v.Get(into...)
	for i := range values {
		if err != nil || values[i].Payload() == nil {
			return nil, errors.New("the data converter cannot give the payloads of a dynamic activity as raw values")
		}
		keys[i] = keyOfPayload(values[i].Payload())
	}
	return keys, nil
}
