package imports

import (
	"context"
	"fmt"
	"math"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// Generate asks for a model call without memory.
type Generate struct {
	Model    string            `json:"model"` // alias; "" = default
	Messages []GenerateMessage `json:"messages"`
	abi.Generation
}

// GenerateMessage is one message of a model call.
type GenerateMessage struct {
	Role    string `json:"role"` // system, user or assistant
	Content string `json:"content"`
}

// Generated is a model's answer.
type Generated struct {
	Text         string `json:"text"`
	FinishReason string `json:"finishReason"`
	Model        string `json:"model"`
	Usage        Usage  `json:"usage"`
}

func (h *Host) generate(ctx context.Context, request []byte) (any, error) {
	in, err := decode[Generate](request)
	if err != nil {
		return nil, err
	}
	if len(in.Messages) == 0 {
		return nil, carrel.Fail("imports.generate", abi.InvalidParams, "messages is empty")
	}
	for _, m := range in.Messages {
		switch carrel.Role(m.Role) {
		case carrel.RoleSystem, carrel.RoleUser, carrel.RoleAssistant:
		default:
			return nil, carrel.Fail("imports.generate", abi.InvalidParams, "a message's role is system, user or assistant")
		}
		if m.Role == string(carrel.RoleUser) && m.Content == "" {
			return nil, carrel.Fail("imports.generate", abi.InvalidParams, "a user's message is not empty")
		}
	}
	if err := checkOptions(in.Generation); err != nil {
		return nil, err
	}
	return h.in.Generate(ctx, in)
}

// checkOptions holds what a guest asks of a model to the bounds that a
// manifest has for its chat methods.
func checkOptions(g abi.Generation) error {
	var faults []carrel.Fault
	need := func(ok bool, pointer, message string) {
		if !ok {
			faults = append(faults, carrel.Fault{Pointer: pointer, Message: message})
		}
	}
	need(g.Temperature == nil || *g.Temperature >= 0 && *g.Temperature <= 2, "/temperature", "it is from 0 to 2")
	need(g.TopP == nil || *g.TopP >= 0 && *g.TopP <= 1, "/topP", "it is from 0 to 1")
	need(g.MaxOutputTokens == nil || *g.MaxOutputTokens >= 1 && *g.MaxOutputTokens <= math.MaxInt32, "/maxOutputTokens",
		"it is a positive number of at most 31 bits")
	need(len(g.ReasoningEffort) <= abi.MaxNameBytes, "/reasoningEffort", fmt.Sprintf("it is at most %d bytes", abi.MaxNameBytes))
	need(len(g.Stop) <= abi.MaxStopSequences, "/stop", fmt.Sprintf("there are at most %d stop sequences", abi.MaxStopSequences))
	for i, s := range g.Stop {
		need(s != "" && len(s) <= abi.MaxStopBytes, fmt.Sprintf("/stop/%d", i), fmt.Sprintf("a stop sequence is 1 to %d bytes", abi.MaxStopBytes))
	}
	if faults == nil {
		return nil
	}
	return &carrel.Error{Op: "imports.generate", Code: abi.InvalidParams, Msg: "the model's options are out of bounds", Faults: faults}
}
