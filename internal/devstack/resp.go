package devstack

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Command is one request of a client.
type Command struct {
	Name string   // upper case: "GET"; "" for a request without any word
	Args []string // what follows the name, byte for byte
	raw  []byte   // as it came
}

// String is the command in one line, for messages.
func (c Command) String() string {
	return strings.Join(append([]string{c.Name}, c.Args...), " ")
}

// Handshake reports whether the command sets up a connection or asks about the
// server instead of doing a caller's work: what clients send on their own.
func (c Command) Handshake() bool {
	switch c.Name {
	case "HELLO", "AUTH", "SELECT", "CLIENT", "COMMAND", "READONLY", "READWRITE", "CLUSTER", "ROLE":
		return true
	}
	return false
}

// streams reports whether the command ends the rule of one reply to one request
// on its connection.
func (c Command) streams() bool {
	switch c.Name {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "MONITOR", "SYNC", "PSYNC":
		return true
	case "CLIENT":
		return len(c.Args) > 0 && strings.EqualFold(c.Args[0], "reply")
	}
	return false
}

// maxBulk is Redis's own limit for one string.
const maxBulk = 512 << 20

// readCommand reads an array of bulk strings or a line of words.
func readCommand(r *bufio.Reader) (Command, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return Command{}, err
	}
	raw := bytes.NewBuffer(line)
	text := strings.TrimRight(string(line), "\r\n")
	words := strings.Fields(text)
	if strings.HasPrefix(text, "*") {
		if words, err = readBulks(r, raw, text[1:]); err != nil {
			return Command{}, err
		}
	}
	c := Command{raw: raw.Bytes()}
	if len(words) > 0 {
		c.Name, c.Args = strings.ToUpper(words[0]), words[1:]
	}
	return c, nil
}

func readBulks(r *bufio.Reader, raw *bytes.Buffer, count string) ([]string, error) {
	n, err := strconv.Atoi(count)
	if err != nil {
		return nil, fmt.Errorf("devstack: request of %q arguments: %w", count, err)
	}
	var words []string
	for range n {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		raw.Write(line)
		text := strings.TrimRight(string(line), "\r\n")
		if !strings.HasPrefix(text, "$") {
			return nil, fmt.Errorf("devstack: argument that is no bulk string: %q", text)
		}
		start := raw.Len()
		if err := readBody(r, raw, text[1:]); err != nil {
			return nil, err
		}
		words = append(words, strings.TrimSuffix(string(raw.Bytes()[start:]), "\r\n"))
	}
	return words, nil
}

// readBody copies a body of the given length and its line end. It does not
// believe the length before the bytes are there.
func readBody(r *bufio.Reader, raw *bytes.Buffer, length string) error {
	n, err := strconv.Atoi(length)
	if err != nil || n > maxBulk {
		return fmt.Errorf("devstack: string of length %q", length)
	}
	if n < 0 { // RESP2 nil
		return nil
	}
	_, err = io.CopyN(raw, r, int64(n)+2)
	return err
}

// readReply copies one whole reply, with the attributes before it, and says of
// which type it is: '>' is a push, which answers no request.
func readReply(r *bufio.Reader) (raw []byte, kind byte, err error) {
	var buf bytes.Buffer
	kind, err = copyValue(r, &buf)
	for kind == '|' && err == nil {
		kind, err = copyValue(r, &buf)
	}
	return buf.Bytes(), kind, err
}

// copyValue copies one value with everything in it.
func copyValue(r *bufio.Reader, raw *bytes.Buffer) (kind byte, err error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return 0, err
	}
	raw.Write(line)
	text := strings.TrimRight(string(line[1:]), "\r\n")
	switch kind = line[0]; kind {
	case '$', '!', '=':
		return kind, readBody(r, raw, text)
	case '*', '~', '>':
		return kind, copyValues(r, raw, text, 1)
	case '%', '|':
		return kind, copyValues(r, raw, text, 2)
	}
	return kind, nil
}

// copyValues copies the members of an aggregate; -1 is RESP2's nil array.
func copyValues(r *bufio.Reader, raw *bytes.Buffer, count string, each int) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return fmt.Errorf("devstack: reply of %q members: %w", count, err)
	}
	for range n * each {
		if _, err := copyValue(r, raw); err != nil {
			return err
		}
	}
	return nil
}

// BulkReply is s as a RESP bulk string, for [FakeHandler] and [ForgeReply].
func BulkReply(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

// IntReply is n as a RESP integer.
func IntReply(n int64) string { return fmt.Sprintf(":%d\r\n", n) }

// ErrorReply is a RESP error. The text begins with its code, as in "LOADING Redis
// is loading the dataset in memory".
func ErrorReply(text string) string { return "-" + text + "\r\n" }

// ArrayReply is a RESP array of replies.
func ArrayReply(members ...string) string {
	return fmt.Sprintf("*%d\r\n%s", len(members), strings.Join(members, ""))
}
