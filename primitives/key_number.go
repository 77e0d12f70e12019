package primitives

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// maxExact is 2^53: from here on a float64 skips integers.
const maxExact = 1 << 53

// untypedFloat gives the reason why a float that was held in an interface cannot
// be keyed: decoding JSON into an interface has rounded it already, so that two
// integers may have become one.
func untypedFloat(f float64) string {
	if math.Abs(f) >= maxExact && !math.IsInf(f, 0) {
		return "an untyped number of 2^53 or more may have lost digits: give the field an integer type"
	}
	return ""
}

// rawNumber gives the reason why a number literal in raw JSON cannot be keyed.
// Integers keep all digits; other literals are read as float64.
func rawNumber(literal []byte) string {
	if isInteger(literal) {
		return ""
	}
	if f, _ := strconv.ParseFloat(string(literal), 64); math.Abs(f) >= maxExact {
		return "a number of 2^53 or more must be written as an integer"
	}
	return lossyNumber(literal)
}

// lossyNumber gives the reason why a literal cannot be keyed if its canonical
// form is another number, which other literals may share.
func lossyNumber(literal []byte) string {
	if isInteger(literal) {
		return ""
	}
	f, err := strconv.ParseFloat(string(literal), 64)
	if err != nil || parseDecimal(string(literal)) != parseDecimal(strconv.FormatFloat(f, 'e', -1, 64)) {
		return "a number has more digits or a larger exponent than a float64 holds"
	}
	return ""
}

func isInteger(literal []byte) bool { return !bytes.ContainsAny(literal, ".eE") }

// decimal is a decimal number as 0.digits × 10^exponent, without leading or
// trailing zeros and without the sign, which no conversion changes.
type decimal struct {
	digits   string
	exponent int
}

func parseDecimal(literal string) decimal {
	mantissa, power := strings.TrimPrefix(literal, "-"), ""
	if i := strings.IndexAny(mantissa, "eE"); i >= 0 {
		mantissa, power = mantissa[:i], mantissa[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := whole + fraction
	digits := strings.TrimLeft(all, "0")
	exponent, _ := strconv.Atoi(power) // "" and huge ones: float64 parsing tells them apart first
	exponent += len(whole) - (len(all) - len(digits))
	digits = strings.TrimRight(digits, "0")
	if digits == "" {
		return decimal{}
	}
	return decimal{digits, exponent}
}
