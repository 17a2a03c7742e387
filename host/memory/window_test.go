package memory_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/carrelhost/carrel"
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

// aTurn draws a whole turn, with up to three rounds of tool calls.
func aTurn(t *rapid.T, n int64) carrel.Turn {
	text := fmt.Sprintf("U%d", n)
	for i := range rapid.IntRange(0, 3).Draw(t, "rounds") {
		text += fmt.Sprintf(" AT%d.%d", n, i)
		for j := range rapid.IntRange(1, 2).Draw(t, "calls") {
			text += fmt.Sprintf(" T%d.%d.%d", n, i, j)
		}
	}
	return carrel.Turn{N: n, Messages: messages(text + fmt.Sprintf(" A%d", n))}
}

// view cuts a history as a store's View does: the newest messages, at most
// limit, whatever turn they begin in.
func view(history []carrel.Turn, limit int) []carrel.Turn {
	var out []carrel.Turn
	for _, turn := range slices.Backward(history) {
		if limit == 0 {
			break
		}
		keep := min(limit, len(turn.Messages))
		limit -= keep
		turn.Messages = turn.Messages[len(turn.Messages)-keep:]
		out = append([]carrel.Turn{turn}, out...)
	}
	return out
}

func TestWindowProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var history []carrel.Turn
		for i := range rapid.IntRange(0, 8).Draw(t, "turns") {
			history = append(history, aTurn(t, int64(i+1)))
		}
		most := rapid.IntRange(1, 30).Draw(t, "max")
		system := rapid.SampledFrom([]string{"", "S"}).Draw(t, "system")
		current := aTurn(t, 99).Messages
		current = current[:rapid.IntRange(1, len(current)).Draw(t, "current")]
		recent := view(history, most)

		got := send(t, memory.Window{Messages: most}, system, recent, current)
		if !reflect.DeepEqual(got, send(t, memory.Window{Messages: most}, system, history, current)) {
			t.Fatal("what a view leaves out changes the window")
		}

		rest := got
		if system != "" {
			if rest[0].Role != carrel.RoleSystem || rest[0].Content != system {
				t.Fatalf("the first message is %+v", rest[0])
			}
			rest = rest[1:]
		}
		if rest[0].Role != carrel.RoleUser {
			t.Fatalf("the first message after the system message is %+v", rest[0])
		}
		old := rest[:len(rest)-len(current)]
		if !reflect.DeepEqual(rest[len(old):], current) {
			t.Fatalf("the current turn is sent as %q", contents(rest[len(old):]))
		}
		kept := 0 // whole turns, from the newest
		for n := len(old); n > 0; kept++ {
			turn := history[len(history)-1-kept].Messages
			if len(turn) > n || !reflect.DeepEqual(old[n-len(turn):n], turn) {
				t.Fatalf("%q is no suffix of whole turns", contents(old))
			}
			n -= len(turn)
		}
		alone := len(got) - len(old)
		if len(got) > most && len(old) > 0 {
			t.Fatalf("%d messages are sent with old turns among them, max is %d", len(got), most)
		}
		if kept < len(history) {
			if next := history[len(history)-1-kept].Messages; alone+len(old)+len(next) <= most {
				t.Fatalf("turn %q fits and is left out", contents(next))
			}
		}
	})
}
