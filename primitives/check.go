package primitives

import (
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Bounds of what callers configure.
const (
	minLease     = 50 * time.Millisecond
	maxLease     = 24 * time.Hour
	minRetention = 10 * time.Millisecond
	maxRetention = 10 * 365 * 24 * time.Hour
	maxHolder    = 512
	maxResource  = 4096
)

// checkDuration fills in the default for zero and refuses what is out of bounds.
func checkDuration(field string, d, def, least, most time.Duration) (time.Duration, error) {
	switch {
	case d == 0:
		return def, nil
	case d < 0:
		return d, &OptionError{field, fmt.Sprintf("%s is negative", d)}
	case d < least:
		return d, &OptionError{field, fmt.Sprintf("%s is below the minimum of %s", d, least)}
	case d > most:
		return d, &OptionError{field, fmt.Sprintf("%s is above the maximum of %s", d, most)}
	}
	return d, nil
}

func checkText(field, s string, most int) error {
	switch {
	case len(s) > most:
		return &OptionError{field, fmt.Sprintf("%d bytes are above the maximum of %d", len(s), most)}
	case !utf8.ValidString(s):
		return &OptionError{field, "is not valid UTF-8"}
	}
	return nil
}

// checkFloor refuses a floor above which no token is left.
func checkFloor(field string, v fence.Value) error {
	if v < 0 || v.Epoch() >= maxEpoch {
		return &OptionError{field, fmt.Sprintf("%d leaves no room for a token above it", v)}
	}
	return nil
}

// maxEpoch is the last epoch that a token has.
const maxEpoch = 8191

func checkResource(resource string) error {
	if resource == "" {
		return &OptionError{"resource", "is empty"}
	}
	return checkText("resource", resource, maxResource)
}

func checkKey(key Key) error {
	if !key.Valid() {
		return &OptionError{"key", "is the zero Key; make one with NewKey"}
	}
	return nil
}

// millis is a duration as a script takes it. It rounds up, so that nothing
// shrinks to zero.
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}
