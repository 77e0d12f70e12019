package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// voice prints the story.
type voice struct {
	out    io.Writer
	colour bool
}

func newVoice() voice {
	info, err := os.Stdout.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return voice{out: os.Stdout, colour: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

const (
	bold  = "1"
	dim   = "2"
	red   = "1;31"
	green = "32"
	blue  = "36"
)

func (v voice) paint(code, text string) string {
	if !v.colour || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (v voice) line(code, format string, args ...any) {
	fmt.Fprintln(v.out, v.paint(code, fmt.Sprintf(format, args...)))
}

// chapter begins a part of the story.
func (v voice) chapter(n int, format string, args ...any) {
	fmt.Fprintln(v.out)
	v.line(bold, "%d. %s", n, fmt.Sprintf(format, args...))
}

// note explains.
func (v voice) note(format string, args ...any) {
	for line := range strings.SplitSeq(fmt.Sprintf(format, args...), "\n") {
		v.line(dim, "   %s", line)
	}
}

// by is something that a worker did.
func (v voice) by(worker, code, format string, args ...any) {
	fmt.Fprintf(v.out, "   %-9s %s\n", worker, v.paint(code, fmt.Sprintf(format, args...)))
}
