package invoke_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// history returns the history under a key.
func (e *env) history(k carrel.MemoryKey) store.History {
	e.t.Helper()
	h, err := e.disk.History(e.t.Context(), k.Tenant, e.scopes.Handle(k), nil, store.Cutoff{})
	if err != nil {
		e.t.Fatal(err)
	}
	return h
}

// shown shows messages as "seq/turn role:content", and those without a time,
// which are not stored, with a - for their place.
func shown(list []store.StoredMessage) string {
	var out []string
	for _, m := range list {
		place := fmt.Sprintf("%d/%d", m.Seq, m.Turn)
		if place == "0/0" && m.At.IsZero() {
			place = "-"
		}
		out = append(out, fmt.Sprintf("%s %s:%s", place, m.Role, m.Content))
	}
	return strings.Join(out, " ")
}

// window returns what the next call of a method of w would send.
func (e *env) window(h store.History, service, method string) (string, error) {
	list, err := e.Window(e.t.Context(), e.call("w/App.seeded").Caller, h, "w", carrel.ServiceName(service), carrel.MethodName(method))
	for _, m := range list {
		if m.Seq > 0 && m.At.IsZero() {
			e.t.Errorf("%s has no time", m.Content)
		}
	}
	return shown(list), err
}

func (e *env) wantWindow(id carrel.MemoryID, service, method, want string) {
	e.t.Helper()
	if got, err := e.window(e.history(explicit(id)), service, method); err != nil || got != want {
		e.t.Errorf("%s.%s would send %q, %v, want %q", service, method, got, err, want)
	}
}

func TestTheWindowOfTheNextCall(t *testing.T) {
	e := newWindowEnv(t, nil)
	for i := range 3 {
		e.run(e.call("w/Strict.chat", "id", "1", "msg", fmt.Sprintf("U%d", i+1)), fmt.Sprintf("A%d", i+1))
	}
	turns := "1/1 user:U1 2/1 assistant:A1 3/2 user:U2 4/2 assistant:A2 5/3 user:U3 6/3 assistant:A3"
	e.wantWindow("1", "Strict", "chat", "0/0 system:You are strict "+turns)
	e.wantWindow("1", "App", "seeded", "0/0 system:You are strict "+turns)                      // it declares none: the stored one
	e.wantWindow("1", "Named", "chat", "0/0 system:You are strict "+turns)                      // its own depends on params
	e.wantWindow("1", "App", "keeps", "0/0 system:You are strict 5/3 user:U3 6/3 assistant:A3") // with room for the user's
	e.wantWindow("1", "App", "tokens", "0/0 system:You are strict "+turns)                      // 8 + 6·5 tokens
	e.wantSent(e.call("w/App.keeps", "id", "1", "msg", "U4"), "A4", "system:You are strict user:U3 assistant:A3 user:U4")
	// That retained a window, so seqs and turns no longer begin with 1.
	e.wantWindow("1", "App", "seeded", "0/0 system:You are strict 7/4 user:U4 8/4 assistant:A4")

	e.run(e.call("w/App.seeded", "id", "2", "msg", "U1"), "A1")
	e.wantWindow("2", "Strict", "chat", "- system:You are strict 1/1 user:u 2/1 assistant:a 3/2 user:U1 4/2 assistant:A1")
	e.wantStored("1", "system:You are strict user:U4 assistant:A4", "2", "user:u assistant:a user:U1 assistant:A1") // looking changes nothing
}

// A history that lost turns counts its messages with gaps.
func TestTheWindowOfAHistoryWithGaps(t *testing.T) {
	e := newWindowEnv(t, nil)
	for i := range 30 {
		e.run(e.call("w/Strict.chat", "id", "1", "msg", fmt.Sprintf("U%d", i+1)), fmt.Sprintf("A%d", i+1))
	}
	for turn := int64(1); turn <= 30; turn++ {
		if turn < 20 || turn%2 == 1 {
			if err := e.scopes.DeleteTurn(t.Context(), e.history(explicit("1")), turn); err != nil {
				t.Fatal(err)
			}
		}
	}
	e.wantWindow("1", "App", "narrow", "0/0 system:You are strict 59/30 user:U30 60/30 assistant:A30")
	got, err := e.window(e.history(explicit("1")), "Strict", "chat")
	if err != nil || !strings.HasPrefix(got, "0/0 system:You are strict 39/20 user:U20 40/20 assistant:A20 43/22 user:U22 ") || !strings.HasSuffix(got, " 60/30 assistant:A30") {
		t.Errorf("got %s, %v", got, err)
	}
}

// The seeds that an empty history would be sent are in no history yet.
func TestTheWindowOfAnEmptyHistory(t *testing.T) {
	e := newWindowEnv(t, nil)
	done := e.start(t.Context(), e.call("w/App.seeded", "id", "1", "msg", "U"))
	(<-e.model.calls).fail(carrel.Fail("scripted", abi.ModelFailed, "not well"))
	<-done
	e.wantWindow("1", "App", "seeded", "- user:u - assistant:a")
	e.wantWindow("1", "App", "narrow", "- user:u2 - assistant:a2")
	e.wantWindow("1", "App", "keeps", "")
	e.wantWindow("1", "Strict", "chat", "- system:You are strict")
	e.wantWindow("1", "Named", "chat", "")
}

func TestWindowsThatAreNone(t *testing.T) {
	e := newWindowEnv(t, nil)
	e.upload(acme, guestModule(guestManifest("g", "")))
	e.run(e.call("w/App.seeded", "id", "1", "msg", "U"), "A")
	e.run(theirs(e.call("w/App.seeded", "id", "1", "msg", "U")), "A")
	h := e.history(explicit("1"))
	ended := h
	ended.Generation += 1000
	another := explicit("1")
	another.Tenant = other
	for name, tc := range map[string]struct {
		history store.History
		address string
		code    abi.Code
	}{
		"a plugin that is not there":              {h, "q/App.seeded", abi.NotFound},
		"a method that is not there":              {h, "w/App.none", abi.NotFound},
		"a history that no call of it can reach":  {h, "g/App.chat", abi.NotFound},
		"a history that has ended":                {ended, "w/App.seeded", abi.NotFound},
		"another tenant's history":                {e.history(another), "w/App.seeded", abi.NotFound},
		"a handler, which sends nothing":          {h, "g/App.run", abi.BadRequest},
		"a system message that leaves it no room": {h, "w/Strict.tokens", abi.ContextTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			at := e.call(tc.address)
			list, err := e.Window(t.Context(), at.Caller, tc.history, at.Address.Plugin, at.Address.Service, at.Address.Method)
			if carrel.CodeOf(err) != tc.code || list != nil {
				t.Errorf("got %s, %v, want %v", shown(list), err, tc.code)
			}
		})
	}
}
