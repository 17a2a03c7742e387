package invoke_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/imports"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/plugins/pack"
)

// windows has methods that differ in what of a history they send and keep.
const windows = `---
name: w
services:
  - name: App
    scope: application
    methods:
      - {name: seeded, memoryId: id, seed: [{user: u, assistant: a}]}
      - {name: narrow, memoryId: id, window: {max: 4}, seed: [{user: u1, assistant: a1}, {user: u2, assistant: a2}]}
      - {name: tokens, memoryId: id, window: {type: tokens, max: 70}}
      - {name: wide, memoryId: id, window: {type: tokens, max: 200}}
      - {name: keeps, memoryId: id, window: {max: 4}, retain: window}
      - {name: both, memoryId: id, window: {max: 4}, retain: window, seed: [{user: u, assistant: a}]}
  - name: Named
    scope: application
    methods: [{name: chat, memoryId: id, params: {id: string, who: string, msg: string}, systemMessage: "You help {{who}}", userMessage: "{{msg}}"}]
  - name: Strict
    scope: application
    systemMessage: You are strict
    methods: [{name: chat, memoryId: id}, {name: tokens, memoryId: id, window: {type: tokens, max: 5}}]
  - name: Req
    methods: [{name: seeded, seed: [{user: u, assistant: a}]}, {name: keeps, window: {max: 4}, retain: window}]
---
`

func newWindowEnv(t *testing.T, change func(*invoke.Config)) *env {
	t.Helper()
	e := newEnv(t, change)
	for _, id := range []carrel.TenantID{acme, other} {
		wasm, _, err := pack.Prompt("w.md", []byte(windows))
		if err != nil {
			t.Fatal(err)
		}
		e.upload(id, wasm)
	}
	return e
}

// explicit is the key of an explicit id of w.
func explicit(id carrel.MemoryID) carrel.MemoryKey {
	return carrel.MemoryKey{Tenant: acme, Namespace: "w", Kind: carrel.KindExplicit, ID: id}
}

// Scenario 10.
func TestSeedsBeginAHistory(t *testing.T) {
	e := newWindowEnv(t, nil)
	seeded := func(msg string) invoke.Call { return e.call("w/App.seeded", "id", "1", "msg", msg) }
	done := e.start(t.Context(), seeded("U0"))
	(<-e.model.calls).fail(carrel.Fail("scripted", abi.ModelFailed, "not well"))
	wantError(t, (<-done).err, abi.ModelFailed, "")
	e.wantStored("1", "") // a turn that fails stores no seeds

	e.wantSent(seeded("U1"), "A1", "user:u assistant:a user:U1")
	e.wantStored("1", "user:u assistant:a user:U1 assistant:A1")
	e.wantSent(seeded("U2"), "A2", "user:u assistant:a user:U1 assistant:A1 user:U2")
	e.wantStored("1", "user:u assistant:a user:U1 assistant:A1 user:U2 assistant:A2")

	if _, err := e.scopes.Delete(t.Context(), explicit("1")); err != nil {
		t.Fatal(err)
	}
	e.wantSent(seeded("U3"), "A3", "user:u assistant:a user:U3")

	// Another method's turn is a turn: nothing is seeded behind it.
	e.run(e.call("w/App.keeps", "id", "2", "msg", "U1"), "A1")
	e.wantSent(e.call("w/App.seeded", "id", "2", "msg", "U2"), "A2", "user:U1 assistant:A1 user:U2")

	o := e.wantSent(e.call("w/Req.seeded", "msg", "U"), "A", "user:u assistant:a user:U")
	if len(o.Evicted) != 1 || o.Evicted[0].Messages != 4 {
		t.Errorf("evicted %+v", o.Evicted)
	}
}

// Seeds are turns like others: the window leaves them out, the history has them.
func TestSeedsThatDoNotFitAreStoredAllTheSame(t *testing.T) {
	e := newWindowEnv(t, nil)
	e.wantSent(e.call("w/App.narrow", "id", "1", "msg", "U1"), "A1", "user:u2 assistant:a2 user:U1")
	e.wantStored("1", "user:u1 assistant:a1 user:u2 assistant:a2 user:U1 assistant:A1")
	e.wantSent(e.call("w/App.narrow", "id", "1", "msg", "U2"), "A2", "user:U1 assistant:A1 user:U2")
}

// words is a text of so many bytes.
func words(name string, bytes int) string { return name + strings.Repeat("x", bytes-len(name)) }

func TestAWindowOfTokens(t *testing.T) {
	e := newWindowEnv(t, nil)
	// A message of 40 bytes is estimated as 14 tokens, so two turns fit beside
	// the user's message.
	var said []string
	for i := range 4 {
		user, answer := words(fmt.Sprintf("U%d", i), 40), words(fmt.Sprintf("A%d", i), 40)
		want := append([]string(nil), said[max(0, len(said)-4):]...)
		e.wantSent(e.call("w/App.tokens", "id", "1", "msg", user), answer, strings.Join(append(want, "user:"+user), " "))
		said = append(said, "user:"+user, "assistant:"+answer)
	}
	e.wantStored("1", strings.Join(said, " "))

	// A large message leaves room for less.
	large := words("U", 150)
	e.wantSent(e.call("w/App.tokens", "id", "1", "msg", large), "A", strings.Join(said[6:], " ")+" user:"+large)
}

// The provider counted few tokens, so more fits than was estimated before; the
// history is read once, although the rate is known only after that.
func TestAMeasuredRateMakesRoom(t *testing.T) {
	e := newWindowEnv(t, nil)
	user, answer := words("U", 300), words("A", 300)
	e.wantSent(e.call("w/App.wide", "id", "1", "msg", user), answer, "user:"+user)
	e.disk.views = 0
	e.wantSent(e.call("w/App.wide", "id", "1", "msg", user), answer, "user:"+user+" assistant:"+answer+" user:"+user)
	if e.disk.views != 1 {
		t.Errorf("the turn read the history %d times", e.disk.views)
	}
}

func TestATurnThatExceedsItsWindow(t *testing.T) {
	e := newWindowEnv(t, nil)
	c := e.call("w/App.tokens", "id", "1", "msg", words("U", 400))
	stream := &streamed{}
	c.Stream = stream
	e.refused(c, abi.ContextTooLarge, "window")
	if len(stream.started) != 0 {
		t.Error("a call that was refused had begun")
	}
	e.wantStored("1", "")
	e.refused(e.call("w/Strict.tokens", "id", "2", "msg", "U"), abi.ContextTooLarge, "window")
	e.wantStored("1", "", "2", "")
	e.wantSent(e.call("w/App.tokens", "id", "1", "msg", "U"), "A", "user:U")
}

func TestTheBytesOfAWindowAreBounded(t *testing.T) {
	e := newWindowEnv(t, func(c *invoke.Config) { c.Limits.WindowBytes = 10 })
	for i, want := range []string{
		"user:u assistant:a user:U1",
		"user:u assistant:a user:U1 assistant:A1 user:U2",
		"user:u assistant:a user:U1 assistant:A1 user:U2 assistant:A2 user:U3",
		"user:U2 assistant:A2 user:U3 assistant:A3 user:U4",
	} {
		e.wantSent(e.call("w/App.seeded", "id", "1", "msg", fmt.Sprintf("U%d", i+1)), fmt.Sprintf("A%d", i+1), want)
	}
}

func TestRetainWindowDeletesWhatLeavesIt(t *testing.T) {
	e := newWindowEnv(t, nil)
	for _, turn := range []struct{ user, answer, sent, stored string }{
		{"U1", "A1", "user:U1", "user:U1 assistant:A1"},
		{"U2", "A2", "user:U1 assistant:A1 user:U2", "user:U1 assistant:A1 user:U2 assistant:A2"},
		{"U3", "A3", "user:U2 assistant:A2 user:U3", "user:U2 assistant:A2 user:U3 assistant:A3"},
		{"U4", "A4", "user:U3 assistant:A3 user:U4", "user:U3 assistant:A3 user:U4 assistant:A4"},
	} {
		o := e.wantSent(e.call("w/App.keeps", "id", "1", "msg", turn.user), turn.answer, turn.sent)
		if o.Trimmed != 0 {
			t.Errorf("%d messages were trimmed", o.Trimmed)
		}
		e.wantStored("1", turn.stored)
	}
	// A turn that fails deletes nothing.
	done := e.start(t.Context(), e.call("w/App.keeps", "id", "1", "msg", "U5"))
	(<-e.model.calls).fail(carrel.Fail("scripted", abi.ModelFailed, "not well"))
	<-done
	e.wantStored("1", "user:U3 assistant:A3 user:U4 assistant:A4")
}

func TestSeedsLeaveTheWindowLikeOtherTurns(t *testing.T) {
	e := newWindowEnv(t, nil)
	both := func(msg string) invoke.Call { return e.call("w/App.both", "id", "1", "msg", msg) }
	e.wantSent(both("U1"), "A1", "user:u assistant:a user:U1")
	e.wantStored("1", "user:u assistant:a user:U1 assistant:A1")
	e.wantSent(both("U2"), "A2", "user:U1 assistant:A1 user:U2")
	e.wantStored("1", "user:U1 assistant:A1 user:U2 assistant:A2")
}

func TestAHistoryThatIsFullLosesItsOldestTurns(t *testing.T) {
	e := newEnv(t, func(c *invoke.Config) { c.Limits.MessagesPerHistory = 5 })
	for i, trimmed := range []int64{0, 0, 2, 2} {
		_, o := e.run(e.call("p/App.chat", "id", "1", "msg", fmt.Sprintf("U%d", i+1)), fmt.Sprintf("A%d", i+1))
		if o.Trimmed != trimmed {
			t.Errorf("turn %d trimmed %d messages, want %d", i+1, o.Trimmed, trimmed)
		}
	}
	e.wantStored("1", "system:You are nice user:U3 assistant:A3 user:U4 assistant:A4")
}

func TestAppendsFillAHistoryToo(t *testing.T) {
	e := newGuestEnv(t, func(c *invoke.Config) { c.Limits.MessagesPerHistory = 4 })
	k := key(carrel.KindExplicit, "1")
	got, _ := e.perform(e.call("g/App.run"), e.appends(k, "U1", "A1"), e.appends(k, "U2", "A2"), e.appends(k, "U3", "A3"))
	e.wantStored("1", "user:U2 assistant:A2 user:U3 assistant:A3")
	for i, trimmed := range []int64{0, 0, 2} {
		if a := wantDone[imports.Appended](t, got[i:i+1]); a.Trimmed != trimmed || a.MemoryID != "1" || strings.Contains(got[i].body, "trimmed") != (trimmed > 0) {
			t.Errorf("append %d is answered %s", i+1, got[i].body)
		}
	}
}
