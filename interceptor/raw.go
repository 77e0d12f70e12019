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

// tooMany is how the SDK says that there are no more values. It exports no error for
// it, and any other one must not pass for the end: calls that differ behind it would
// share a key.
const tooMany = "too many arguments"

// encodedValues decodes no further than to payloads. How many there are is only told
// by asking for one too many.
func encodedValues(v converter.EncodedValues) (keys []any, err error) {
	if !v.HasValues() {
		return nil, nil
	}
	for n := 1; ; n++ {
		values := make([]converter.RawValue, n)
		into := make([]any, n)
		for i := range values {
			into[i] = &values[i]
		}
		switch err := v.Get(into...); {
		case err == nil:
			keys = append(keys, keyOfPayload(values[n-1].Payload()))
		case n > 1 && err.Error() == tooMany:
			return keys, nil
		default:
			return nil, errors.New("the data converter cannot give the payloads of a dynamic activity as raw values")
		}
	}
}
