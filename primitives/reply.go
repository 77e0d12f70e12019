package primitives

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// reply is what a script returned: a word, then the fields that go with it, all
// of them strings. A reply of any other shape is a [*CorruptError].
type reply struct {
	script string
	word   string
	fields []string
}

func decode(script string, value any) (reply, error) {
	list, ok := value.([]any)
	if !ok || len(list) == 0 {
		return reply{}, &CorruptError{"the reply of " + script, fmt.Sprintf("it is a %T, not a list", value)}
	}
	texts := make([]string, len(list))
	for i, v := range list {
		if texts[i], ok = v.(string); !ok {
			return reply{}, &CorruptError{"the reply of " + script, fmt.Sprintf("item %d is a %T, not a string", i, v)}
		}
	}
	r := reply{script, texts[0], texts[1:]}
	if r.word == "corrupt" && len(r.fields) == 2 {
		return reply{}, &CorruptError{r.fields[0], r.fields[1]}
	}
	return r, nil
}

// unexpected is the error for a word or a number of fields that the script does
// not return.
func (r reply) unexpected() error {
	return &CorruptError{"the reply of " + r.script, fmt.Sprintf("%q with %d fields makes no sense", r.word, len(r.fields))}
}

// reader takes the fields of a reply in turn and remembers the first that cannot
// be read.
type reader struct {
	reply
	next int
	err  error
}

func (r reply) read() *reader { return &reader{reply: r} }

// more says whether there are fields left.
func (r *reader) more() bool { return r.next < len(r.fields) }

func (r *reader) text() string {
	if !r.more() {
		r.err = r.unexpected()
		return ""
	}
	r.next++
	return r.fields[r.next-1]
}

// number reads a decimal integer; an empty field is 0.
func (r *reader) number() int64 {
	s := r.text()
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		r.err = r.unexpected()
	}
	return n
}

func (r *reader) count() int         { return int(r.number()) }
func (r *reader) token() fence.Value { return fence.Value(r.number()) }
func (r *reader) flag() bool         { return r.text() == "1" }

// grant is a token that must be there.
func (r *reader) grant() fence.Value {
	t := r.token()
	if !t.Valid() {
		r.err = r.unexpected()
	}
	return t
}

// millis stops short of an overflow: what lasts longer lasts for ever.
func (r *reader) millis() time.Duration {
	return time.Duration(min(r.number(), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// time reads milliseconds since 1970 by the Redis clock; an empty field is the
// zero time.
func (r *reader) time() time.Time {
	n := r.number()
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n)
}
