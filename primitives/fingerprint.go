package primitives

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Fingerprint is the hash of the input of an operation. It is kept beside a record
// whose [Key] covers only a part of the input, so that the same key used with another
// input is noticed instead of answered with the wrong result. Fingerprints are
// comparable; the zero Fingerprint means that there is none.
type Fingerprint struct {
	kind   string
	digest [32]byte
}

// NewFingerprint hashes payload by the rules of [NewKey], without a namespace.
// A payload without content is accepted: here it identifies nothing. It returns
// a [*KeyError] for what cannot be told apart safely.
func NewFingerprint(payload any) (Fingerprint, error) {
	sum, err := digestOf([]byte(fingerprintDomain), payload, mayBeEmpty)
	return Fingerprint{digest: sum}, err
}

// Of says what f is a fingerprint of, in 1 to 16 lower-case letters, as in "whole"; an [Op]
// with another kind is an [*OptionError].
// Two fingerprints of different kinds are not compared, so that a program may change
// what it compares while records of the other kind are kept.
func (f Fingerprint) Of(kind string) Fingerprint {
	if f.digest == [32]byte{} {
		return f
	}
	f.kind = kind
	return f
}

// String is the digest in 64 lower-case hex digits, after the kind and a colon if
// there is one; "" if there is no fingerprint.
func (f Fingerprint) String() string {
	if f.IsZero() {
		return ""
	}
	text := hex.EncodeToString(f.digest[:])
	if f.kind != "" {
		return f.kind + ":" + text
	}
	return text
}

// IsZero reports whether there is no fingerprint.
func (f Fingerprint) IsZero() bool { return f == Fingerprint{} }

const maxKind = 16

func (f Fingerprint) check() error {
	if len(f.kind) > maxKind || strings.Trim(f.kind, "abcdefghijklmnopqrstuvwxyz") != "" {
		return &OptionError{"Fingerprint", fmt.Sprintf("its kind is not made of at most %d lower-case letters", maxKind)}
	}
	return nil
}

// kindOf is the kind in the text of a fingerprint.
func kindOf(text string) string {
	kind, _, found := strings.Cut(text, ":")
	if !found {
		return ""
	}
	return kind
}

// ParseFingerprint reads what [Fingerprint.String] writes.
func ParseFingerprint(text string) (f Fingerprint, err error) {
	if text == "" {
		return f, nil
	}
	f.kind = kindOf(text)
	digits := text
	if f.kind != "" {
		digits = text[len(f.kind)+1:]
	}
	b, err := hex.DecodeString(digits)
	if err != nil || len(b) != len(f.digest) || strings.ToLower(digits) != digits || f.check() != nil {
		return Fingerprint{}, &OptionError{"text", "is not a fingerprint"}
	}
	copy(f.digest[:], b)
	return f, nil
}
