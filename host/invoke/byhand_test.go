package invoke_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/store"
)

// longAgo is long before every test.
var longAgo = time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)

// history returns the history under a key.
func (e *env) history(k carrel.MemoryKey) store.History {
	e.t.Helper()
	h, err := e.disk.History(e.t.Context(), k.Tenant, e.scopes.Handle(k), nil, store.Cutoff{})
	if err != nil {
		e.t.Fatal(err)
	}
	return h
}

// shown shows messages as "seq/turn role:content".
func shown(list []store.StoredMessage) string {
	var out []string
	for _, m := range list {
		out = append(out, fmt.Sprintf("%d/%d %s:%s", m.Seq, m.Turn, m.Role, m.Content))
	}
	return strings.Join(out, " ")
}

// window returns what the next call of a method of w would send.
func (e *env) window(h store.History, service, method string) (string, error) {
	list, err := e.Window(e.t.Context(), e.call("w/App.seeded").Caller, h, "w", carrel.ServiceName(service), carrel.MethodName(method))
	for _, m := range list {
		if m.At.IsZero() {
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
	e.wantWindow("2", "Strict", "chat", "0/0 system:You are strict 1/1 user:u 2/1 assistant:a 3/2 user:U1 4/2 assistant:A1")
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
	e.wantWindow("1", "App", "seeded", "0/0 user:u 0/0 assistant:a")
	e.wantWindow("1", "App", "narrow", "0/0 user:u2 0/0 assistant:a2")
	e.wantWindow("1", "App", "keeps", "")
	e.wantWindow("1", "Strict", "chat", "0/0 system:You are strict")
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

// imported is an import into w of turns such as "U1 A1".
func (e *env) imported(id carrel.MemoryID, turns ...string) invoke.Import {
	c := e.call("w/App.seeded")
	in := invoke.Import{Request: c.Request, Caller: c.Caller, Plugin: "w", Kind: carrel.KindExplicit, ID: id}
	for _, text := range turns {
		var messages []carrel.Message
		for _, word := range strings.Fields(text) {
			role := carrel.RoleUser
			if word[0] == 'A' {
				role = carrel.RoleAssistant
			}
			messages = append(messages, carrel.Message{Role: role, Content: word})
		}
		in.Turns = append(in.Turns, store.NewTurn{Messages: messages})
	}
	return in
}

func (e *env) doImport(in invoke.Import) store.History {
	e.t.Helper()
	h, err := e.Import(e.t.Context(), in)
	if err != nil {
		e.t.Fatal(err)
	}
	return h
}

func TestAnImportIsAHistoryLikeOthers(t *testing.T) {
	e := newWindowEnv(t, nil)
	in := e.imported("1", "U1 A1", "U2 A2")
	in.System = "You were"
	in.Caller.Subject = "ann"
	in.Turns[0].At = longAgo
	h := e.doImport(in)
	if h.Key != explicit("1") || h.Plugin != "w" || h.Messages != 5 || h.LastTurn != 2 || !h.Application {
		t.Errorf("it is %+v", h)
	}
	rows, err := e.disk.Messages(t.Context(), h.Key, h.Generation, -1, 10)
	if err != nil || shown(rows) != "0/0 system:You were 1/1 user:U1 2/1 assistant:A1 3/2 user:U2 4/2 assistant:A2" {
		t.Fatalf("it holds %s, %v", shown(rows), err)
	}
	if rows[1].Origin != carrel.OriginImport || !rows[1].At.Equal(longAgo) || rows[3].Origin != carrel.OriginImport || !rows[3].At.After(longAgo) {
		t.Errorf("its turns are %+v", rows[1:])
	}
	if in.Turns[0].Origin != "" {
		t.Error("the caller's turns were changed")
	}
	for by, want := range map[store.Toucher]bool{{Key: "key_1", Subject: "ann"}: true, {Key: "key_1"}: false} {
		if _, err := e.disk.History(t.Context(), acme, h.Handle, &by, store.Cutoff{}); (err == nil) != want {
			t.Errorf("%v sees it: %v", by, err)
		}
	}
	// It is not seeded, and lives as long as the plugin is active.
	e.wantSent(e.call("w/App.seeded", "id", "1", "msg", "U3"), "A3", "system:You were user:U1 assistant:A1 user:U2 assistant:A2 user:U3")
	before, err := e.disk.Deactivate(t.Context(), acme, "w")
	if err != nil {
		t.Fatal(err)
	}
	if closed := e.scopes.CloseApplication(t.Context(), before.Scope, carrel.ReasonPluginRemoved); len(closed.Evicted) != 1 {
		t.Errorf("its end evicted %+v", closed)
	}
	e.wantStored()
}

func TestWhatAnImportFinds(t *testing.T) {
	e := newWindowEnv(t, nil)
	e.run(e.call("w/App.keeps", "id", "1", "msg", "U1"), "A1")
	done := e.start(t.Context(), e.call("w/App.keeps", "id", "2", "msg", "U"))
	(<-e.model.calls).fail(carrel.Fail("scripted", abi.ModelFailed, "not well"))
	<-done

	_, err := e.Import(t.Context(), e.imported("1", "U A"))
	wantError(t, err, abi.HistoryConflict, "")
	e.wantStored("1", "user:U1 assistant:A1", "2", "")
	e.doImport(e.imported("2", "U2 A2")) // it was only touched
	e.wantStored("1", "user:U1 assistant:A1", "2", "user:U2 assistant:A2")
	system := e.imported("3")
	system.System = "S"
	e.doImport(system)
	_, err = e.Import(t.Context(), e.imported("3", "U A"))
	wantError(t, err, abi.HistoryConflict, "")
	e.wantStored("1", "user:U1 assistant:A1", "2", "user:U2 assistant:A2", "3", "system:S")
	if got := e.stored(other); len(got) != 0 {
		t.Errorf("the other tenant has %q", got)
	}
}

func TestAnImportWaitsForTheTurn(t *testing.T) {
	e := newWindowEnv(t, nil)
	held, done := e.hold(e.call("w/App.keeps", "id", "1", "msg", "U1"))
	imported := make(chan error, 1)
	go func() {
		_, err := e.Import(t.Context(), e.imported("1", "U A"))
		imported <- err
	}()
	for e.Stats().Waiting == 0 {
		yield(1)
	}
	held.say("A1")
	<-done
	wantError(t, <-imported, abi.HistoryConflict, "")
	e.wantStored("1", "user:U1 assistant:A1")
	e.wantSent(e.call("w/App.keeps", "id", "1", "msg", "U2"), "A2", "user:U1 assistant:A1 user:U2") // the turn is free
}

func TestImportsThatAreRefused(t *testing.T) {
	own := func(id carrel.MemoryID, owner carrel.Owner, role carrel.KeyRole) func(*invoke.Import) {
		return func(in *invoke.Import) { in.Kind, in.ID, in.Owner, in.Caller.Role = carrel.KindPlugin, id, owner, role }
	}
	for name, tc := range map[string]struct {
		change func(*invoke.Import)
		code   abi.Code
		limit  string
	}{
		"a viewer may not":                         {func(in *invoke.Import) { in.Caller.Role = carrel.RoleViewer }, abi.Forbidden, ""},
		"a plugin that is not active":              {func(in *invoke.Import) { in.Plugin = "q" }, abi.NotFound, ""},
		"a plugin of another tenant":               {func(in *invoke.Import) { in.Caller.Tenant = "nobody" }, abi.NotFound, ""},
		"an id that is none":                       {func(in *invoke.Import) { in.ID = "a\nb" }, abi.InvalidMemoryID, ""},
		"an id that is empty":                      {func(in *invoke.Import) { in.ID = "" }, abi.InvalidMemoryID, ""},
		"the kind of a request":                    {func(in *invoke.Import) { in.Kind = carrel.KindRequest }, abi.InvalidParams, ""},
		"the kind of a session":                    {func(in *invoke.Import) { in.Kind = carrel.KindSession }, abi.InvalidParams, ""},
		"a kind that nobody knows":                 {func(in *invoke.Import) { in.Kind = "" }, abi.InvalidParams, ""},
		"an explicit id with an owner":             {func(in *invoke.Import) { in.Owner = "subject:ann" }, abi.InvalidParams, ""},
		"another caller's header":                  {own("c#App.chat", "subject:bob", carrel.RoleCaller), abi.Forbidden, ""},
		"a subject's or export's id, for a caller": {own("bob#App.chat", "", carrel.RoleCaller), abi.Forbidden, ""},
		"an owner that is none":                    {own("c#App.chat", "bob", carrel.RoleOwner), abi.InvalidParams, ""},
		"an owner without a name":                  {own("c#App.chat", "key:", carrel.RoleOwner), abi.InvalidParams, ""},
		"a provider's id without its method":       {own("c", "", carrel.RoleOwner), abi.InvalidMemoryID, ""},
		"a provider's id of no method":             {own("c#App", "", carrel.RoleOwner), abi.InvalidMemoryID, ""},
		"a provider's id that is too long":         {own(carrel.MemoryID(strings.Repeat("x", 129)+"#App.chat"), "", carrel.RoleOwner), abi.InvalidMemoryID, ""},
		"a system message that is too long":        {func(in *invoke.Import) { in.System = strings.Repeat("s", 64<<10+1) }, abi.LimitExceeded, "systemMessageBytes"},
		"more messages than a history keeps":       {func(in *invoke.Import) { in.System = "S" }, abi.LimitExceeded, "messagesPerHistory"},
		"a turn of very many messages": {func(in *invoke.Import) {
			in.Turns = []store.NewTurn{{Messages: make([]carrel.Message, 257)}}
		}, abi.LimitExceeded, "messagesPerHistory"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newWindowEnv(t, func(c *invoke.Config) { c.Limits.MessagesPerHistory = 4 })
			in := e.imported("1", "U1 A1", "U2 A2")
			tc.change(&in)
			_, err := e.Import(t.Context(), in)
			wantError(t, err, tc.code, tc.limit)
			e.wantStored()
		})
	}
}

func faultsOf(err error) []carrel.Fault {
	e, _ := errors.AsType[*carrel.Error](err)
	if e == nil {
		return nil
	}
	return e.Faults
}

func TestTurnsThatCannotBeImported(t *testing.T) {
	e := newWindowEnv(t, nil)
	in := e.imported("1", "U1 A1", "U2", "A3 U3", "U4 A4", "U5 A5 A5")
	_, err := e.Import(t.Context(), in)
	wantError(t, err, abi.InvalidParams, "")
	var at []string
	for _, f := range faultsOf(err) {
		at = append(at, f.Pointer)
	}
	if !slices.Equal(at, []string{"/turns/1/messages/0", "/turns/2/messages/0", "/turns/4/messages/1"}) {
		t.Errorf("the faults are at %q", at)
	}
	in = e.imported("1")
	for range 100 {
		in.Turns = append(in.Turns, store.NewTurn{})
	}
	if _, err = e.Import(t.Context(), in); len(faultsOf(err)) != 16 {
		t.Errorf("got %v", err)
	}
	in.Turns = []store.NewTurn{{Messages: make([]carrel.Message, 257)}}
	_, err = e.Import(t.Context(), in)
	wantError(t, err, abi.LimitExceeded, "turnMessages")
	e.wantStored()
}

// Ids of the plugin's own provider are those that calls find again.
func TestTheImportOfAProvidersID(t *testing.T) {
	e := newWindowEnv(t, nil)
	in := e.imported("c1#App.chat", "U1 A1")
	in.Plugin, in.Kind, in.Owner = "conv", carrel.KindPlugin, "key:key_1"
	e.doImport(in)
	in.ID, in.Owner, in.Caller.Role = "c2#App.chat", "subject:ann", carrel.RoleOwner
	e.doImport(in)
	for conversation, subject := range map[string]carrel.Subject{"c1": "", "c2": "ann"} {
		c := e.call("conv/App.chat", "msg", "U2")
		c.Caller.Subject = subject
		c.Header = func(string) []string { return []string{conversation} }
		e.wantSent(c, "A2", "user:U1 assistant:A1 user:U2")
	}
}

// An import goes where the plugin's calls would: to the namespace that it is
// granted.
func TestAnImportIntoASharedNamespace(t *testing.T) {
	e := newSharedEnv(t)
	in := e.imported("1", "U1 A1")
	in.Plugin = "g"
	e.doImport(in)
	e.wantSent(e.call("h/App.chat", "id", "1", "msg", "U2"), "A2", "user:U1 assistant:A1 user:U2")
	in.Plugin = "ungranted"
	e.doImport(in)
	e.wantSent(e.call("h/App.chat", "id", "1", "msg", "U3"), "A3", "user:U1 assistant:A1 user:U2 assistant:A2 user:U3")
	e.wantSent(e.call("ungranted/App.chat", "id", "1", "msg", "U2"), "A2", "user:U1 assistant:A1 user:U2")
}

func TestAHostThatDrainsImportsNothing(t *testing.T) {
	e := newWindowEnv(t, nil)
	e.StopAccepting()
	_, err := e.Import(t.Context(), e.imported("1", "U A"))
	wantError(t, err, abi.Draining, "")
	e.wantStored()
}
