package primitives

import "encoding/hex"

// Fingerprint is the hash of the whole input of an operation. It is kept beside
// a record whose [Key] covers only a part of the input, so that the same key used
// with another input is noticed instead of answered with the wrong result.
// Fingerprints are comparable; the zero Fingerprint means that there is none.
type Fingerprint struct {
	digest [32]byte
}

// NewFingerprint hashes payload by the rules of [NewKey], without a namespace.
// A payload without content is accepted: here it identifies nothing. It returns
// a [*KeyError] for what cannot be told apart safely.
func NewFingerprint(payload any) (Fingerprint, error) {
	sum, err := digestOf([]byte(fingerprintDomain), payload, mayBeEmpty)
	return Fingerprint{sum}, err
}

// String is the digest in 64 lower-case hex digits; "" if there is none.
func (f Fingerprint) String() string {
	if f.IsZero() {
		return ""
	}
	return hex.EncodeToString(f.digest[:])
}

// IsZero reports whether there is no fingerprint.
func (f Fingerprint) IsZero() bool { return f == Fingerprint{} }
