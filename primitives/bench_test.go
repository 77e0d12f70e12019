package primitives_test

import (
	"crypto/sha256"
	stdjson "encoding/json"
	"testing"

	"github.com/fencekit/fencekit-go/primitives"
)

var benchPayload = struct {
	Order    string   `json:"order"`
	Customer string   `json:"customer"`
	Amount   int64    `json:"amount"`
	Tags     []string `json:"tags"`
}{"A-1", "c-4711", 1250, []string{"a", "b"}}

func BenchmarkNewKey(b *testing.B) {
	b.Run("struct", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := primitives.NewKey("orders", benchPayload); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("map", func(b *testing.B) {
		b.ReportAllocs()
		payload := map[string]any{"order": "A-1", "customer": "c-4711", "amount": 1250, "tags": []any{"a", "b"}}
		for b.Loop() {
			if _, err := primitives.NewKey("orders", payload); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("plain struct", func(b *testing.B) { // the unsafe short way, to compare with
		b.ReportAllocs()
		for b.Loop() {
			text, err := stdjson.Marshal(benchPayload)
			if err != nil {
				b.Fatal(err)
			}
			_ = sha256.Sum256(text)
		}
	})
}
