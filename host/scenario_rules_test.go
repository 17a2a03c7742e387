package host_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/internal/testenv"
)

// A full history of the scenarios' hosts: twenty turns and a system message.
const (
	fullTurns   = 20
	fullHistory = 2*fullTurns + 1
)

// seeding is a plugin with an example turn.
const seeding = `---
name: seeding
services:
  - name: Seeded
    scope: application
    methods:
      - name: chat
        memoryId: id
        seed: [{ user: u, assistant: a }]
---
S`

// narrow is a plugin with windows of 29 tokens. By the estimate a message of
// one to four letters is 5 tokens, so that three turns and the system message
// are 30 when the third has no answer yet.
const narrow = `---
name: narrow
services:
  - name: Keeps
    scope: application
    methods: [{ name: chat, memoryId: id, window: { type: tokens, max: 29 } }]
  - name: Forgets
    scope: application
    methods: [{ name: chat, memoryId: id, window: { type: tokens, max: 29 }, retain: window }]
---
# Keeps
S

# Forgets
S`

const (
	seededChat    = "seeding/Seeded.chat"
	narrowKeeps   = "narrow/Keeps.chat"
	narrowForgets = "narrow/Forgets.chat"
)

// failures are scenario 7 for each way in which a model server fails.
func failures() []scenario {
	var all []scenario
	for _, status := range []int{500, 429, 400} {
		all = append(all, scenario{
			number: "7", says: fmt.Sprintf("a turn that the model failed with %d is not stored, and its retry is not doubled", status),
			plugins: []string{"nice-and-mean"},
			steps: []step{
				{call: nice, params: []string{"id", "1", "msg", "U1"}, sends: []string{"S,U1"}},
				{
					call: nice, params: []string{"id", "1", "msg", "U2"}, fails: status, sends: []string{"S,U1,A1,U2"},
					code: abi.ModelFailed, stored: []string{"1: S,U1,A1"},
				},
				{call: nice, params: []string{"id", "1", "msg", "U2"}, sends: []string{"S,U1,A1,U2"}, stored: []string{"1: S,U1,A1,U2,A3"}},
			},
		})
	}
	return all
}

// windows are scenario 11 for windows of several sizes.
func windows(t *testing.T) []scenario {
	t.Helper()
	var all []scenario
	for _, w := range []struct {
		max         int
		says        string
		send2, last string
	}{
		{4, "of four messages, as the example says", "S,U1,A1,U2", "S,U2,A2,U3"},
		{5, "of five messages, with no room for half a turn", "S,U1,A1,U2", "S,U2,A2,U3"},
		{3, "of three messages, with no room for a turn before", "S,U2", "S,U3"},
		{1, "of one message, which the turn exceeds", "S,U2", "S,U3"},
		{6, "of six messages, all there are", "S,U1,A1,U2", "S,U1,A1,U2,A2,U3"},
	} {
		source := strings.Replace(testenv.Example(t, "short-memory"), "max: 4", fmt.Sprintf("max: %d", w.max), 1)
		all = append(all, scenario{
			number: "11", says: "the newest whole turns are sent in a window " + w.says + ", and the history keeps all", plugins: []string{source},
			steps: []step{
				{call: goldfish, params: []string{"id", "1", "msg", "U1"}, sends: []string{"S,U1"}},
				{call: goldfish, params: []string{"id", "1", "msg", "U2"}, sends: []string{w.send2}},
				{call: goldfish, params: []string{"id", "1", "msg", "U3"}, sends: []string{w.last}, stored: []string{"1: S,U1,A1,U2,A2,U3,A3"}},
			},
		})
	}
	return all
}

// senders are the calls of scenario 17: each sender's two turns under one
// value of the header share a history that nobody else's do.
func senders() []step {
	var all []step
	for i, who := range []string{"", "backend", "colleague", "backend/ada", "backend/bob", "elsewhere"} {
		n := 2*i + 1
		all = append(all,
			step{
				call: byHeader, who: who, header: "blue", params: []string{"msg", fmt.Sprintf("U%d", n)},
				sends: []string{fmt.Sprintf("S,U%d", n)}, memory: "blue#com.acme.MyChat.chat",
			},
			step{
				call: byHeader, who: who, header: "blue", params: []string{"msg", fmt.Sprintf("U%d", n+1)},
				sends: []string{fmt.Sprintf("S,U%d,A%d,U%d", n, n, n+1)}, memory: "blue#com.acme.MyChat.chat",
			})
	}
	return append(all,
		step{
			call: byHeader, header: "green", params: []string{"msg", "U13"}, sends: []string{"S,U13"}, memory: "green#com.acme.MyChat.chat",
		},
		step{ // an end user is the same one through every key
			call: byHeader, who: "colleague/ada", header: "blue", params: []string{"msg", "U14"}, sends: []string{"S," + turns(7, 8) + ",U14"},
			stored: []string{
				"blue#com.acme.MyChat.chat: S," + turns(1, 2), "blue#com.acme.MyChat.chat: S," + turns(3, 4),
				"blue#com.acme.MyChat.chat: S," + turns(5, 6), "blue#com.acme.MyChat.chat: S," + turns(7, 8) + ",U14,A14",
				"blue#com.acme.MyChat.chat: S," + turns(9, 10), "green#com.acme.MyChat.chat: S,U13,A13",
			},
		})
}

// rules are what memory.md says without a scenario, each with its chapter.
func rules() []scenario {
	return []scenario{
		{
			number: "§2", says: "a session-scoped service without a session is refused before any work", plugins: []string{lives}, httpOnly: true,
			steps: []step{{call: sitting, params: []string{"msg", "U1"}, code: abi.NoSession, stored: nothing}},
		},
		{
			number: "§2", says: "an HTTP session's histories outlive restarts and end with it", plugins: []string{lives}, restarts: true,
			steps: []step{
				{call: sitting, session: attached, params: []string{"msg", "U1"}, sends: []string{"S,U1"}, memory: "<session>#com.acme.Sitting.chat"},
				{call: staying, params: []string{"id", "stays", "msg", "U2"}, sends: []string{"S'',U2"}},
				{do: restart, stored: []string{"<session>#com.acme.Sitting.chat: S,U1,A1", "stays: S'',U2,A2"}},
				{call: sitting, session: attached, params: []string{"msg", "U3"}, sends: []string{"S,U1,A1,U3"}, memory: "<session>#com.acme.Sitting.chat"},
				{do: hangUp, evicts: []string{"<session>#com.acme.Sitting.chat: 5 scope_closed"}, stored: []string{"stays: S'',U2,A2"}},
				{call: sitting, session: attached, params: []string{"msg", "U4"}, code: abi.SessionClosed, stored: []string{"stays: S'',U2,A2"}},
			},
		},
		{
			number: "§5", says: "a call repeated with its idempotency key is answered again and made once", plugins: []string{"smallest-scope"}, httpOnly: true,
			steps: []step{
				{call: lasting, key: "K", params: []string{"id", "1", "msg", "U1"}, sends: []string{"S,U1"}},
				{call: lasting, key: "K", params: []string{"id", "1", "msg", "U1"}, replayed: true, stored: []string{"1: S,U1,A1"}},
				{call: lasting, key: "K", params: []string{"id", "1", "msg", "U2"}, code: abi.IdempotencyMismatch, stored: []string{"1: S,U1,A1"}},
				{call: fleeting, key: "L", params: []string{"id", "1", "msg", "U3"}, sends: []string{"S',U1,A1,U3"}, evicts: []string{"1: 5 scope_closed"}},
				{call: lasting, key: "M", params: []string{"id", "1", "msg", "U1"}, sends: []string{"S,U1"}, stored: []string{"1: S,U1,A3"}},
				// The request's scope is not closed once more.
				{call: fleeting, key: "L", params: []string{"id", "1", "msg", "U3"}, replayed: true, stored: []string{"1: S,U1,A3"}},
			},
		},
		{
			number: "§6", says: "a turn that exceeds a window of tokens alone is refused before the model is called, and is not stored", plugins: []string{narrow},
			steps: []step{
				{call: narrowKeeps, params: []string{"id", "1", "msg", "U1"}, sends: []string{"S,U1"}},
				{
					call: narrowKeeps, params: []string{"id", "1", "msg", strings.Repeat("U", 200)},
					code: abi.ContextTooLarge, stored: []string{"1: S,U1,A1"},
				},
				{call: narrowKeeps, params: []string{"id", "1", "msg", "U2"}, sends: []string{"S,U1,A1,U2"}, stored: []string{"1: S,U1,A1,U2,A2"}},
			},
		},
		{
			number: "§6", says: "a window of tokens sends the newest whole turns, and the history keeps all", plugins: []string{narrow},
			steps: []step{
				{call: narrowKeeps, params: []string{"id", "1", "msg", "U1"}, sends: []string{"S,U1"}},
				{call: narrowKeeps, params: []string{"id", "1", "msg", "U2"}, sends: []string{"S,U1,A1,U2"}},
				{call: narrowKeeps, params: []string{"id", "1", "msg", "U3"}, sends: []string{"S,U2,A2,U3"}, stored: []string{"1: S,U1,A1,U2,A2,U3,A3"}},
			},
		},
		{
			number: "§6", says: "a history that retains its window loses what the window leaves out", plugins: []string{narrow},
			steps: []step{
				{call: narrowForgets, params: []string{"id", "1", "msg", "U1"}, sends: []string{"S,U1"}},
				{call: narrowForgets, params: []string{"id", "1", "msg", "U2"}, sends: []string{"S,U1,A1,U2"}, stored: []string{"1: S,U1,A1,U2,A2"}},
				{call: narrowForgets, params: []string{"id", "1", "msg", "U3"}, sends: []string{"S,U2,A2,U3"}, stored: []string{"1: S,U2,A2,U3,A3"}},
			},
		},
		{
			number: "§6", says: "a history at its limit loses its oldest whole turns, and the answer says so", plugins: []string{wide},
			steps: []step{
				{do: fill, stored: []string{"1: S," + turns(1, fullTurns)}},
				{
					call: wideChat, params: []string{"id", "1", "msg", "U21"}, sends: []string{"S," + turns(1, fullTurns) + ",U21"},
					trims: 2, stored: []string{"1: S," + turns(2, fullTurns+1)},
				},
			},
		},
		{
			number: "§7", says: "a history in a shared namespace dies with the first scope that used it", plugins: []string{pooled("one"), pooled("two")},
			steps: []step{
				{do: share("pool", "one", "two")},
				{call: "one/App.chat", params: []string{"id", "1", "msg", "U1"}, sends: []string{"U1"}},
				{call: "two/App.chat", params: []string{"id", "1", "msg", "U2"}, sends: []string{"U1,A1,U2"}},
				{call: "two/Req.chat", params: []string{"id", "1", "msg", "U3"}, sends: []string{"U1,A1,U2,A2,U3"}, evicts: []string{"1: 6 scope_closed"}, stored: nothing},
				{call: "one/App.chat", params: []string{"id", "1", "msg", "U4"}, sends: []string{"U4"}, stored: []string{"1: U4,A4"}},
			},
		},
		{
			number: "§7", says: "an application's history that nobody uses expires", plugins: []string{"nice-and-mean"},
			// Nothing may take longer on its host than a history lives.
			how: &tuning{messages: fullHistory, timeout: 3 * time.Second, idle: 3001 * time.Millisecond},
			steps: []step{
				{call: nice, params: []string{"id", "1", "msg", "U1"}, sends: []string{"S,U1"}},
				{do: expire, stored: nothing},
				{call: nice, params: []string{"id", "1", "msg", "U2"}, sends: []string{"S,U2"}},
				{do: recorded, evicts: []string{"1: 3 expired"}},
			},
		},
		{
			number: "§9", says: "a turn deleted by hand is not sent any more", plugins: []string{"nice-and-mean"},
			steps: []step{
				{call: nice, params: []string{"id", "1", "msg", "U1"}, sends: []string{"S,U1"}},
				{call: nice, params: []string{"id", "1", "msg", "U2"}, sends: []string{"S,U1,A1,U2"}},
				{do: removeTurn("nice-and-mean", "1", 1), stored: []string{"1: S,U2,A2"}},
				{call: nice, params: []string{"id", "1", "msg", "U3"}, sends: []string{"S,U2,A2,U3"}, stored: []string{"1: S,U2,A2,U3,A3"}},
			},
		},
	}
}
