package sandbox

import (
	"bytes"
	"fmt"
	"strings"
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

// add keeps as much of a line as there is room for. It copies text.
func (l *logbook) add(level int, text []byte) {
	if l.left < lineBytes {
		l.dropped++
		return
	}
	room := l.left - lineBytes
	// Bytes that are no text grow when they are replaced: the room is looked
	// at before, for the cost of it, and after.
	valid := strings.ToValidUTF8(string(prefix(text, room)), "\ufffd")
	kept := prefix(valid, room)
	if len(text) > room || len(kept) < len(valid) {
		l.dropped++
	}
	l.left -= len(kept) + lineBytes
	l.lines = append(l.lines, LogLine{Level: level, Text: kept})
}

// prefix returns at most n bytes of text, and no part of a character.
func prefix[T string | []byte](text T, n int) T {
	if len(text) <= n {
		return text
	}
	for n > 0 && text[n]&0xc0 == 0x80 {
		n--
	}
	return text[:n]
}

// write takes what a guest wrote to stdout (0) or stderr (1), in any pieces,
// and makes lines of it.
func (l *logbook) write(stream int, b []byte) {
	pending := &l.streams[stream]
	for len(b) > 0 {
		if l.left < lineBytes {
			l.dropped++
			return
		}
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		// Not more than could be kept: the rest of the line is counted as
		// dropped by the one byte that is too much.
		pending.Write(line[:min(len(line), max(l.left+1-pending.Len(), 0))])
		b = rest
		if ended {
			l.add(streamLevels[stream], pending.Bytes())
			pending.Reset()
		}
	}
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
