package host_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/internal/testenv"
)

// The scenarios of the design's page on chat memory (§10) and the cases that
// play them here, on every runner that can. Scenarios 8, 9 and 12 are about one
// turn and its window alone: host/memory plays them. So does host/invoke with
// the part of 16 that needs turns which wait for each other.
//
//	 1  the second service on an id replaces …
//	 2  two ids in one request …
//	 3  without an id a request has a history of its own …
//	 4  a session's messages have one default id …
//	 5  an application-scoped and a request-scoped service on one id …;
//	    a request-scoped service ends …
//	 6  an application's explicit ids survive …
//	 7  a turn that the model failed with 500 (429, 400) …
//	10  example turns begin an empty history …
//	11  the newest whole turns are sent in a window of four (five, three, one, six) messages …
//	13  a history deleted during a turn …
//	14  twenty parallel calls on one id …
//	15  what a request touched that a kill cut off …; TestAKilledHost… under load
//	16  requests that take two ids in opposite orders …; forty handlers …
//	17  a header names an application's history …
//	§2  a session-scoped service without a session …; an HTTP session's histories …
//	§5  a call repeated with its idempotency key …
//	§6  a turn that exceeds a window of tokens alone …; a window of tokens …;
//	    a history that retains its window …; a history at its limit …
//	§7  a history in a shared namespace …; an application's history that nobody uses …
//	§9  a turn deleted by hand …

// scenario is a sentence about memory that holds on every host, however it is
// reached.
type scenario struct {
	number   string // of the scenario, or § and a chapter for a rule without one
	says     string
	plugins  []string // sources, or names of examples
	how      *tuning  // of a host of its own; nil: the one that the others share
	httpOnly bool     // it is about something that frames do not have
	restarts bool     // the host is ended and started again
	kills    bool     // the host is killed
	steps    []step
}

// starts returns how often its host starts again, about.
func (s scenario) starts() int {
	if s.restarts || s.kills {
		return 1
	}
	return 0
}

func TestScenarios(t *testing.T) {
	all := slices.Concat(numbered(), failures(), windows(t), rules())
	// A host that starts again compiles its guests again, which takes long.
	slices.SortStableFunc(all, func(a, b scenario) int { return cmp.Compare(a.starts(), b.starts()) })
	for name, start := range runners {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of them wait for a process, or for time to pass
			shared := start(t, tuning{messages: fullHistory})
			for i, s := range all {
				r := shared
				if s.httpOnly && r.socket || s.restarts && r.restart == nil || s.kills && r.kill == nil {
					continue
				}
				t.Run(s.number+": "+s.says, func(t *testing.T) {
					if s.how != nil {
						r = start(t, *s.how)
					}
					p := &play{
						runner: r, scenario: s, tenant: fmt.Sprintf("scenario-%d", i), before: len(r.model.Calls()),
						actors: map[string]*testenv.Actor{}, sessions: map[string]string{},
						sockets: map[string]*client.Socket{}, defaults: map[string]bool{},
					}
					p.do(t, s.steps)
				})
			}
		})
	}
}

// numbered are the scenarios of memory.md that need no loop; the numbers are its.
func numbered() []scenario {
	return []scenario{
		{
			number: "1", says: "the second service on an id replaces the system message of the first", plugins: []string{"nice-and-mean"},
			steps: []step{
				{call: nice, params: []string{"id", "42", "msg", "U1"}, sends: []string{"S,U1"}, memory: "42", stored: []string{"42: S,U1,A1"}},
				{call: mean, params: []string{"id", "42", "msg", "U2"}, sends: []string{"S',U1,A1,U2"}, memory: "42", stored: []string{"42: S',U1,A1,U2,A2"}},
			},
		},
		{
			number: "2", says: "two ids in one request are two conversations, gone at its end, and a third one stays", plugins: []string{"scopes"},
			steps: []step{
				{call: appChat, params: []string{"id", "bystander", "msg", "U0"}, sends: []string{"S,U0"}},
				{
					call: inScopes + "alternate", sends: []string{"S,U1a", "S,U2a", "S,U1a,A2,U1b", "S,U2a,A3,U2b"},
					evicts: []string{"1: 5 scope_closed", "2: 5 scope_closed"}, stored: []string{"bystander: S,U0,A1"},
				},
			},
		},
		{
			number: "3", says: "without an id a request has a history of its own, named after it or its WebSocket, that ends with it",
			plugins: []string{"default-ids"},
			steps: []step{
				{
					call: unnamed, params: []string{"msg", "U1"}, sends: []string{"S,U1"}, memory: "<default>#com.acme.MyChat.chat",
					evicts: []string{"<default>#com.acme.MyChat.chat: 3 scope_closed"}, stored: nothing,
				},
				{
					call: unnamed, params: []string{"msg", "U2"}, sends: []string{"S,U2"}, memory: "<default>#com.acme.MyChat.chat",
					evicts: []string{"<default>#com.acme.MyChat.chat: 3 scope_closed"}, stored: nothing,
				},
			},
		},
		{
			number: "4", says: "a session's messages have one default id until it closes, and its request-scoped service starts empty", plugins: []string{lives},
			steps: []step{
				{call: sitting, session: own, params: []string{"msg", "U1"}, sends: []string{"S,U1"}, memory: "<session>#com.acme.Sitting.chat"},
				{
					call: sitting, session: own, params: []string{"msg", "U2"}, sends: []string{"S,U1,A1,U2"}, memory: "<session>#com.acme.Sitting.chat",
					stored: []string{"<session>#com.acme.Sitting.chat: S,U1,A1,U2,A2"},
				},
				{
					call: passing, session: own, params: []string{"msg", "U3"}, sends: []string{"S',U3"}, memory: "<session>#com.acme.Passing.chat",
					evicts: []string{"<session>#com.acme.Passing.chat: 3 scope_closed"},
				},
				{
					call: passing, session: own, params: []string{"msg", "U4"}, sends: []string{"S',U4"}, memory: "<session>#com.acme.Passing.chat",
					evicts: []string{"<session>#com.acme.Passing.chat: 3 scope_closed"},
					stored: []string{"<session>#com.acme.Sitting.chat: S,U1,A1,U2,A2"},
				},
				{do: hangUp, evicts: []string{"<session>#com.acme.Sitting.chat: 5 scope_closed"}, stored: nothing},
			},
		},
		{
			number: "5", says: "an application-scoped and a request-scoped service on one id in one request end it with the request", plugins: []string{"scopes"},
			steps: []step{
				{
					call: inScopes + "restCall", params: []string{"id", "1234"}, sends: []string{"S,U1", "S,U1,A1,U2"},
					evicts: []string{"1234: 5 scope_closed"}, stored: nothing,
				},
				{call: appChat, params: []string{"id", "1234", "msg", "U3"}, sends: []string{"S,U3"}, stored: []string{"1234: S,U3,A3"}},
			},
		},
		{
			number: "5", says: "a request-scoped service ends what application-scoped ones left under its id, and nothing else", plugins: []string{"smallest-scope"},
			steps: []step{
				{call: lasting, params: []string{"id", "1234", "msg", "U1"}, sends: []string{"S,U1"}},
				{call: lasting, params: []string{"id", "untouched", "msg", "U2"}, sends: []string{"S,U2"}},
				{
					call: fleeting, params: []string{"id", "1234", "msg", "U3"}, sends: []string{"S',U1,A1,U3"},
					evicts: []string{"1234: 5 scope_closed"}, stored: []string{"untouched: S,U2,A2"},
				},
				{call: lasting, params: []string{"id", "1234", "msg", "U4"}, sends: []string{"S,U4"}, stored: []string{"1234: S,U4,A4", "untouched: S,U2,A2"}},
			},
		},
		{
			number: "6", says: "an application's explicit ids survive requests and restarts, and to delete one keeps the other", plugins: []string{"nice-and-mean"}, restarts: true,
			steps: []step{
				{call: nice, params: []string{"id", "1", "msg", "U1"}, sends: []string{"S,U1"}},
				{call: nice, params: []string{"id", "2", "msg", "U2"}, sends: []string{"S,U2"}},
				{do: restart, stored: []string{"1: S,U1,A1", "2: S,U2,A2"}},
				{call: nice, params: []string{"id", "2", "msg", "U3"}, sends: []string{"S,U2,A2,U3"}},
				{do: remove("nice-and-mean", "1"), evicts: []string{"1: 3 deleted"}, stored: []string{"2: S,U2,A2,U3,A3"}},
				{do: restart, stored: []string{"2: S,U2,A2,U3,A3"}},
			},
		},
		{
			number: "10", says: "example turns begin an empty history, once", plugins: []string{seeding},
			steps: []step{
				{call: seededChat, params: []string{"id", "1", "msg", "U1"}, sends: []string{"S,u,a,U1"}, stored: []string{"1: S,u,a,U1,A1"}},
				{call: seededChat, params: []string{"id", "1", "msg", "U2"}, sends: []string{"S,u,a,U1,A1,U2"}, stored: []string{"1: S,u,a,U1,A1,U2,A2"}},
				{do: remove("seeding", "1"), evicts: []string{"1: 7 deleted"}, stored: nothing},
				{call: seededChat, params: []string{"id", "1", "msg", "U3"}, sends: []string{"S,u,a,U3"}, stored: []string{"1: S,u,a,U3,A3"}},
			},
		},
		{
			number: "13", says: "a history deleted during a turn stays deleted, and the turn ends with scope_closed", plugins: []string{"nice-and-mean"},
			steps: []step{
				{call: nice, params: []string{"id", "1", "msg", "U1"}, sends: []string{"S,U1"}},
				{
					call: nice, params: []string{"id", "1", "msg", "U2"}, sends: []string{"S,U1,A1,U2"},
					during: []step{{do: remove("nice-and-mean", "1"), evicts: []string{"1: 3 deleted"}, stored: nothing}}, // waits for no turn
					code:   abi.ScopeClosed, stored: nothing,
				},
				{call: nice, params: []string{"id", "1", "msg", "U3"}, sends: []string{"S,U3"}, stored: []string{"1: S,U3,A3"}},
			},
		},
		{
			number: "14", says: "twenty parallel calls on one id are twenty turns in some order", plugins: []string{wide},
			steps: []step{{do: together}},
		},
		{
			number: "15", says: "what a request touched that a kill cut off is gone, and every acknowledged turn of others is there",
			plugins: []string{"smallest-scope"}, kills: true,
			steps: []step{
				{call: lasting, params: []string{"id", "kept", "msg", "U1"}, sends: []string{"S,U1"}},
				{call: lasting, params: []string{"id", "doomed", "msg", "U2"}, sends: []string{"S,U2"}},
				{
					call: fleeting, params: []string{"id", "doomed", "msg", "U3"}, sends: []string{"S',U2,A2,U3"}, lost: true,
					during: []step{
						{call: lasting, params: []string{"id", "kept", "msg", "U4"}, sends: []string{"S,U1,A1,U4"}},
						{do: kill, stored: []string{"kept: S,U1,A1,U4,A4"}},
					},
				},
				{call: lasting, params: []string{"id", "doomed", "msg", "U5"}, sends: []string{"S,U5"}, stored: []string{"doomed: S,U5,A5", "kept: S,U1,A1,U4,A4"}},
			},
		},
		{
			number: "16", says: "requests that take two ids in opposite orders all end, with every turn whole", plugins: []string{"scopes"},
			steps: []step{{do: crosswise}},
		},
		{
			number: "16", says: "forty handlers whose calls use the same ids all end, and leave nothing", plugins: []string{"scopes"},
			steps: []step{{do: entangled, stored: nothing}},
		},
		{
			number: "17", says: "a header names an application's history of its sender alone", plugins: []string{"own-default-id"},
			steps: senders(),
		},
	}
}
