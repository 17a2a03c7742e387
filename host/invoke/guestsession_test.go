package invoke_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/imports"
)

// A client that names a version gets that version throughout.
func TestInnerInvocationsStayOnTheNamedVersion(t *testing.T) {
	e := newGuestEnv(t, nil)
	e.upload(acme, guestModule(strings.Replace(guestManifest("g", ""), `"version":"1"`, `"version":"2"`, 1)))
	versions := map[string]bool{}
	for _, address := range []string{"g@1/Req.run", "g/Req.run"} {
		got, _ := e.perform(e.call(address), step{abi.OpContext, "{}"}, invokes("Req", "run", script(step{abi.OpContext, "{}"})))
		outer := wantDone[imports.Context](t, got[:1])
		inner := wantDone[imports.Context](t, lines(t, wantDone[imports.Invoked](t, got[1:]).Output))
		if inner.Version != outer.Version {
			t.Errorf("%s: the inner invocation runs %s, not %s", address, inner.Version, outer.Version)
		}
		versions[outer.Version] = true
	}
	if len(versions) != 2 {
		t.Errorf("ran %v", versions)
	}
}

func TestASessionScopedServiceNeedsASession(t *testing.T) {
	e := newGuestEnv(t, nil)
	e.refused(e.call("g/Ses.chat", "msg", "U"), abi.NoSession, "")
	e.refused(e.raw("g/Ses.run", script(step{abi.OpContext, "{}"})), abi.NoSession, "")
	ask := step{abi.OpMemoryDefaultID, `{"service":"Ses","method":"chat"}`}
	chat := invokes("Ses", "chat", `{"id":"1","msg":"U"}`)
	got, _ := e.perform(e.call("g/Req.run"), chat, ask)
	for _, l := range got {
		wantRefused(t, l, abi.EINVAL, abi.NoSession, "session")
	}
	e.wantStored()

	socket := e.socket()
	c := e.call("g/Req.run")
	c.Socket = socket
	got, o := e.perform(c, chat, ask)
	if m := wantDone[imports.Memory](t, got); m.MemoryID != string(socket.ID())+"#Ses.chat" || len(o.Evicted) != 0 {
		t.Errorf("got %+v, evicted %+v", m, o.Evicted)
	}
	e.wantStored("1", "user:U assistant:A1")
	if closed := socket.Close(t.Context()); len(closed.Evicted) != 1 || closed.Evicted[0].Key.ID != "1" {
		t.Errorf("the socket's end evicted %+v", closed)
	}
	e.wantStored()
}

func TestModelCallsOfAGuest(t *testing.T) {
	e := newEnv(t, nil)
	e.upload(acme, guestModule(guestManifest("g", `,"capabilities":{"models":["small"]}`)))
	e.upload(acme, guestModule(strings.ReplaceAll(guestManifest("lone", ""), `"kind":"chat"`, `"kind":"chat","model":"small"`)))
	generate := func(members string) step {
		return step{abi.OpModelGenerate, `{` + members + `"messages":[{"role":"system","content":"S"},{"role":"user","content":"U"}]}`}
	}
	c := e.raw("g/Req.run", script(generate(""), generate(`"model":"small","temperature":0.5,"stop":["x"],`), generate(`"model":"big",`), invokes("Req", "chat", `{"msg":"V"}`)))
	sent, o := e.answered(c)
	if o.err != nil || !slices.Equal(sent, []string{"system:S user:U", "system:S user:U", "user:V"}) {
		t.Fatalf("sent %q, %v", sent, o.err)
	}
	got := lines(t, o.Output)
	if g := wantDone[imports.Generated](t, got[:2]); g != (imports.Generated{
		Text: "A2", FinishReason: "stop", Model: "scripted-1", Usage: imports.Usage{InputTokens: 3, OutputTokens: 4},
	}) {
		t.Errorf("got %+v", g)
	}
	wantRefused(t, got[2], abi.EPERM, abi.Forbidden, `add "models": ["big"] to its manifest's capabilities`)
	if o.Usage.InputTokens != 9 || o.Usage.OutputTokens != 12 || len(o.Evicted) != 1 {
		t.Errorf("got %+v", o)
	}
	e.wantStored() // a model call by itself leaves no history
	// The model of its chat methods is named; the default is then not.
	got, _ = e.perform(e.call("lone/Req.run"), generate(`"model":"small",`), generate(""))
	wantDone[imports.Generated](t, got[:1])
	wantRefused(t, got[1], abi.EPERM, abi.Forbidden, `add "models": ["default"]`)
}
