package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/memory"
	"github.com/carrelhost/carrel/host/strictjson"
	"github.com/carrelhost/carrel/store"
)

// history is an import that was read.
type history struct {
	head   client.HistoryHead
	system string
	turns  []store.NewTurn
}

// historyLine is every line but the first: a message, or the end.
type historyLine struct {
	Seq        *int64            `json:"seq"`
	Turn       *int64            `json:"turn"`
	Role       *string           `json:"role"`
	Content    *string           `json:"content"`
	ToolCalls  []carrel.ToolCall `json:"toolCalls"`
	ToolCallID string            `json:"toolCallId"`
	At         *time.Time        `json:"at"`
	Origin     string            `json:"origin"`

	End      *bool  `json:"end"`
	Messages *int64 `json:"messages"`
}

func (l historyLine) isMessage() bool {
	return l.Seq != nil || l.Turn != nil || l.Role != nil || l.Content != nil || l.ToolCalls != nil ||
		l.ToolCallID != "" || l.At != nil || l.Origin != ""
}

// historyLimits bound what is read of an import.
type historyLimits struct {
	messages   int64
	bytes      int64  // of one message, as carrel.Message.Size counts
	bytesLimit string // the limit that bytes is
}

// importLimits are those of an import: no message is larger than one that a
// call can send, or a model answer.
func (l Limits) importLimits() historyLimits {
	if l.AnswerBytes > l.RequestBytes {
		return historyLimits{l.MessagesPerHistory, l.AnswerBytes, "answerBytes"}
	}
	return historyLimits{l.MessagesPerHistory, l.RequestBytes, "requestBytes"}
}

// historyReader reads an import, line by line.
type historyReader struct {
	rest   []byte
	line   int // number of the one that was read last
	limits historyLimits
	count  int64 // messages that were read
	seq    int64 // of the last of them
	turn   int64 // that is being read; 0 = none yet
	first  int   // line of the first message of that turn
	open   []carrel.Message
	at     time.Time // of the last of them; zero if the client leaves it to the host
	out    history
}

// readHistory reads an import. It keeps nothing
// of body. A line may be as long as the body, which is bounded already: what a
// host stores as one message can be exported as one line. Errors: malformed_json, bad_request and limit_exceeded of
// strictjson, invalid_params for lines that are no history, limit_exceeded
// (messagesPerHistory, turnMessages, and that on the bytes of a message). All
// name the line.
func readHistory(body []byte, limits historyLimits) (history, error) {
	r := &historyReader{rest: body, limits: limits}
	if err := r.read(&r.out.head, `the first line of an export is missing, {"format":"`+client.HistoryFormat+`",…}`); err != nil {
		return history{}, err
	}
	if err := checkHead(r.out.head); err != nil {
		return history{}, err
	}
	for {
		var l historyLine
		if err := r.read(&l, `the last line, {"end":true,…}, is missing: the export was cut`); err != nil {
			return history{}, err
		}
		if l.End == nil && l.Messages == nil {
			if err := r.message(l); err != nil {
				return history{}, err
			}
			continue
		}
		return r.out, r.end(l)
	}
}

// read decodes the next line, which must be there; missing is said if it is not.
func (r *historyReader) read(dst any, missing string) error {
	r.line++
	if len(r.rest) == 0 {
		return r.bad("", missing)
	}
	line, rest, _ := bytes.Cut(r.rest, []byte("\n"))
	r.rest = rest
	return atLine(r.line, strictjson.Into(line, dst, strictjson.DefaultDepth))
}

// message takes in a message.
func (r *historyReader) message(l historyLine) error {
	if r.count++; r.count > r.limits.messages {
		return carrel.FailLimit("httpapi.import", abi.LimitExceeded, "messagesPerHistory", inLine(r.line)+fmt.Sprintf(
			"a history has at most %d messages; import fewer turns, or have the host's operator raise `limits.messagesPerHistory`", r.limits.messages))
	}
	for _, m := range []struct {
		name    string
		missing bool
	}{{"seq", l.Seq == nil}, {"turn", l.Turn == nil}, {"role", l.Role == nil}, {"content", l.Content == nil}} {
		if m.missing {
			return r.bad("/"+m.name, "it is missing")
		}
	}
	m := carrel.Message{Role: carrel.Role(*l.Role), Content: *l.Content, ToolCalls: l.ToolCalls, ToolCallID: l.ToolCallID}
	if size := m.Size(); size > r.limits.bytes {
		return carrel.FailLimit("httpapi.import", abi.LimitExceeded, r.limits.bytesLimit, inLine(r.line)+fmt.Sprintf(
			"a message has at most %d bytes on this host, and this one has %d; make more than one turn of it, or have the host's operator raise `limits.%s`",
			r.limits.bytes, size, r.limits.bytesLimit))
	}
	switch carrel.Origin(l.Origin) {
	case carrel.OriginModel, carrel.OriginPlugin, carrel.OriginImport:
	default:
		return r.bad("/origin", "it is plugin or import, or left out")
	}
	if l.At != nil && l.At.Before(time.Unix(0, 0)) {
		return r.bad("/at", "it is before 1970; leave it out if it is not known")
	}
	if *l.Turn == 0 || *l.Seq == 0 || m.Role == carrel.RoleSystem {
		return r.systemMessage(l, m)
	}
	switch {
	case *l.Seq <= r.seq:
		return r.bad("/seq", fmt.Sprintf("it must be greater than that of the message before, %d", r.seq))
	case *l.Turn < r.turn || *l.Turn < 0:
		return r.bad("/turn", fmt.Sprintf("it must not be less than that of the message before, %d", r.turn))
	case *l.Turn > r.turn:
		if err := r.endTurn(); err != nil {
			return err
		}
		r.turn, r.first = *l.Turn, r.line
	case len(r.open) == memory.MaxTurnMessages:
		return carrel.FailLimit("httpapi.import", abi.LimitExceeded, "turnMessages",
			inLine(r.line)+fmt.Sprintf("a turn has at most %d messages; make more than one turn of it", memory.MaxTurnMessages))
	}
	r.seq, r.open, r.at = *l.Seq, append(r.open, m), time.Time{}
	if l.At != nil {
		r.at = *l.At
	}
	return nil
}

// systemMessage takes in the system message.
func (r *historyReader) systemMessage(l historyLine, m carrel.Message) error {
	switch {
	case m.Role != carrel.RoleSystem || *l.Turn != 0 || *l.Seq != 0:
		return r.bad("", "the system message, and no other, has seq 0 and turn 0")
	case r.count > 1:
		return r.bad("", "a history has one system message at most, before all others")
	case m.Content == "":
		return r.bad("/content", "a system message is not empty")
	case len(m.ToolCalls) > 0 || m.ToolCallID != "":
		return r.bad("", "a system message has no tool calls")
	}
	r.out.system = m.Content
	return nil
}

// endTurn judges and keeps the turn that was read, if there is one.
func (r *historyReader) endTurn() error {
	if len(r.open) == 0 {
		return nil
	}
	err := memory.CheckTurn(r.open)
	if e, ok := errors.AsType[*carrel.Error](err); ok && len(e.Faults) == 1 {
		place, found := strings.CutPrefix(e.Faults[0].Pointer, "/messages/")
		i, bad := strconv.Atoi(place)
		if !found || bad != nil {
			i = 0
		}
		return badLine(r.first+i, "", fmt.Sprintf("turn %d is not whole or not well-formed: %s", r.turn, e.Faults[0].Message))
	}
	if err != nil {
		return atLine(r.first, err)
	}
	r.out.turns = append(r.out.turns, store.NewTurn{Messages: r.open, Origin: carrel.OriginImport, At: r.at})
	r.open = nil
	return nil
}

// end takes in the last line.
func (r *historyReader) end(l historyLine) error {
	switch {
	case l.isMessage():
		return r.bad("", "it is a message and the end in one")
	case l.End == nil || !*l.End:
		return r.bad("/end", "it is true")
	case l.Messages == nil || *l.Messages != r.count:
		return r.bad("/messages", fmt.Sprintf("it must be the number of messages before it, %d; lines were lost or added", r.count))
	}
	if err := r.endTurn(); err != nil {
		return err
	}
	if len(r.rest) > 0 {
		r.line++
		return r.bad("", "the line before it was the end")
	}
	return nil
}

func (r *historyReader) bad(pointer, message string) error { return badLine(r.line, pointer, message) }

func inLine(n int) string { return fmt.Sprintf("line %d: ", n) }

// atLine names the line in an error for the caller.
func atLine(n int, err error) error {
	e, ok := errors.AsType[*carrel.Error](err)
	if !ok {
		return err
	}
	named := *e
	named.Msg = inLine(n) + e.Msg
	return &named
}
