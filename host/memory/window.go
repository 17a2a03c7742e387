package memory

import (
	"slices"

	"github.com/carrelhost/carrel"
)

// System applies a rendered system message to a history that has the stored
// one; "" is none, for both. It returns the one to send, and the one to store
// if that is a change. A method that declares none leaves what is there.
func System(stored, rendered string) (send string, change *string) {
	if rendered == "" || rendered == stored {
		return stored, nil
	}
	return rendered, &rendered
}

// Window returns what the model is sent: the system message, if there is one,
// the newest whole turns that fit, and the current turn's messages. most
// counts messages, all of these among them. The turns kept are contiguous up
// to the newest; the first that does not fit ends it. System message and
// current turn are sent even if they alone are more than most. A first turn
// that lacks its beginning is never part of it.
func Window(most int, system string, recent []carrel.Turn, current []carrel.Message) []carrel.Message {
	room := most - len(current)
	if system != "" {
		room--
	}
	first := len(recent)
	kept := 0
	for first > 0 {
		turn := recent[first-1].Messages
		if len(turn) == 0 || turn[0].Role != carrel.RoleUser || kept+len(turn) > room {
			break
		}
		kept += len(turn)
		first--
	}
	out := make([]carrel.Message, 0, 1+kept+len(current))
	if system != "" {
		out = append(out, carrel.Message{Role: carrel.RoleSystem, Content: system})
	}
	for _, t := range recent[first:] {
		out = append(out, t.Messages...)
	}
	return slices.Concat(out, current)
}
