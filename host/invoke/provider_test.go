package invoke_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/imports"
)

// asked returns how often the plugin g's provider ran.
func (e *env) asked() int {
	n := 0
	for _, entry := range e.log.After(acme, "g", 0, 1000) {
		if entry.Text == "asked for an id" {
			n++
		}
	}
	return n
}

func withProvider(export, more string) []byte {
	return guestModule(guestManifest("g", fmt.Sprintf(`,"defaultMemoryId":{"export":%q%s}`, export, more)))
}

func TestTheIDThatAnExportYields(t *testing.T) {
	for name, tc := range map[string]struct {
		export, more string
		session      bool
		params       []string
		id           string // "" = the request's own
		asked        int
	}{
		"it yields one":                                   {export: "id_some", id: "mine#Req.chat", asked: 1},
		"it comes before the session by default":          {export: "id_some", session: true, id: "mine#Req.chat", asked: 1},
		"it yields nothing":                               {export: "id_none", asked: 1},
		"it yields nothing inside a session":              {export: "id_none", session: true, id: "session", asked: 1},
		"it comes behind the session":                     {export: "id_some", more: `,"priority":50`, session: true, id: "session"},
		"it comes before the request":                     {export: "id_some", more: `,"priority":50`, id: "mine#Req.chat", asked: 1},
		"behind the request nobody asks it":               {export: "id_trap", more: `,"priority":101`},
		"an explicit id needs no provider":                {export: "id_trap", params: []string{"id", "1"}, id: "1"},
		"an empty explicit id is none":                    {export: "id_some", params: []string{"id", ""}, id: "mine#Req.chat", asked: 1},
		"what it asks for itself is refused in the depth": {export: "id_again", id: "again#Req.chat", asked: abi.MaxCallDepth},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, nil)
			e.upload(acme, withProvider(tc.export, tc.more))
			c := e.call("g/Req.chat", append([]string{"msg", "U"}, tc.params...)...)
			want := tc.id
			if tc.session {
				c.Socket = e.socket()
				want = strings.Replace(want, "session", string(c.Socket.ID())+"#Req.chat", 1)
			}
			if want == "" {
				want = string(c.Request) + "#Req.chat"
			}
			_, o := e.run(c, "A")
			if string(o.MemoryID) != want || e.asked() != tc.asked || len(o.Evicted) != 1 {
				t.Errorf("the id is %s, want %s; it was asked %d times; evicted %+v", o.MemoryID, want, e.asked(), o.Evicted)
			}
			if (o.Usage.Guest > 0) != (tc.asked > 0) || o.Usage.InputTokens != 3 {
				t.Errorf("used %+v", o.Usage)
			}
		})
	}
}

func TestAnExportThatYieldsNoID(t *testing.T) {
	for name, tc := range map[string]struct {
		export  string
		code    abi.Code
		message string
	}{
		"it fails":                 {"id_fail", abi.GuestFailed, "returned 1"},
		"it traps":                 {"id_trap", abi.GuestTrap, "unreachable"},
		"it yields a control code": {"id_bad", abi.InvalidMemoryID, "its function id_bad"},
		"it yields too much":       {"id_long", abi.InvalidMemoryID, "129 bytes"},
		"it yields no text":        {"bytes", abi.InvalidMemoryID, "UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, nil)
			e.upload(acme, withProvider(tc.export, ""))
			o := e.refused(e.call("g/Req.chat", "msg", "U"), tc.code, "")
			if failure, ok := errors.AsType[*carrel.Error](o.err); !ok || !strings.Contains(failure.Msg, tc.message) {
				t.Errorf("got %v, want …%s…", o.err, tc.message)
			}
			e.wantStored()
			_, o = e.run(e.call("g/Req.chat", "msg", "U", "id", "1"), "A") // it is not needed here
			if o.MemoryID != "1" {
				t.Errorf("got %s", o.MemoryID)
			}
			got, _ := e.perform(e.call("g/Req.run"), step{abi.OpMemoryDefaultID, `{"service":"Req","method":"chat"}`})
			wantRefused(t, got[0], map[abi.Code]abi.Errno{abi.InvalidMemoryID: abi.EINVAL, abi.GuestFailed: abi.EIO, abi.GuestTrap: abi.EIO}[tc.code], tc.code, tc.message)
		})
	}
}

// In an application-scoped service an id of the provider stays; where it
// yields none, the history would never end.
func TestAnExportForAnApplicationScopedService(t *testing.T) {
	optional := func(export string) []byte {
		return guestModule(strings.ReplaceAll(guestManifest("g", fmt.Sprintf(`,"defaultMemoryId":{"export":%q}`, export)), `"required":["id","msg"]`, `"required":["msg"]`))
	}
	e := newEnv(t, nil)
	e.upload(acme, optional("id_some"))
	e.run(e.call("g/App.chat", "msg", "U1"), "A1")
	e.wantSent(e.call("g/App.chat", "msg", "U2"), "A2", "user:U1 assistant:A1 user:U2")
	stays := "user:U1 assistant:A1 user:U2 assistant:A2"
	e.wantStored("mine#App.chat", stays)
	// A guest's append to it is no leak: the plugin can name it again.
	k := key(carrel.KindPlugin, "mine#App.chat")
	got, _ := e.perform(e.call("g/App.run"), step{abi.OpMemoryDefaultID, `{"service":"App","method":"chat"}`}, e.appends(k, "U3", "A3"))
	wantDone[imports.Memory](t, got)
	stays += " user:U3 assistant:A3"
	e.wantStored("mine#App.chat", stays)

	e.upload(acme, optional("id_none"))
	e.refused(e.call("g/App.chat", "msg", "U"), abi.DefaultIDLeak, "")
	c := e.call("g/App.chat", "msg", "U")
	c.Socket = e.socket()
	e.refused(c, abi.DefaultIDLeak, "")
	e.wantStored("mine#App.chat", stays)
}

func TestTheMethodThatADefaultIDIsAskedForMayNest(t *testing.T) {
	e := newEnv(t, nil)
	e.upload(acme, withProvider("id_some", ""))
	ask := step{abi.OpMemoryDefaultID, `{"service":"Req","method":"chat"}`}
	_, o := e.answered(e.raw("g/Req.run", nested(abi.MaxCallDepth-2, ask)))
	if text := fmt.Sprint(o.Output); o.err != nil || !strings.Contains(text, "mine#Req.chat") {
		t.Errorf("got %s, %v", text, o.err)
	}
	_, o = e.answered(e.raw("g/Req.run", nested(abi.MaxCallDepth-1, ask)))
	if text := fmt.Sprint(o.Output); o.err != nil || !strings.Contains(text, "callDepth") || e.asked() != 1 {
		t.Errorf("got %s, %v", text, o.err)
	}
}

// What a provider used counts for whoever asked for the id.
func TestTheUsageOfAProvider(t *testing.T) {
	e := newEnv(t, nil)
	e.upload(acme, withProvider("id_model", ""))
	sent, o := e.answered(e.call("g/Req.chat", "msg", "U"))
	if o.err != nil || o.MemoryID != "thought#Req.chat" || !slices.Equal(sent, []string{"user:which one?", "user:U"}) || o.Usage.InputTokens != 6 || o.Usage.OutputTokens != 8 {
		t.Errorf("sent %q, got %+v", sent, o)
	}
	got, o := e.perform(e.call("g/Req.run"), step{abi.OpMemoryDefaultID, `{"service":"Req","method":"chat"}`}, invokes("Req", "chat", `{"msg":"U"}`))
	if inner := wantDone[imports.Invoked](t, got); inner.Usage.InputTokens != 6 || o.Usage.InputTokens != 9 || o.Usage.OutputTokens != 12 {
		t.Errorf("used %+v, all together %+v", inner.Usage, o.Usage)
	}
}

// What is refused runs no code: a refusal costs the caller's plugin nothing.
func TestParamsThatAreRefusedRunNoProvider(t *testing.T) {
	e := newEnv(t, nil)
	e.upload(acme, withProvider("id_some", ""))
	for name, tc := range map[string]struct {
		params string
		code   abi.Code
	}{
		"a param is missing":                       {`{}`, abi.InvalidParams},
		"a param is of another type":               {`{"msg":1}`, abi.InvalidParams},
		"the user message is empty":                {`{"msg":""}`, abi.InvalidParams},
		"the id is faulty, and so is a param":      {`{"id":"a\u0000","msg":1}`, abi.InvalidMemoryID},
		"the id is no string, and a param is gone": {`{"id":1}`, abi.InvalidMemoryID},
	} {
		t.Run(name, func(t *testing.T) {
			o := e.refused(e.raw("g/Req.chat", tc.params), tc.code, "")
			if e.asked() != 0 || o.Usage.Guest != 0 {
				t.Errorf("the provider ran %d times; used %+v", e.asked(), o.Usage)
			}
		})
	}
	e.wantStored()
	e.run(e.call("g/Req.chat", "msg", "U"), "A")
	if e.asked() != 1 {
		t.Errorf("it ran %d times", e.asked())
	}
}
