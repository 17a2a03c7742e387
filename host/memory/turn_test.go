package memory_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
)

func user(text string) carrel.Message { return carrel.Message{Role: carrel.RoleUser, Content: text} }

func says(text string) carrel.Message {
	return carrel.Message{Role: carrel.RoleAssistant, Content: text}
}

func result(of string) carrel.Message {
	return carrel.Message{Role: carrel.RoleTool, ToolCallID: of, Content: "r"}
}

// calls is an assistant's message that calls tools with these ids.
func calls(ids ...string) carrel.Message {
	m := carrel.Message{Role: carrel.RoleAssistant}
	for _, id := range ids {
		m.ToolCalls = append(m.ToolCalls, carrel.ToolCall{ID: id, Name: "f", Args: []byte(" {}")})
	}
	return m
}

// named is an assistant's message that calls a tool of a name.
func named(tool string) carrel.Message {
	return with(calls("a"), func(m *carrel.Message) { m.ToolCalls[0].Name = tool })
}

func with(m carrel.Message, change func(*carrel.Message)) carrel.Message {
	m.ToolCalls = slices.Clone(m.ToolCalls)
	change(&m)
	return m
}

func TestCheckTurn(t *testing.T) {
	long128 := strings.Repeat("x", 128)
	long := []carrel.Message{user("U")}
	for len(long) < memory.MaxTurnMessages-1 {
		long = append(long, calls("a"), result("a"))
	}
	for name, tc := range map[string]struct {
		turn []carrel.Message
		at   string // the pointer of the fault; "" = it is a turn
	}{
		"a question and its answer":           {[]carrel.Message{user("U"), says("A")}, ""},
		"an empty question":                   {[]carrel.Message{user(""), says("A")}, "/messages/0"},
		"an empty answer":                     {[]carrel.Message{user("U"), says("")}, ""},
		"an empty answer behind a result":     {[]carrel.Message{user("U"), calls("a"), result("a"), says("")}, ""},
		"an empty result":                     {[]carrel.Message{user("U"), calls("a"), with(result("a"), func(m *carrel.Message) { m.Content = "" }), says("A")}, ""},
		"an id of 128 bytes":                  {[]carrel.Message{user("U"), calls(long128), result(long128), says("A")}, ""},
		"an id of 129 bytes":                  {[]carrel.Message{user("U"), calls(long128 + "x"), result(long128 + "x"), says("A")}, "/messages/1"},
		"an id with a line feed":              {[]carrel.Message{user("U"), calls("a\n"), result("a\n"), says("A")}, "/messages/1"},
		"an id that is no text":               {[]carrel.Message{user("U"), calls("\xff"), result("\xff"), says("A")}, "/messages/1"},
		"a name of 64 letters":                {[]carrel.Message{user("U"), named(long128[:64]), result("a"), says("A")}, ""},
		"a name of 65 letters":                {[]carrel.Message{user("U"), named(long128[:65]), result("a"), says("A")}, "/messages/1"},
		"a name with a hyphen and others":     {[]carrel.Message{user("U"), named("Look-up_2"), result("a"), says("A")}, ""},
		"a name with a dot":                   {[]carrel.Message{user("U"), named("look.up"), result("a"), says("A")}, "/messages/1"},
		"a name with a line feed at its end":  {[]carrel.Message{user("U"), named("f\n"), result("a"), says("A")}, "/messages/1"},
		"a tool's result":                     {[]carrel.Message{user("U"), calls("a"), result("a"), says("A")}, ""},
		"results in the order of their calls": {[]carrel.Message{user("U"), calls("b", "a"), result("b"), result("a"), says("A")}, ""},
		"results in another order":            {[]carrel.Message{user("U"), calls("a", "b"), result("b"), result("a"), says("A")}, "/messages/2"},
		"the last result before the second":   {[]carrel.Message{user("U"), calls("a", "b", "c"), result("a"), result("c"), result("b"), says("A")}, "/messages/3"},
		"text beside tool calls":              {[]carrel.Message{user("U"), with(calls("a"), func(m *carrel.Message) { m.Content = "wait" }), result("a"), says("A")}, ""},
		"an id again in a later round":        {[]carrel.Message{user("U"), calls("a"), result("a"), calls("a"), result("a"), says("A")}, ""},
		"as many messages as there may be":    {append(slices.Clone(long[:memory.MaxTurnMessages-1]), says("A")), ""},
		"no messages":                         {nil, "/messages/0"},
		"a question alone":                    {[]carrel.Message{user("U")}, "/messages/0"},
		"an answer first":                     {[]carrel.Message{says("A"), user("U")}, "/messages/0"},
		"two questions":                       {[]carrel.Message{user("U"), user("U"), says("A")}, "/messages/1"},
		"a system message in between":         {[]carrel.Message{user("U"), {Role: carrel.RoleSystem}, says("A")}, "/messages/1"},
		"a message of no role":                {[]carrel.Message{user("U"), {}, says("A")}, "/messages/1"},
		"two answers":                         {[]carrel.Message{user("U"), says("A"), says("A")}, "/messages/1"},
		"a result of no call":                 {[]carrel.Message{user("U"), result("a"), says("A")}, "/messages/1"},
		"a result without an id":              {[]carrel.Message{user("U"), calls("a"), result(""), says("A")}, "/messages/2"},
		"one result of two":                   {[]carrel.Message{user("U"), calls("a", "b"), result("a"), says("A")}, "/messages/3"},
		"a result twice":                      {[]carrel.Message{user("U"), calls("a"), result("a"), result("a"), says("A")}, "/messages/3"},
		"calls before the results of others":  {[]carrel.Message{user("U"), calls("a"), calls("b"), result("a"), result("b"), says("A")}, "/messages/2"},
		"two calls of one id":                 {[]carrel.Message{user("U"), calls("a", "a"), result("a"), says("A")}, "/messages/1"},
		"a call without an id":                {[]carrel.Message{user("U"), calls(""), result(""), says("A")}, "/messages/1"},
		"a call of no tool":                   {[]carrel.Message{user("U"), with(calls("a"), func(m *carrel.Message) { m.ToolCalls[0].Name = "" }), result("a"), says("A")}, "/messages/1"},
		"a call without arguments":            {[]carrel.Message{user("U"), with(calls("a"), func(m *carrel.Message) { m.ToolCalls[0].Args = nil }), result("a"), says("A")}, "/messages/1"},
		"arguments that are no object":        {[]carrel.Message{user("U"), with(calls("a"), func(m *carrel.Message) { m.ToolCalls[0].Args = []byte("[1]") }), result("a"), says("A")}, "/messages/1"},
		"a turn that ends with calls":         {[]carrel.Message{user("U"), calls("a")}, "/messages/1"},
		"a turn that ends with a result":      {[]carrel.Message{user("U"), calls("a"), result("a")}, "/messages/2"},
		"a question that calls tools":         {[]carrel.Message{with(calls("a"), func(m *carrel.Message) { m.Role = carrel.RoleUser }), result("a"), says("A")}, "/messages/0"},
		"a question that is a result":         {[]carrel.Message{with(result("a"), func(m *carrel.Message) { m.Role = carrel.RoleUser }), says("A")}, "/messages/0"},
		"an answer that is a result":          {[]carrel.Message{user("U"), with(says("A"), func(m *carrel.Message) { m.ToolCallID = "a" })}, "/messages/1"},
		"a result that calls tools":           {[]carrel.Message{user("U"), calls("a"), with(calls("b"), func(m *carrel.Message) { m.Role, m.ToolCallID = carrel.RoleTool, "a" }), result("b"), says("A")}, "/messages/2"},
		"one message more than there may be":  {append(slices.Clone(long), says("A"), says("A")), "limit"},
	} {
		t.Run(name, func(t *testing.T) {
			err := memory.CheckTurn(tc.turn)
			e, _ := errors.AsType[*carrel.Error](err)
			switch {
			case tc.at == "" && err != nil:
				t.Error(err)
			case tc.at == "":
			case tc.at == "limit":
				if e == nil || e.Code != abi.LimitExceeded || e.Limit != "turnMessages" {
					t.Errorf("got %v", err)
				}
			case e == nil || e.Code != abi.InvalidParams || len(e.Faults) != 1 || e.Faults[0].Pointer != tc.at || e.Faults[0].Message == "":
				t.Errorf("got %+v, want a fault at %s", err, tc.at)
			}
		})
	}
}
