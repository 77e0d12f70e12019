package primitives

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

type Key struct {
	namespace string
	digest    [32]byte
}

func NewKey(namespace string, payload any) (Key, error) {
	b, err := json.Marshal(payload)
	return Key{namespace, sha256.Sum256(b)}, err
}
func (k Key) String() string { return "v1:" + k.namespace + ":" + hex.EncodeToString(k.digest[:]) }
func (k Key) Valid() bool    { return k.namespace != "" }

type Fingerprint struct{ digest [32]byte }

func NewFingerprint(payload any) (Fingerprint, error) {
	b, err := json.Marshal(payload)
	return Fingerprint{sha256.Sum256(b)}, err
}
func (f Fingerprint) String() string { return hex.EncodeToString(f.digest[:]) }
func (f Fingerprint) IsZero() bool   { return f == Fingerprint{} }

func (k *Key) UnmarshalText(b []byte) error { return nil }
