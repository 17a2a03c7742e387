package memory_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
)

func TestSystem(t *testing.T) {
	for name, tc := range map[string]struct {
		stored, rendered string
		send             string
		change           bool
	}{
		"none stored and none declared sends none": {"", "", "", false},
		"the first one is stored":                  {"", "S1", "S1", true},
		"the same one changes nothing":             {"S1", "S1", "S1", false},
		"another one takes its place":              {"S1", "S2", "S2", true},
		"none declared leaves and sends the stored": {
			"S1", "", "S1", false,
		},
		"one that differs in a blank is another": {"S1", "S1 ", "S1 ", true},
	} {
		t.Run(name, func(t *testing.T) {
			send, change := memory.System(tc.stored, tc.rendered)
			if send != tc.send || (change != nil) != tc.change || change != nil && *change != tc.rendered {
				t.Errorf("got %q and %v", send, change)
			}
		})
	}
}

// messages makes messages of a text such as "U1 AT1 T1 A1": U is a user's, A
// an assistant's, AT one with a tool call, T a tool's, S a system message.
func messages(text string) []carrel.Message {
	var out []carrel.Message
	for _, word := range strings.Fields(text) {
		m := carrel.Message{Content: word}
		switch {
		case word[0] == 'S':
			m.Role = carrel.RoleSystem
		case word[0] == 'U':
			m.Role = carrel.RoleUser
		case word[0] == 'T':
			m.Role, m.ToolCallID = carrel.RoleTool, "call"
		case strings.HasPrefix(word, "AT"):
			m.Role, m.ToolCalls = carrel.RoleAssistant, []carrel.ToolCall{{ID: "call", Name: "tool"}}
		default:
			m.Role = carrel.RoleAssistant
		}
		out = append(out, m)
	}
	return out
}

// turns makes turns of texts, numbered from first.
func turns(first int64, texts ...string) []carrel.Turn {
	var out []carrel.Turn
	for i, text := range texts {
		out = append(out, carrel.Turn{N: first + int64(i), Messages: messages(text)})
	}
	return out
}

func contents(list []carrel.Message) string {
	var out []string
	for _, m := range list {
		out = append(out, m.Content)
	}
	return strings.Join(out, " ")
}

// send returns what a window that can hold system and current sends.
func send(t rapid.TB, w memory.Window, system string, recent []carrel.Turn, current []carrel.Message) []carrel.Message {
	t.Helper()
	sent, err := w.Send(system, recent, current)
	if err != nil {
		t.Fatal(err)
	}
	return sent
}

func TestWindow(t *testing.T) {
	plain := turns(1, "U1 A1", "U2 A2")
	for name, tc := range map[string]struct {
		most    int
		system  string
		recent  []carrel.Turn
		current string
		want    string
	}{
		"an empty history sends the current turn alone":                       {20, "", nil, "U1", "U1"},
		"an empty history sends the system message first":                     {20, "S", nil, "U1", "S U1"},
		"a window that holds everything sends everything":                     {20, "S", plain, "U3", "S U1 A1 U2 A2 U3"},
		"a window that holds everything exactly sends everything":             {6, "S", plain, "U3", "S U1 A1 U2 A2 U3"},
		"one message too many drops a whole turn":                             {5, "S", plain, "U3", "S U2 A2 U3"},
		"scenario 11: of four messages the third send has one turn":           {4, "S", plain, "U3", "S U2 A2 U3"},
		"without a system message there is room for one message more":         {5, "", plain, "U3", "U1 A1 U2 A2 U3"},
		"a window of three has no room for half a turn":                       {3, "S", plain, "U3", "S U3"},
		"a window of one sends system and current all the same":               {1, "S", plain, "U3", "S U3"},
		"a window of one without system sends the current message":            {1, "", plain, "U3", "U3"},
		"scenario 12: a turn longer than the window is sent whole, first":     {3, "", nil, "U", "U"},
		"scenario 12: a turn longer than the window is sent whole, in rounds": {3, "", plain, "U AT1 T1", "U AT1 T1"},
		"scenario 12: a turn longer than the window is sent whole, at last":   {3, "S", plain, "U AT1 T1 AT2 T2", "S U AT1 T1 AT2 T2"},
		"the current turn's messages all count":                               {6, "", plain, "U AT1 T1", "U2 A2 U AT1 T1"},
		"tool messages of old turns count": {
			6, "S", turns(1, "U1 A1", "U2 AT2 T2 A2"), "U3", "S U2 AT2 T2 A2 U3",
		},
		"a call and its result are not parted": {
			5, "S", turns(1, "U1 A1", "U2 AT2 T2 A2"), "U3", "S U3",
		},
		"the first turn that does not fit ends the window, smaller older ones too": {
			6, "S", turns(1, "U1 A1", "U2 AT2 T2 A2", "U3 A3"), "U4", "S U3 A3 U4",
		},
		"a first turn without its user message is left out": {
			20, "S", append(turns(1, "A1"), turns(2, "U2 A2")...), "U3", "S U2 A2 U3",
		},
		"a first turn that begins with a tool's result is left out": {
			20, "", append(turns(1, "T1 A1"), turns(2, "U2 A2")...), "U3", "U2 A2 U3",
		},
		"a history of nothing but a partial turn sends none of it": {
			20, "S", turns(7, "AT1 T1 A1"), "U2", "S U2",
		},
		"a turn without messages ends the window": {
			20, "", []carrel.Turn{plain[0], {N: 2}}, "U3", "U3",
		},
		"seeds are turns like others": {
			20, "S", turns(1, "Ua Aa", "U1 A1"), "U2", "S Ua Aa U1 A1 U2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := send(t, memory.Window{Messages: tc.most}, tc.system, tc.recent, messages(tc.current))
			if contents(got) != tc.want {
				t.Errorf("got %q, want %q", contents(got), tc.want)
			}
			if tc.system != "" && got[0].Role != carrel.RoleSystem {
				t.Errorf("the first message is of role %s", got[0].Role)
			}
		})
	}
}

func TestWindowSharesNoMemoryWithTheCurrentTurn(t *testing.T) {
	current := make([]carrel.Message, 1, 8)
	current[0] = messages("U2")[0]
	got := send(t, memory.Window{Messages: 20}, "S", turns(1, "U1 A1"), current)
	_ = append(got[:3], carrel.Message{Content: "overwritten"})
	_ = append(current, carrel.Message{Content: "appended"})
	if current[0].Content != "U2" || len(got) != 4 {
		t.Errorf("got %q and %q", contents(current), contents(got))
	}
}

func TestWindowsOfTokensAndBytes(t *testing.T) {
	plain := turns(1, "U1 A1", "U2 A2") // 5 tokens and 2 bytes a message, at the default rate
	for name, tc := range map[string]struct {
		window  memory.Window
		system  string
		recent  []carrel.Turn
		current string
		want    string // "": it does not fit
	}{
		"tokens that hold everything exactly":                  {memory.Window{Tokens: 30}, "S", plain, "U3", "S U1 A1 U2 A2 U3"},
		"a token too few drops a whole turn":                   {memory.Window{Tokens: 29}, "S", plain, "U3", "S U2 A2 U3"},
		"without a system message there is room for five more": {memory.Window{Tokens: 25}, "", plain, "U3", "U1 A1 U2 A2 U3"},
		"system and current alone that fit exactly":            {memory.Window{Tokens: 10}, "S", plain, "U3", "S U3"},
		"system and current alone that do not fit":             {memory.Window{Tokens: 9}, "S", plain, "U3", ""},
		"a running turn that outgrows its tokens":              {memory.Window{Tokens: 20}, "", plain, "U AT1 T1 AT2 T2", ""},
		"a rate that was measured counts":                      {memory.Window{Tokens: 30, TokenRate: 1000}, "S", plain, "U3", "S U2 A2 U3"},
		"the first turn that does not fit ends it": {
			memory.Window{Tokens: 30}, "", turns(1, "U1 A1", "U"+strings.Repeat("2", 99)+" A2", "U3 A3"), "U4", "U3 A3 U4",
		},
		"tool calls count, their arguments too": {memory.Window{Tokens: 40}, "", turns(1, "U1 AT1 T1 A1"), "U2", "U1 AT1 T1 A1 U2"},
		"bytes that hold everything exactly":    {memory.Window{Messages: 20, Bytes: 8}, "S", plain, "U3", "S U1 A1 U2 A2 U3"},
		"a byte too few drops a whole turn":     {memory.Window{Messages: 20, Bytes: 7}, "S", plain, "U3", "S U2 A2 U3"},
		"bytes too few for a turn":              {memory.Window{Messages: 20, Bytes: 1}, "S", plain, "U3", "S U3"},
		"the first turn that has too many bytes ends it": {
			memory.Window{Bytes: 10}, "", turns(1, "U1 A1", "U222222222 A2", "U3 A3"), "U4", "U3 A3 U4",
		},
		"the narrowest bound counts":         {memory.Window{Messages: 20, Tokens: 29, Bytes: 1 << 20}, "S", plain, "U3", "S U2 A2 U3"},
		"a window without bounds sends all":  {memory.Window{}, "S", plain, "U3", "S U1 A1 U2 A2 U3"},
		"a partial turn is never part of it": {memory.Window{Tokens: 1000}, "", append(turns(1, "A1"), plain[1:]...), "U3", "U2 A2 U3"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.window.Send(tc.system, tc.recent, messages(tc.current))
			if tc.want == "" {
				e, ok := errors.AsType[*carrel.Error](err)
				if !ok || e.Code != abi.ContextTooLarge || e.Limit != "window" || !strings.Contains(e.Msg, "`window.max`") || got != nil {
					t.Errorf("got %q, %v; want context_too_large", contents(got), err)
				}
				return
			}
			if err != nil || contents(got) != tc.want {
				t.Errorf("got %q, %v, want %q", contents(got), err, tc.want)
			}
		})
	}
}

func TestDrop(t *testing.T) {
	plain := turns(4, "U4 A4", "U5 A5")
	for name, tc := range map[string]struct {
		window  memory.Window
		recent  []carrel.Turn
		last    int64
		current string
		want    int64
	}{
		"an empty history has nothing to drop":                  {memory.Window{Messages: 1}, nil, 0, "U1 A1", 0},
		"a history that fits keeps all":                         {memory.Window{Messages: 7}, turns(1, "U1 A1", "U2 A2"), 2, "U3 A3", 0},
		"what was not read is older than what fits":             {memory.Window{Messages: 7}, plain, 5, "U6 A6", 3},
		"a turn that does not fit with the newest goes":         {memory.Window{Messages: 6}, plain, 5, "U6 A6", 4},
		"a newest turn that fills the window drops all others":  {memory.Window{Messages: 3}, plain, 5, "U6 A6", 5},
		"a newest turn larger than the window drops all others": {memory.Window{Tokens: 3}, plain, 5, "U6 A6", 5},
		"numbers that were deleted by hand leave gaps":          {memory.Window{Messages: 5}, append(turns(2, "U2 A2"), turns(9, "U9 A9")...), 9, "U A", 8},
		"the newest turn was deleted by hand, and nothing fits": {memory.Window{Messages: 3}, plain, 7, "U A", 7},
		"bytes count": {memory.Window{Messages: 20, Bytes: 4}, plain, 5, "U6 A6", 4},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.window.Drop("S", tc.recent, tc.last, messages(tc.current)); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestRead(t *testing.T) {
	for name, tc := range map[string]struct {
		window   abi.Window
		bytes    int64
		rate     int
		messages int
		want     int64
	}{
		"messages, and the host's bytes":             {abi.Window{Type: abi.WindowMessages, Max: 20}, 1000, 0, 20, 1000},
		"messages without a bound on bytes":          {abi.Window{Type: abi.WindowMessages, Max: 20}, 0, 0, 20, 0},
		"tokens bound messages and bytes":            {abi.Window{Type: abi.WindowTokens, Max: 400}, 1 << 20, 0, 101, 1601},
		"tokens bound bytes where the host does not": {abi.Window{Type: abi.WindowTokens, Max: 400}, 0, 1000, 101, 401},
		"the host's bytes are fewer":                 {abi.Window{Type: abi.WindowTokens, Max: abi.MaxWindowTokens}, 1 << 20, 0, 500001, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			messages, bytes := memory.NewWindow(tc.window, tc.bytes, tc.rate).Read()
			if messages != tc.messages || bytes != tc.want {
				t.Errorf("got %d messages, %d bytes", messages, bytes)
			}
		})
	}
	if messages, bytes := (memory.Window{}).Read(); messages != math.MaxInt32 || bytes != 0 {
		t.Errorf("a window without bounds reads %d messages, %d bytes", messages, bytes)
	}
}
