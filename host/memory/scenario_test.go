package memory_test

import (
	"slices"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
)

// history is a stored history, as far as windows depend on it.
type history struct {
	system string
	turns  []carrel.Turn
	last   int64 // number of the newest turn
}

// begun is what a turn on it is built upon: an empty one begins with seeds.
func (h *history) begun(seeds [][]carrel.Message) []carrel.Turn {
	turns := slices.Clone(h.turns)
	if h.last == 0 {
		for i, seed := range seeds {
			turns = append(turns, carrel.Turn{N: int64(i) + 1, Messages: seed})
		}
	}
	return turns
}

// commit stores a turn, and drops what the window does not keep if it is what
// is retained. Nothing that is stored with the turn is dropped with it.
func (h *history) commit(w memory.Window, retain string, seeds [][]carrel.Message, turn []carrel.Message) {
	var to int64
	if retain == abi.RetainWindow {
		to = w.Drop(h.system, h.turns, h.last, turn)
	}
	h.turns = slices.DeleteFunc(h.begun(seeds), func(t carrel.Turn) bool { return t.N <= to })
	h.last = 1 + max(h.last, int64(len(h.turns))) // seeds count
	h.turns = append(h.turns, carrel.Turn{N: h.last, Messages: turn})
}

func (h *history) stored() string {
	all := messages(h.system)
	for _, t := range h.turns {
		all = append(all, t.Messages...)
	}
	return contents(all)
}

// Each case runs invocations on one history that is empty at first. An
// invocation is the messages of its current turn at each model call, and the
// turn that is stored at its end.
func TestScenarios(t *testing.T) {
	type invocation struct {
		current []string // at each model call
		turn    string   // "": it failed, nothing is stored
	}
	plain := []invocation{
		{[]string{"U1"}, "U1 A1"}, {[]string{"U2"}, "U2 A2"}, {[]string{"U3"}, "U3 A3"}, {[]string{"U4"}, "U4 A4"},
	}
	for name, tc := range map[string]struct {
		window abi.Window
		retain string
		seed   []abi.Example
		system string
		calls  []invocation
		sends  []string
		stored string
	}{
		"scenario 8: the results of two tool calls follow them, in order": {
			calls: []invocation{{[]string{"U", "U AT Ta Tb"}, "U AT Ta Tb A"}},
			sends: []string{"U", "U AT Ta Tb"}, stored: "U AT Ta Tb A",
		},
		"scenario 8: the next turn is sent both calls with both results": {
			calls: []invocation{{[]string{"U", "U AT Ta Tb"}, "U AT Ta Tb A"}, {[]string{"U2"}, "U2 A2"}},
			sends: []string{"U", "U AT Ta Tb", "U AT Ta Tb A U2"}, stored: "U AT Ta Tb A U2 A2",
		},
		"scenario 9: a rejected answer and its reprompt are sent and never stored": {
			system: "S",
			calls:  []invocation{{[]string{"U", "U A' UR"}, "U A"}, {[]string{"U2"}, "U2 A2"}},
			sends:  []string{"S U", "S U A' UR", "S U A U2"}, stored: "S U A U2 A2",
		},
		"scenario 10: seeds go in once, before the first turn": {
			system: "S", seed: []abi.Example{{User: "u", Assistant: "a"}},
			calls: []invocation{{[]string{"U1"}, "U1 A1"}, {[]string{"U2"}, "U2 A2"}},
			sends: []string{"S u a U1", "S u a U1 A1 U2"}, stored: "S u a U1 A1 U2 A2",
		},
		"scenario 10: a first turn that fails stores no seeds, and the retry sends them": {
			system: "S", seed: []abi.Example{{User: "u", Assistant: "a"}},
			calls: []invocation{{[]string{"U1"}, ""}, {[]string{"U1"}, "U1 A1"}},
			sends: []string{"S u a U1", "S u a U1"}, stored: "S u a U1 A1",
		},
		"scenario 10: seeds leave a window like other turns": {
			system: "S", seed: []abi.Example{{User: "u", Assistant: "a"}}, window: abi.Window{Type: abi.WindowMessages, Max: 4},
			calls: plain[:2],
			sends: []string{"S u a U1", "S U1 A1 U2"}, stored: "S u a U1 A1 U2 A2",
		},
		"scenario 10: seeds that left the window are not kept, where the window is": {
			system: "S", seed: []abi.Example{{User: "u", Assistant: "a"}}, window: abi.Window{Type: abi.WindowMessages, Max: 4},
			retain: abi.RetainWindow,
			calls:  plain[:2],
			sends:  []string{"S u a U1", "S U1 A1 U2"}, stored: "S U2 A2",
		},
		"scenario 10: seeds are not dropped by the commit that stores them": {
			system: "S", seed: []abi.Example{{User: "u", Assistant: "a"}}, window: abi.Window{Type: abi.WindowMessages, Max: 4},
			retain: abi.RetainWindow,
			calls:  plain[:1],
			sends:  []string{"S u a U1"}, stored: "S u a U1 A1",
		},
		"scenario 11: a window of four sends one whole turn before the third": {
			system: "S", window: abi.Window{Type: abi.WindowMessages, Max: 4},
			calls: plain[:3],
			sends: []string{"S U1", "S U1 A1 U2", "S U2 A2 U3"}, stored: "S U1 A1 U2 A2 U3 A3",
		},
		"scenario 11: a history that retains the window holds what fits with the newest turn": {
			system: "S", window: abi.Window{Type: abi.WindowMessages, Max: 5}, retain: abi.RetainWindow,
			calls: plain,
			sends: []string{"S U1", "S U1 A1 U2", "S U2 A2 U3", "S U3 A3 U4"}, stored: "S U3 A3 U4 A4",
		},
		"scenario 11: by tokens, five for each of these messages": {
			system: "S", window: abi.Window{Type: abi.WindowTokens, Max: 4 * 5},
			calls: plain[:3],
			sends: []string{"S U1", "S U1 A1 U2", "S U2 A2 U3"}, stored: "S U1 A1 U2 A2 U3 A3",
		},
		"scenario 12: a window of three sends all of a running turn": {
			window: abi.Window{Type: abi.WindowMessages, Max: 3},
			calls:  []invocation{{[]string{"U", "U AT1 T1", "U AT1 T1 AT2 T2"}, "U AT1 T1 AT2 T2 A"}},
			sends:  []string{"U", "U AT1 T1", "U AT1 T1 AT2 T2"}, stored: "U AT1 T1 AT2 T2 A",
		},
		"scenario 12: and the next turn none of it": {
			window: abi.Window{Type: abi.WindowMessages, Max: 3},
			calls:  []invocation{{[]string{"U", "U AT1 T1 AT2 T2"}, "U AT1 T1 AT2 T2 A"}, {[]string{"U2"}, "U2 A2"}},
			sends:  []string{"U", "U AT1 T1 AT2 T2", "U2"}, stored: "U AT1 T1 AT2 T2 A U2 A2",
		},
		"scenario 12: a turn larger than the window is kept whole, and alone": {
			window: abi.Window{Type: abi.WindowMessages, Max: 3}, retain: abi.RetainWindow,
			calls: []invocation{plain[0], {[]string{"U", "U AT1 T1 AT2 T2"}, "U AT1 T1 AT2 T2 A"}},
			sends: []string{"U1", "U1 A1 U", "U AT1 T1 AT2 T2"}, stored: "U AT1 T1 AT2 T2 A",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.window == (abi.Window{}) {
				tc.window = abi.Window{Type: abi.WindowMessages, Max: abi.DefaultWindowMessages}
			}
			w := memory.NewWindow(tc.window, 1<<20, 0)
			h := history{system: tc.system}
			seeds := memory.Seeds(tc.seed)
			var sends []string
			for _, call := range tc.calls {
				for _, current := range call.current {
					sends = append(sends, contents(send(t, w, h.system, h.begun(seeds), messages(current))))
				}
				if call.turn != "" {
					h.commit(w, tc.retain, seeds, messages(call.turn))
				}
			}
			if !slices.Equal(sends, tc.sends) {
				t.Errorf("sent %q, want %q", sends, tc.sends)
			}
			if h.stored() != tc.stored {
				t.Errorf("stored %q, want %q", h.stored(), tc.stored)
			}
		})
	}
}
