package fence

import (
	"cmp"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Value is laid out as epoch<<lowBits | low.
const (
	lowBits  = 50
	maxLow   = 1<<lowBits - 1
	maxEpoch = 1<<(63-lowBits) - 1
)

// Value is the number of a fencing token. Values of one resource strictly
// increase from grant to grant, so the higher of two is the newer. The zero
// Value is invalid: it never stands for "no fence".
//
// A Value is a hybrid logical clock packed into an int64: 13 bits of epoch
// above 50 bits of "low", and low is the larger of the last low plus one and the
// microseconds since 2026-01-01T00:00:00Z by the lock server's clock (Kulkarni
// et al., "Logical Physical Clocks", 2014). It fits a Postgres bigint. It does
// not always fit a float64, so its JSON form is a decimal string.
type Value int64

// Pack builds a Value from its epoch (0 to 8191) and low part (0 to 2^50-1, not
// both zero).
func Pack(epoch, low int64) (Value, error) {
	if epoch < 0 || epoch > maxEpoch {
		return 0, fmt.Errorf("fence: epoch %d is outside 0 to %d", epoch, int64(maxEpoch))
	}
	if low < 0 || low > maxLow {
		return 0, fmt.Errorf("fence: low part %d is outside 0 to %d", low, int64(maxLow))
	}
	if epoch == 0 && low == 0 {
		return 0, errZero
	}
	return Value(epoch<<lowBits | low), nil
}

// ParseValue reads the decimal form that [Value.String] writes; leading zeros
// are accepted, a plus sign is not. It refuses everything that is not a positive
// int64.
func ParseValue(s string) (Value, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case strings.HasPrefix(s, "+"):
		return 0, errors.New("fence: token value has a plus sign")
	case err != nil:
		return 0, fmt.Errorf("fence: token value: %w", err)
	case n < 0:
		return 0, fmt.Errorf("fence: token value %d is negative", n)
	case n == 0:
		return 0, errZero
	}
	return Value(n), nil
}

var errZero = errors.New("fence: token value is zero, which is never granted")

// Valid reports whether v can have been granted: it is positive.
func (v Value) Valid() bool { return v > 0 }

// Epoch is the upper 13 bits: 0 unless an epoch store is in use.
func (v Value) Epoch() int64 { return int64(v) >> lowBits }

// Low is the lower 50 bits.
func (v Value) Low() int64 { return int64(v) & maxLow }

// String is the plain decimal form.
func (v Value) String() string { return strconv.FormatInt(int64(v), 10) }

// MarshalJSON writes a decimal string, because a JavaScript number would lose
// the last digits.
func (v Value) MarshalJSON() ([]byte, error) {
	return []byte(`"` + v.String() + `"`), nil
}

// UnmarshalJSON reads a decimal string. A JSON number is refused: whoever wrote
// it may have rounded it already.
func (v *Value) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("fence: token value must be a decimal string in JSON: %w", err)
	}
	if s == "0" { // the zero Value round-trips, and stays invalid
		*v = 0
		return nil
	}
	n, err := ParseValue(s)
	if err != nil {
		return err
	}
	*v = n
	return nil
}

// Value implements [driver.Valuer] with an int64. A negative Value, which
// [Value.Scan] would not read back, is an error.
func (v Value) Value() (driver.Value, error) {
	if v < 0 {
		return nil, fmt.Errorf("fence: token value %d is negative", int64(v))
	}
	return int64(v), nil
}

// Scan implements [database/sql.Scanner] for a bigint column. NULL becomes the
// zero Value: a row that no token has touched yet.
func (v *Value) Scan(src any) error {
	switch n := src.(type) {
	case nil:
		*v = 0
	case int64:
		if n < 0 {
			return fmt.Errorf("fence: token value %d is negative", n)
		}
		*v = Value(n)
	default:
		return fmt.Errorf("fence: cannot scan %T into a token value: the column must be bigint", src)
	}
	return nil
}

// Token is one grant's right to write: which resource, with which number, and
// who holds it. The zero Token is invalid.
type Token struct {
	// Resource names what the token protects, as in "account/42". Tokens of
	// different resources must never be compared: their numbers are unrelated.
	Resource string `json:"resource"`
	// Value orders this grant among all grants of the resource.
	Value Value `json:"value"`
	// Owner is the nonce of the attempt that holds the grant: 128 random bits
	// in hex, drawn per attempt. Stores that keep it let an equal Value through
	// for the same Owner only.
	Owner string `json:"owner,omitempty"`
}

// Valid reports whether t names a resource and carries a value that can have
// been granted. Owner may be empty: a row fence needs the value alone.
func (t Token) Valid() bool { return t.Resource != "" && t.Value.Valid() }

// Compare is -1 if t is older than u, 0 if they carry the same value, +1 if t is
// newer. It returns an error if the two do not belong to one resource.
func (t Token) Compare(u Token) (int, error) {
	if t.Resource != u.Resource {
		return 0, fmt.Errorf("fence: cannot compare tokens of %q and %q", t.Resource, u.Resource)
	}
	return cmp.Compare(t.Value, u.Value), nil
}

// String is "resource#value", for logs. The owner is left out.
func (t Token) String() string { return t.Resource + "#" + t.Value.String() }
