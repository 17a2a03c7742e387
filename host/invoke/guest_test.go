package invoke_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/imports"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/host/strictjson"
	"github.com/carrelhost/carrel/store"
)

// newGuestEnv has the plugin g of guests in the tenant acme, besides those of
// newEnv.
func newGuestEnv(t *testing.T, change func(*invoke.Config)) *env {
	t.Helper()
	e := newEnv(t, change)
	e.upload(acme, guestModule(guestManifest("g", "")))
	return e
}

// raw makes a call with a params object as it is sent.
func (e *env) raw(address, params string) invoke.Call {
	e.t.Helper()
	c := e.call(address)
	args, err := strictjson.Object([]byte(params), strictjson.DefaultDepth)
	if err != nil {
		e.t.Fatal(err)
	}
	c.Args = invoke.Args{Value: args, JSON: []byte(params)}
	return c
}

// answered runs a call; the n-th model call of it is answered "An".
func (e *env) answered(c invoke.Call) (sent []string, o outcome) {
	e.t.Helper()
	done := e.start(e.t.Context(), c)
	for {
		select {
		case m := <-e.model.calls:
			sent = append(sent, m.sent())
			m.say(fmt.Sprintf("A%d", len(sent)))
		case o = <-done:
			return sent, o
		}
	}
}

// line is what one step of a script came to.
type line struct {
	errno abi.Errno // 0: it succeeded
	body  string
}

func lines(t *testing.T, output any) []line {
	t.Helper()
	var out []line
	text, ok := output.(string)
	if !ok {
		t.Fatalf("the output is %v", output)
	}
	for l := range strings.Lines(text) {
		l = strings.TrimSuffix(l, "\n")
		if rest, failed := strings.CutPrefix(l, "!"); failed {
			out = append(out, line{abi.Errno(rest[0] - '@'), rest[1:]})
		} else {
			out = append(out, line{0, l})
		}
	}
	return out
}

// perform makes a guest of a service perform steps that all succeed or are
// refused, and returns what each came to.
func (e *env) perform(c invoke.Call, steps ...step) ([]line, outcome) {
	e.t.Helper()
	c.Args = e.raw("g/Req.run", script(steps...)).Args
	_, o := e.answered(c)
	if o.err != nil {
		e.t.Fatal(o.err)
	}
	out := lines(e.t, o.Output)
	if len(out) != len(steps) {
		e.t.Fatalf("%d steps left the lines %v", len(steps), out)
	}
	return out, o
}

// wantDone wants steps to have succeeded, and returns the last one's result.
func wantDone[T any](t *testing.T, got []line) (last T) {
	t.Helper()
	for i, l := range got {
		if l.errno != 0 {
			t.Fatalf("step %d was refused with %v: %s", i+1, l.errno, l.body)
		}
	}
	if err := json.Unmarshal([]byte(got[len(got)-1].body), &last); err != nil {
		t.Fatal(err)
	}
	return last
}

// told is what last_error says.
type told struct{ Code, Message, Remedy string }

func wantRefused(t *testing.T, l line, errno abi.Errno, code abi.Code, message string) {
	t.Helper()
	var got told
	if err := json.Unmarshal([]byte(l.body), &got); l.errno != errno || err != nil || got.Code != code.String() || !strings.Contains(got.Message, message) {
		t.Errorf("got %v %s (%v), want %v with %v and …%s…", l.errno, l.body, err, errno, code, message)
	}
}

func invokes(service, method, args string) step {
	return step{abi.OpInvoke, fmt.Sprintf(`{"service":%q,"method":%q,"args":%s}`, service, method, args)}
}

func TestTheContextOfAGuest(t *testing.T) {
	e := newGuestEnv(t, func(c *invoke.Config) { c.NewID = func() string { return "inv_1" } })
	c := e.call("g/Req.run")
	c.Caller.Subject = "ann"
	got, o := e.perform(c, step{abi.OpContext, `{}`})
	v, err := e.disk.Version(t.Context(), acme, "g", carrel.VersionRef{})
	if err != nil {
		t.Fatal(err)
	}
	want := imports.Context{
		Tenant: "acme", Plugin: "g", Version: v.Digest.String(), Service: "Req", Method: "run",
		RequestID: string(c.Request), InvocationID: "inv_1", Subject: "ann",
	}
	if here := wantDone[imports.Context](t, got); here != want || o.ID != "inv_1" {
		t.Errorf("got %+v, want %+v", here, want)
	}
	socket := e.socket()
	c = e.call("g/Req.run")
	c.Socket = socket
	got, _ = e.perform(c, step{abi.OpContext, `{}`})
	if here := wantDone[imports.Context](t, got); here.SessionID != string(socket.ID()) || here.Subject != "" {
		t.Errorf("got %+v", here)
	}
}

// socket opens the session of a WebSocket, which the test closes.
func (e *env) socket() *scope.Session {
	e.t.Helper()
	s, err := e.scopes.OpenSocket(e.t.Context(), acme)
	if err != nil {
		e.t.Fatal(err)
	}
	return s
}

// Scenarios 3 and 5, through a guest: what is called under one request shares
// its scope.
func TestInnerInvocationsShareTheRequest(t *testing.T) {
	e := newGuestEnv(t, nil)
	c := e.raw("g/Req.run", script(
		invokes("Req", "chat", `{"msg":"U1"}`), invokes("Req", "chat", `{"msg":"U2"}`),
		invokes("App", "chat", `{"id":"1","msg":"U3"}`), invokes("Req", "chat", `{"id":"1","msg":"U4"}`),
		invokes("App", "chat", `{"id":"2","msg":"U5"}`),
		invokes("H", "echo", `{"a": [1, 2]}`),
	))
	sent, o := e.answered(c)
	if o.err != nil {
		t.Fatal(o.err)
	}
	want := []string{"user:U1", "user:U1 assistant:A1 user:U2", "user:U3", "user:U3 assistant:A3 user:U4", "user:U5"}
	if !slices.Equal(sent, want) {
		t.Errorf("sent %q, want %q", sent, want)
	}
	got := lines(t, o.Output)
	id := string(c.Request) + "#Req.chat"
	for i, want := range []imports.Invoked{
		{Output: "A1", MemoryID: id}, {Output: "A2", MemoryID: id}, {Output: "A3", MemoryID: "1"}, {Output: "A4", MemoryID: "1"},
		{Output: "A5", MemoryID: "2"}, {Output: `{"a": [1, 2]}`},
	} {
		if want.Usage = (imports.Usage{InputTokens: 3, OutputTokens: 4}); i == 5 {
			want.Usage = imports.Usage{}
		}
		if inner := wantDone[imports.Invoked](t, got[i:i+1]); inner != want {
			t.Errorf("invocation %d came to %+v, want %+v", i, inner, want)
		}
	}
	if o.Usage.InputTokens != 15 || o.Usage.OutputTokens != 20 || o.Usage.Guest <= 0 || o.Usage.Fuel <= 0 {
		t.Errorf("the usage does not add up: %+v", o.Usage)
	}
	var evicted []string
	for _, x := range o.Evicted {
		evicted = append(evicted, fmt.Sprintf("%s %d %s", x.Key.ID, x.Messages, x.Reason))
	}
	slices.Sort(evicted)
	if !slices.Equal(evicted, []string{"1 4 scope_closed", id + " 4 scope_closed"}) {
		t.Errorf("evicted %q", evicted)
	}
	e.wantStored("2", "user:U5 assistant:A5")
}

func TestOutputOfInnerInvocations(t *testing.T) {
	e := newGuestEnv(t, nil)
	got, _ := e.perform(e.call("g/Req.run"), invokes("H", "typed", `{"n":1}`))
	if got[0].body != `{"output":{"n":1},"usage":{"inputTokens":0,"outputTokens":0}}` {
		t.Errorf("got %s", got[0].body)
	}
	got, _ = e.perform(e.call("g/Req.run"),
		invokes("H", "typed", `{"n":"x"}`), invokes("H", "fail", `{}`), invokes("H", "trap", `{}`), invokes("H", "odd", `{}`),
		invokes("H", "strict", `{}`), invokes("Req", "none", `{}`), invokes("None", "chat", `{}`),
		invokes("Req", "chat", `{"msg":""}`), invokes("App", "chat", `{"msg":"U"}`), invokes("Req", "chat", `[]`), invokes("Req", "chat", `null`),
		step{abi.OpInvoke, `{"service":"H","method":"echo"}`},
	)
	for i, want := range []struct {
		errno   abi.Errno
		code    abi.Code
		message string
	}{
		{abi.EIO, abi.GuestFailed, "/n"}, {abi.EIO, abi.GuestFailed, "none left"}, {abi.EIO, abi.GuestTrap, "unreachable"},
		{abi.EIO, abi.GuestFailed, "returned 7"}, {abi.EINVAL, abi.InvalidParams, "n"}, {abi.ENOENT, abi.NotFound, "no such method"},
		{abi.ENOENT, abi.NotFound, "no such service"}, {abi.EINVAL, abi.InvalidParams, "empty"}, {abi.EINVAL, abi.InvalidMemoryID, "/id"},
		{abi.EINVAL, abi.InvalidParams, "JSON object"}, {abi.EINVAL, abi.InvalidParams, "JSON object"},
	} {
		wantRefused(t, got[i], want.errno, want.code, want.message)
	}
	if absent := wantDone[imports.Invoked](t, got[11:]); absent.Output != "{}" {
		t.Errorf("absent args are %+v", absent)
	}
}

// nested is a script that invokes itself so many levels below.
func nested(levels int, last step) string {
	for range levels {
		last = invokes("Req", "run", script(last))
	}
	return script(last)
}

// The client's own invocation is level 1.
func TestInvocationsNestEightDeep(t *testing.T) {
	e := newGuestEnv(t, nil)
	_, o := e.answered(e.raw("g/Req.run", nested(abi.MaxCallDepth-1, step{abi.OpContext, "{}"})))
	if text := fmt.Sprint(o.Output); o.err != nil || strings.Contains(text, "callDepth") || !strings.Contains(text, "tenant") {
		t.Errorf("got %s, %v", text, o.err)
	}
	_, o = e.answered(e.raw("g/Req.run", nested(abi.MaxCallDepth, step{abi.OpContext, "{}"})))
	if text := fmt.Sprint(o.Output); o.err != nil || !strings.Contains(text, "limit_exceeded") || !strings.Contains(text, "(limit callDepth)") || strings.Contains(text, "tenant\\") {
		t.Errorf("got %s, %v", text, o.err)
	}
	_, o = e.answered(e.raw("g/Req.run", nested(abi.MaxCallDepth-2, invokes("Req", "chat", `{"msg":"U"}`))))
	if o.err != nil || o.Usage.InputTokens != 3 || !strings.Contains(fmt.Sprint(o.Output), "A1") {
		t.Errorf("the usage of the eighth level is %+v above it, %v", o.Usage, o.err)
	}
}

func TestAnotherPluginsMethods(t *testing.T) {
	e := newEnv(t, nil)
	for name, members := range map[string]string{
		"g": "", "exact": `,"capabilities":{"call":["p/Req.chat"]}`, "service": `,"capabilities":{"call":["p/Req.*"]}`,
		"all": `,"capabilities":{"call":["p/*","theirs/*","off/*"]}`,
	} {
		e.upload(acme, guestModule(guestManifest(name, members)))
	}
	e.upload(other, guestModule(guestManifest("theirs", "")))
	e.upload(acme, guestModule(guestManifest("off", "")))
	if _, err := e.catalog.Deactivate(t.Context(), acme, "off"); err != nil {
		t.Fatal(err)
	}
	const manifestLine, grant = `add "call": ["p/%s"] to its manifest`, `PUT /api/v1/tenant/grants/%s {"call": ["p/%s"]}`
	for name, tc := range map[string]struct {
		plugin   carrel.PluginName
		grants   []string
		to, at   string // plugin and Service.method
		code     abi.Code
		message  string
		of       carrel.TenantID // whose the grant is; "" = acme
		grantsOf carrel.PluginName
	}{
		"no capability":                               {plugin: "g", grants: []string{"p/*"}, to: "p", at: "Req.chat", code: abi.Forbidden, message: fmt.Sprintf(manifestLine, "Req.chat")},
		"a capability of another method":              {plugin: "exact", grants: []string{"p/*"}, to: "p", at: "Req.topic", code: abi.Forbidden, message: fmt.Sprintf(manifestLine, "Req.topic")},
		"a capability of another service":             {plugin: "service", grants: []string{"p/*"}, to: "p", at: "App.chat", code: abi.Forbidden, message: fmt.Sprintf(manifestLine, "App.chat")},
		"no grant":                                    {plugin: "exact", to: "p", at: "Req.chat", code: abi.Forbidden, message: fmt.Sprintf(grant, "exact", "Req.chat")},
		"a grant of another method":                   {plugin: "all", grants: []string{"p/Req.topic"}, to: "p", at: "Req.chat", code: abi.Forbidden, message: fmt.Sprintf(grant, "all", "Req.chat")},
		"a grant of another service":                  {plugin: "all", grants: []string{"p/App.*"}, to: "p", at: "Req.chat", code: abi.Forbidden, message: fmt.Sprintf(grant, "all", "Req.chat")},
		"a grant of another plugin's name":            {plugin: "all", grants: []string{"pp/*"}, to: "p", at: "Req.chat", code: abi.Forbidden, message: fmt.Sprintf(grant, "all", "Req.chat")},
		"a grant to another plugin":                   {plugin: "all", grants: []string{"p/*"}, grantsOf: "g", to: "p", at: "Req.chat", code: abi.Forbidden, message: fmt.Sprintf(grant, "all", "Req.chat")},
		"another tenant's grant":                      {plugin: "all", grants: []string{"p/*"}, of: other, to: "p", at: "Req.chat", code: abi.Forbidden, message: fmt.Sprintf(grant, "all", "Req.chat")},
		"a grant that is no pattern":                  {plugin: "all", grants: []string{"*", "p", "p/"}, to: "p", at: "Req.chat", code: abi.Forbidden, message: fmt.Sprintf(grant, "all", "Req.chat")},
		"both, exact":                                 {plugin: "exact", grants: []string{"p/Req.chat"}, to: "p", at: "Req.chat"},
		"both, of the service":                        {plugin: "service", grants: []string{"x/*", "p/Req.*"}, to: "p", at: "Req.chat"},
		"both, of all":                                {plugin: "all", grants: []string{"p/*"}, to: "p", at: "Req.chat"},
		"another tenant's plugin is not there":        {plugin: "all", grants: []string{"theirs/*"}, to: "theirs", at: "Req.chat", code: abi.NotFound, message: "no such thing"},
		"a plugin that is not active":                 {plugin: "all", grants: []string{"off/*"}, to: "off", at: "Req.chat", code: abi.NotFound, message: "no such thing"},
		"a plugin that is not there and not asked of": {plugin: "all", grants: []string{"none/*"}, to: "none", at: "Req.chat", code: abi.Forbidden, message: `["none/Req.chat"]`},
		"itself needs neither":                        {plugin: "g", to: "g", at: "Req.chat"},
	} {
		t.Run(name, func(t *testing.T) {
			of, to := acme, tc.plugin
			if tc.of != "" {
				of = tc.of
			}
			if tc.grantsOf != "" {
				to = tc.grantsOf
			}
			if err := e.disk.SetGrant(t.Context(), of, to, store.Grant{Call: tc.grants}); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := e.disk.SetGrant(t.Context(), of, to, store.Grant{}); err != nil {
					t.Fatal(err)
				}
			}()
			service, method, _ := strings.Cut(tc.at, ".")
			c := e.call(string(tc.plugin) + "/Req.run")
			got, o := e.perform(c, step{abi.OpInvoke, fmt.Sprintf(`{"plugin":%q,"service":%q,"method":%q,"args":{"msg":"U"}}`, tc.to, service, method)})
			if tc.code != abi.OK {
				wantRefused(t, got[0], map[abi.Code]abi.Errno{abi.Forbidden: abi.EPERM, abi.NotFound: abi.ENOENT}[tc.code], tc.code, tc.message)
				return
			}
			inner := wantDone[imports.Invoked](t, got)
			if inner.Output != "A1" || inner.MemoryID != string(c.Request)+"#Req.chat" {
				t.Errorf("got %+v", inner)
			}
			if len(o.Evicted) != 1 || string(o.Evicted[0].Plugin) != tc.to || string(o.Evicted[0].Key.Namespace) != tc.to {
				t.Errorf("evicted %+v", o.Evicted)
			}
		})
	}
}

func TestBadNamesInInvoke(t *testing.T) {
	e := newGuestEnv(t, nil)
	got, _ := e.perform(e.call("g/Req.run"),
		step{abi.OpInvoke, `{"plugin":"G G","service":"Req","method":"chat"}`},
		step{abi.OpInvoke, `{"plugin":"g@1","service":"Req","method":"chat"}`},
		step{abi.OpInvoke, `{"service":"","method":"chat"}`},
		step{abi.OpInvoke, `{"service":"Req","method":"a b"}`},
		step{abi.OpInvoke, `{"service":"Req","method":"chat","memoryId":"1"}`})
	for _, l := range got {
		wantRefused(t, l, abi.EINVAL, abi.BadRequest, "")
	}
}
