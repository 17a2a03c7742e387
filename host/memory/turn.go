package memory

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// MaxTurnMessages bounds the messages of a turn that is appended by hand.
const MaxTurnMessages = 256

// maxToolCallIDBytes bounds the id that a result names its call by.
const maxToolCallIDBytes = 128

// toolName is how model servers let a tool be named.
var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// CheckTurn refuses, with invalid_params, what is no whole, well-formed turn:
// a user's message, then any number of (assistant with tool calls, then one
// result for each of them, in their order), then the assistant's final answer,
// which may be empty as a model's may.
func CheckTurn(turn []carrel.Message) error {
	fault := func(i int, format string, args ...any) error {
		return &carrel.Error{
			Op: "memory.CheckTurn", Code: abi.InvalidParams, Msg: "this is no whole turn",
			Faults: []carrel.Fault{{Pointer: fmt.Sprintf("/messages/%d", i), Message: fmt.Sprintf(format, args...)}},
		}
	}
	if len(turn) < 2 {
		return fault(0, "a turn is a user's message and everything up to the assistant's final answer")
	}
	if len(turn) > MaxTurnMessages {
		return carrel.FailLimit("memory.CheckTurn", abi.LimitExceeded, "turnMessages",
			fmt.Sprintf("a turn has at most %d messages, this one has %d; make more than one turn of it", MaxTurnMessages, len(turn)))
	}
	var open []string // ids of tool calls that have no result yet, in their order
	for i, m := range turn {
		last := i == len(turn)-1
		switch {
		case i == 0 && m.Role != carrel.RoleUser:
			return fault(i, "a turn begins with a message of the role user")
		case i == 0 && m.Content == "":
			return fault(i, "the user's message is not empty")
		case i == 0:
		case m.Role == carrel.RoleTool:
			switch at := slices.Index(open, m.ToolCallID); {
			case at < 0:
				return fault(i, "there is no open tool call %.64q for this result", m.ToolCallID)
			case at > 0:
				return fault(i, "results stand in the order of their tool calls, and the next is that of %.64q", open[0])
			}
			open = open[1:]
		case m.Role != carrel.RoleAssistant:
			return fault(i, "only the roles assistant and tool follow the user's message")
		case len(open) > 0:
			return fault(i, "%d tool calls before it have no result", len(open))
		case last && len(m.ToolCalls) > 0:
			return fault(i, "a turn ends with an answer, not with tool calls")
		case !last && len(m.ToolCalls) == 0:
			return fault(i, "the assistant's final answer ends a turn")
		}
		if m.Role != carrel.RoleAssistant && len(m.ToolCalls) > 0 || m.Role != carrel.RoleTool && m.ToolCallID != "" {
			return fault(i, "tool calls belong to the role assistant and a tool call id to the role tool")
		}
		for _, c := range m.ToolCalls {
			switch {
			case slices.Contains(open, c.ID):
				return fault(i, "each tool call has an id of its own")
			case !callID(c.ID):
				return fault(i, "a tool call's id is 1 to %d bytes of UTF-8 without control characters", maxToolCallIDBytes)
			case !toolName.MatchString(c.Name):
				return fault(i, "a tool's name is 1 to 64 letters, digits, underscores or hyphens")
			case !bytes.HasPrefix(bytes.TrimLeft(c.Args, " \t\r\n"), []byte("{")):
				return fault(i, "each tool call has arguments that are an object")
			}
			open = append(open, c.ID)
		}
		if last && m.Role != carrel.RoleAssistant {
			return fault(i, "a turn ends with the assistant's answer")
		}
	}
	return nil
}

func callID(s string) bool {
	return s != "" && len(s) <= maxToolCallIDBytes && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
