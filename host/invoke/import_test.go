package invoke_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/store"
)

// longAgo is before every test.
var longAgo = time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)

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
	want, err := e.disk.History(t.Context(), acme, e.scopes.Handle(explicit("1")), nil, store.Cutoff{})
	if err != nil || h.CreatedAt.IsZero() || h.LastUsedAt.IsZero() {
		t.Errorf("it is %+v, %v", h, err)
	}
	want.CreatedAt, want.LastUsedAt = h.CreatedAt, h.LastUsedAt
	if h != want {
		t.Errorf("it is %+v, and answered as %+v", want, h)
	}
	if h.Key != explicit("1") || h.Plugin != "w" || h.Messages != 5 || h.LastTurn != 2 || !h.Application {
		t.Errorf("it is %+v", h)
	}
	page, err := e.disk.Messages(t.Context(), h.Key, h.Generation, -1, store.MessageLimit{Messages: 10})
	rows := page.Messages
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
	began, err := e.disk.History(t.Context(), acme, e.scopes.Handle(explicit("2")), nil, store.Cutoff{})
	if err != nil {
		t.Fatal(err)
	}
	if h := e.doImport(e.imported("2", "U2 A2")); !h.CreatedAt.Equal(began.CreatedAt) || h.Generation != began.Generation || h.Messages != 2 {
		t.Errorf("what was only touched before, %+v, is answered as %+v", began, h)
	}
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
	own := func(id carrel.MemoryID, owner carrel.Owner) func(*invoke.Import) {
		return func(in *invoke.Import) { in.Kind, in.ID, in.Owner = carrel.KindPlugin, id, owner }
	}
	for name, tc := range map[string]struct {
		change func(*invoke.Import)
		code   abi.Code
		limit  string
	}{
		"a plugin that is not active":          {func(in *invoke.Import) { in.Plugin = "q" }, abi.NotFound, ""},
		"a plugin of another tenant":           {func(in *invoke.Import) { in.Caller.Tenant = "nobody" }, abi.NotFound, ""},
		"an id that is none":                   {func(in *invoke.Import) { in.ID = "a\nb" }, abi.InvalidMemoryID, ""},
		"an id that is empty":                  {func(in *invoke.Import) { in.ID = "" }, abi.InvalidMemoryID, ""},
		"the kind of a request":                {func(in *invoke.Import) { in.Kind = carrel.KindRequest }, abi.InvalidParams, ""},
		"the kind of a session":                {func(in *invoke.Import) { in.Kind = carrel.KindSession }, abi.InvalidParams, ""},
		"a kind that nobody knows":             {func(in *invoke.Import) { in.Kind = "" }, abi.InvalidParams, ""},
		"an explicit id with an owner":         {func(in *invoke.Import) { in.Owner = "subject:ann" }, abi.InvalidParams, ""},
		"a key of a plugin without a provider": {own("c#App.chat", ""), abi.InvalidParams, ""},
		"an owner that is none":                {own("c#App.chat", "bob"), abi.InvalidParams, ""},
		"an owner without a name":              {own("c#App.chat", "key:"), abi.InvalidParams, ""},
		"a provider's id without its method":   {own("c", ""), abi.InvalidMemoryID, ""},
		"a provider's id of no method":         {own("c#App", ""), abi.InvalidMemoryID, ""},
		"a provider's id that is too long":     {own(carrel.MemoryID(strings.Repeat("x", 129)+"#App.chat"), ""), abi.InvalidMemoryID, ""},
		"a system message that is too long":    {func(in *invoke.Import) { in.System = strings.Repeat("s", 1<<20+1) }, abi.LimitExceeded, "systemMessageBytes"},
		"more messages than a history keeps":   {func(in *invoke.Import) { in.System = "S" }, abi.LimitExceeded, "messagesPerHistory"},
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
	in := e.imported("1", "U1 A1", "U2", "A3 U3", "U4 A4", "U5 A5 A6")
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
	for name, tc := range map[string]struct {
		provider string // the plugin's
		id       carrel.MemoryID
		owner    carrel.Owner
		subject  carrel.Subject // of who imports
		code     abi.Code       // OK: it is found
		finds    carrel.Subject // of who finds it
	}{
		"a header's, which is the importer's own": {`"from":"header:X-Conversation"`, "mine#Req.chat", "", "ann", abi.OK, "ann"},
		"a header's of a key without a subject":   {`"from":"header:X-Conversation"`, "mine#Req.chat", "key:key_1", "", abi.OK, ""},
		"a header's of another subject":           {`"from":"header:X-Conversation"`, "mine#Req.chat", "subject:bob", "ann", abi.OK, "bob"},
		"a subject's own":                         {`"from":"subject"`, "ann#Req.chat", "", "ann", abi.OK, "ann"},
		"another subject's":                       {`"from":"subject"`, "bob#Req.chat", "", "ann", abi.OK, "bob"},
		"a subject's with an owner":               {`"from":"subject"`, "ann#Req.chat", "subject:ann", "ann", abi.InvalidParams, ""},
		"an export's":                             {`"export":"id_some"`, "mine#Req.chat", "", "ann", abi.OK, "bob"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, nil)
			e.upload(acme, guestModule(guestManifest("g", `,"defaultMemoryId":{`+tc.provider+`}`)))
			in := e.imported(tc.id, "U1 A1")
			in.Plugin, in.Kind, in.Owner, in.Caller.Subject = "g", carrel.KindPlugin, tc.owner, tc.subject
			_, err := e.Import(t.Context(), in)
			if tc.code != abi.OK {
				wantError(t, err, tc.code, "")
				e.wantStored()
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			c := e.call("g/Req.chat", "msg", "U2")
			c.Caller.Subject = tc.finds
			c.Header = func(string) []string { return []string{"mine"} }
			e.wantSent(c, "A2", "user:U1 assistant:A1 user:U2")
		})
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

// Whatever an import says of the key, it names a history of the tenant's, in
// the plugin's own namespace, that somebody could reach by a call.
func FuzzTheKeyOfAnImport(f *testing.F) {
	f.Add("explicit", "", "1")
	f.Add("plugin", "", "c1#App.chat")
	f.Add("plugin", "key:key_1", "a#b#com.acme.App.chat")
	f.Add("plugin", "subject:key_1", "c1#App.chat")
	f.Add("plugin", "key:", "#App.chat")
	f.Add("request", "", "req_1#App.chat")
	f.Add("plugin", "key:key_1", "c1#../App.chat")
	f.Fuzz(func(t *testing.T, kind, owner, id string) {
		e := newEnv(t, nil)
		in := e.imported(carrel.MemoryID(id), "U A")
		in.Plugin, in.Kind, in.Owner = "conv", carrel.KeyKind(kind), carrel.Owner(owner)
		h, err := e.Import(t.Context(), in)
		if err != nil {
			if carrel.CodeOf(err) == abi.Internal {
				t.Errorf("got %v", err)
			}
			e.wantStored()
			return
		}
		want := carrel.MemoryKey{Tenant: acme, Namespace: "conv", Kind: carrel.KindExplicit, ID: in.ID}
		if h.Key.Kind != carrel.KindExplicit {
			want.Kind, want.Owner = carrel.KindPlugin, "key:key_1"
			if owner != "" {
				want.Owner = in.Owner
			}
		}
		if h.Key != want {
			t.Errorf("%q %q %q became %+v", kind, owner, id, h.Key)
		}
	})
}
