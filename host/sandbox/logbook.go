package sandbox

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// LogLine is a line that a guest logged, wrote to stdout (level 1) or stderr
// (level 2), or that the sandbox wrote about it: a trap with its stack (3).
// The text is valid UTF-8 but for that a guest's own: whoever shows it
// escapes control characters.
type LogLine struct {
	Level int // 0 debug to 3 error
	Text  string
}

// The levels of lines.
const (
	levelDebug = iota
	levelInfo
	levelWarning
	levelError
)

// lineBytes is what a line costs besides its text, so that empty lines are
// not free.
const lineBytes = 16

// longestLine is how much of a line is kept, whatever room there is: its text
// is checked in one go.
const longestLine = 64 << 10

// logbook keeps a run's lines within a number of bytes.
type logbook struct {
	lines   []LogLine
	limit   int
	left    int
	dropped int // lines, or parts of them
	traps   []LogLine
	streams [2]bytes.Buffer // of stdout and stderr, what has no line end yet
}

var streamLevels = [2]int{levelInfo, levelWarning}

// add keeps as much of a line as there is room for. It copies text, and says
// how many of its bytes it looked at.
func (l *logbook) add(level int, text []byte) (seen int) {
	if l.left < lineBytes {
		l.dropped++
		return 0
	}
	room := min(l.left-lineBytes, longestLine)
	// Bytes that are no text grow when they are replaced: the room is looked
	// at before, for the cost of it, and after.
	first := prefix(text, room)
	valid := strings.ToValidUTF8(string(first), "\ufffd")
	kept := prefix(valid, room)
	if len(text) > room || len(kept) < len(valid) {
		l.dropped++
	}
	l.left -= len(kept) + lineBytes
	l.lines = append(l.lines, LogLine{Level: level, Text: kept})
	return len(first)
}

// prefix returns at most n bytes of text, and no part of a character.
func prefix[T string | []byte](text T, n int) T {
	if len(text) <= n {
		return text
	}
	// A character has three more bytes than its first at most. A longer row of
	// such bytes is none.
	for first := n; first > 0 && first > n-utf8.UTFMax; first-- {
		if text[first]&0xc0 != 0x80 {
			return text[:first]
		}
	}
	return text[:n]
}

// write takes what a guest wrote to stdout (0) or stderr (1), in any pieces,
// and makes lines of it. It looks at taken bytes only, which it keeps: the end
// of a line that is longer than all the room is not looked for, and what would
// follow it is dropped as well.
func (l *logbook) write(stream int, b []byte) (taken int) {
	pending := &l.streams[stream]
	for taken < len(b) {
		if l.left < lineBytes || pending.Len() > l.left {
			l.dropped++
			return taken
		}
		// The rest of a line is counted as dropped by the one byte that is
		// too much.
		next := b[taken:min(len(b), taken+l.left+1-pending.Len())]
		line, _, ended := bytes.Cut(next, []byte{'\n'})
		pending.Write(line)
		taken += len(line)
		if ended {
			taken++
			l.add(streamLevels[stream], pending.Bytes())
			pending.Reset()
		}
	}
	return taken
}

// trap keeps a line about the guest's end, which there is always room for.
func (l *logbook) trap(text string) {
	if len(text) > stackBytes {
		text = text[:stackBytes]
	}
	l.traps = append(l.traps, LogLine{Level: levelError, Text: strings.ToValidUTF8(text, "\ufffd")})
}

// finish returns all lines, once. The caller owns them.
func (l *logbook) finish() []LogLine {
	for i := range l.streams {
		if pending := &l.streams[i]; pending.Len() > 0 {
			l.add(streamLevels[i], pending.Bytes())
			pending.Reset()
		}
	}
	l.lines = append(l.lines, l.traps...)
	if l.dropped > 0 {
		l.lines = append(l.lines, LogLine{Level: levelWarning, Text: fmt.Sprintf(
			"%d lines or parts of lines were dropped: the log of one call can have %d bytes (limit sandbox.logBytes)", l.dropped, l.limit)})
	}
	return l.lines
}
