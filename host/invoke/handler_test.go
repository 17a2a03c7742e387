package invoke_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/plugins"
)

func TestTheOutputOfAHandler(t *testing.T) {
	e := newGuestEnv(t, nil)
	for name, tc := range map[string]struct {
		address, params string
		want            any
	}{
		"text is what it wrote":                 {"g/H.echo", `{ "a":"ü <b>" }`, `{ "a":"ü <b>" }`},
		"no text at all":                        {"g/H.says", `{}`, ""},
		"JSON is passed on as it wrote it":      {"g/H.typed", `{"n": 1}`, `{"n": 1}`},
		"params that its schema describes":      {"g/H.strict", `{"n":12345678901234567890}`, `{"n":12345678901234567890}`},
		"the params are those that were sent":   {"g/H.echo", `{"b":1,"a":1.50}`, `{"b":1,"a":1.50}`},
		"a script without steps writes no line": {"g/Req.run", script(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, o := e.answered(e.raw(tc.address, tc.params))
			got := o.Output
			if raw, ok := got.(json.RawMessage); ok != (tc.address == "g/H.typed") {
				t.Errorf("the output is a %T", got)
			} else if ok {
				got = string(raw)
			}
			if o.err != nil || got != tc.want || o.MemoryID != "" || o.Model != "" || o.ID == "" || o.Usage.Guest <= 0 || o.Usage.Fuel <= 0 || o.Usage.InputTokens != 0 {
				t.Errorf("got %+v", o)
			}
		})
	}
}

func TestAHandlerThatAsksForNothingNeedsNoStore(t *testing.T) {
	e := newGuestEnv(t, nil)
	if _, o := e.answered(e.raw("g/H.echo", `{}`)); o.err != nil { // its version is loaded
		t.Fatal(o.err)
	}
	if err := e.disk.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.disk.ListTenants(t.Context(), "", 1); err == nil {
		t.Fatal("a store that is closed answers")
	}
	if _, o := e.answered(e.raw("g/H.echo", `{}`)); o.err != nil || o.Output != "{}" || o.Pending {
		t.Errorf("got %+v", o)
	}
}

func TestAHandlerThatFails(t *testing.T) {
	for name, tc := range map[string]struct {
		address, params string
		code            abi.Code
		guest           string
		message         string
	}{
		"params that its schema refuses":      {"g/H.strict", `{"n":1,"more":true}`, abi.InvalidParams, "", ""},
		"params of another type":              {"g/H.strict", `{"n":"1"}`, abi.InvalidParams, "", ""},
		"it sets an error":                    {"g/H.fail", `{}`, abi.GuestFailed, "out_of_stock", "none left"},
		"it returns a number":                 {"g/H.odd", `{}`, abi.GuestFailed, "", "returned 7"},
		"it traps":                            {"g/H.trap", `{}`, abi.GuestTrap, "", "unreachable"},
		"its text is none":                    {"g/H.bytes", `{}`, abi.GuestFailed, "", "not valid UTF-8"},
		"its JSON lacks a member":             {"g/H.typed", `{}`, abi.GuestFailed, "", "output schema: "},
		"its JSON has a member of other type": {"g/H.typed", `{"n":[]}`, abi.GuestFailed, "", "/n"},
		"a handler that is not there":         {"g/H.none", `{}`, abi.NotFound, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := newGuestEnv(t, nil)
			_, o := e.answered(e.raw(tc.address, tc.params))
			wantError(t, o.err, tc.code, "")
			failure, ok := errors.AsType[*carrel.Error](o.err)
			if !ok || failure.GuestCode != tc.guest || !strings.Contains(failure.Msg, tc.message) || strings.Contains(failure.Msg, "stack") {
				t.Errorf("got %v with the guest's code %q", o.err, failure.GuestCode)
			}
			if o.Output != nil || len(o.Evicted) != 0 {
				t.Errorf("got %+v", o)
			}
		})
	}
}

// Output that is no JSON at all where the manifest says JSON.
func TestAHandlerWhoseJSONIsNone(t *testing.T) {
	e := newEnv(t, nil)
	e.upload(acme, guestModule(strings.Replace(guestManifest("g", ""), `"export":"bytes"`, `"export":"bytes","output":true`, 1)))
	_, o := e.answered(e.raw("g/H.bytes", `{}`))
	wantError(t, o.err, abi.GuestFailed, "")
	if failure, ok := errors.AsType[*carrel.Error](o.err); !ok || !strings.Contains(failure.Msg, "not JSON") {
		t.Errorf("got %v", o.err)
	}
}

func TestTheLogOfAPlugin(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	e := newGuestEnv(t, func(c *invoke.Config) { c.Now = func() time.Time { return now } })
	says, trap := e.raw("g/H.says", `{}`), e.raw("g/H.trap", `{}`)
	if _, o := e.answered(says); o.err != nil {
		t.Fatal(o.err)
	}
	_, o := e.answered(trap)
	wantError(t, o.err, abi.GuestTrap, "")
	got := e.log.After(acme, "g", 0, 100)
	var want []plugins.Entry
	for level := range 4 {
		want = append(want, plugins.Entry{At: now, Level: level, Request: says.Request, Method: "H.says", Text: fmt.Sprintf("level %d", level)})
	}
	want = append(want, plugins.Entry{At: now, Level: 1, Request: trap.Request, Method: "H.trap", Text: "before the trap"})
	for i := range want {
		want[i].Seq = int64(i + 1)
	}
	if len(got) != 6 || !slices.Equal(got[:5], want) {
		t.Fatalf("got %+v, want %+v and a stack", got, want)
	}
	if last := got[5]; last.Level != 3 || last.Request != trap.Request || last.Method != "H.trap" || last.Seq != 6 ||
		!strings.Contains(last.Text, "unreachable\n") || !strings.Contains(last.Text, "trap()") {
		t.Errorf("the stack is %+v", last)
	}
	if theirs := e.log.After(other, "g", 0, 100); len(theirs) != 0 {
		t.Errorf("the other tenant sees %+v", theirs)
	}
}

// The plugin's own patience is named as such, and ends inner calls too.
func TestTheTimeoutOfTheManifest(t *testing.T) {
	e := newEnv(t, nil)
	e.upload(acme, guestModule(guestManifest("g", `,"limits":{"timeout":"150ms"}`)))
	e.upload(acme, guestModule(guestManifest("slow", "")))
	for name, params := range map[string][2]string{
		"it spins":                  {"g/H.spin", `{}`},
		"it spins one level below":  {"g/Req.run", script(invokes("H", "spin", `{}`))},
		"it spins two levels below": {"g/Req.run", nested(2, invokes("H", "spin", `{}`))},
		"the model does not answer": {"g/Req.run", script(invokes("Req", "chat", `{"msg":"U"}`))},
	} {
		t.Run(name, func(t *testing.T) {
			done := e.start(t.Context(), e.raw(params[0], params[1]))
			if strings.HasPrefix(name, "the model") {
				<-e.model.calls
			}
			o := <-done
			wantError(t, o.err, abi.Timeout, "limits.timeout")
			if failure, ok := errors.AsType[*carrel.Error](o.err); !ok || !strings.Contains(failure.Msg, "150ms") {
				t.Errorf("got %v", o.err)
			}
		})
	}
	// The request's own deadline comes before the plugin's 30 s.
	c := e.raw("slow/H.spin", `{}`)
	c.Timeout = 150 * time.Millisecond
	_, o := e.answered(c)
	wantError(t, o.err, abi.Timeout, "timeout")
	e.wantStored()
}

// Whoever maintains a plugin finds in its log what callers were told only.
func TestFailuresLeaveALineInThePluginsLog(t *testing.T) {
	for name, tc := range map[string]struct{ address, params, text string }{
		"it answers too late":                {"g/H.spin", `{}`, "timed out: the plugin did not answer within 150ms (its manifest's limits.timeout); it used "},
		"its output does not match a schema": {"g/H.typed", `{"n":[]}`, "failed: the plugin's output does not match"},
		"its output is no text":              {"g/H.bytes", `{}`, "failed: the plugin's output is not valid UTF-8"},
		"it says that it failed":             {"g/H.fail", `{}`, "failed (out_of_stock): none left"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, nil)
			e.upload(acme, guestModule(guestManifest("g", `,"limits":{"timeout":"150ms"}`)))
			c := e.raw(tc.address, tc.params)
			if _, o := e.answered(c); o.err == nil {
				t.Fatalf("got %+v", o)
			}
			got := e.log.After(acme, "g", 0, 100)
			if len(got) != 1 || !strings.HasPrefix(got[0].Text, tc.text) || got[0].Level != 3 || got[0].Request != c.Request || "g/"+got[0].Method != tc.address {
				t.Errorf("got %+v, want …%s…", got, tc.text)
			}
		})
	}
}

func TestOutputOfMoreValuesThanTheHostReads(t *testing.T) {
	e := newGuestEnv(t, nil)
	c := e.call("g/H.typed")
	c.Args.JSON = []byte(`{"n":[` + strings.Repeat("1,", 100_000) + `1]}`) // the guest sends back what it was sent
	_, o := e.answered(c)
	wantError(t, o.err, abi.GuestFailed, "")
	if failure, ok := errors.AsType[*carrel.Error](o.err); !ok || !strings.Contains(failure.Msg, "jsonValues") || strings.Contains(failure.Msg, "not JSON") {
		t.Errorf("got %v", o.err)
	}
}

// What was used is used, whatever came of it.
func TestTheUsageOfWhatFails(t *testing.T) {
	e := newGuestEnv(t, nil)
	for _, method := range []string{"fail", "trap", "bytes"} {
		if _, o := e.answered(e.raw("g/H."+method, `{}`)); o.err == nil || o.Usage.Guest <= 0 || o.Usage.Fuel <= 0 {
			t.Errorf("%s: got %+v", method, o)
		}
	}
	// A guest that fails after it has asked the model, under one that goes on.
	ask := step{abi.OpModelGenerate, `{"messages":[{"role":"user","content":"U"}]}`}
	e.upload(acme, guestModule(strings.Replace(guestManifest("g", ""), `"export":"run"}`, `"export":"run","output":true}`, 1)))
	got, o := e.perform(e.call("g/App.run"), invokes("Req", "run", script(ask, ask))) // two lines, which are no JSON
	wantRefused(t, got[0], abi.EIO, abi.GuestFailed, "not JSON")
	if o.Usage.InputTokens != 6 || o.Usage.OutputTokens != 8 {
		t.Errorf("used %+v", o.Usage)
	}
}

// An export's name is often a tool's; an author knows the method's.
func TestATrapNamesTheMethod(t *testing.T) {
	e := newGuestEnv(t, nil)
	_, o := e.answered(e.raw("g/H.trap", `{}`))
	if failure, ok := errors.AsType[*carrel.Error](o.err); !ok || failure.Msg != "H.trap: the guest trapped in trap: unreachable" {
		t.Errorf("got %v", o.err)
	}
}

func TestAHandlerThatWritesNoOutputIsToldSo(t *testing.T) {
	e := newEnv(t, nil)
	e.upload(acme, guestModule(strings.Replace(guestManifest("g", ""), `"export":"run"}`, `"export":"run","output":true}`, 1)))
	_, o := e.answered(e.raw("g/Req.run", script()))
	wantError(t, o.err, abi.GuestFailed, "")
	if failure, ok := errors.AsType[*carrel.Error](o.err); !ok || !strings.Contains(failure.Msg, "returned 0, for success, and wrote no output") {
		t.Errorf("got %v", o.err)
	}
}

// What SDKs say where an error has no code of its own is not said twice.
func TestAFailureWithoutAWordOfItsOwnIsLoggedOnce(t *testing.T) {
	for code, want := range map[string]string{"failed": "failed: none left", "": "failed: none left", "sold_out": "failed (sold_out): none left"} {
		if got := invoke.Failure(&carrel.Error{Code: abi.GuestFailed, GuestCode: code, Msg: "none left"}); got != want {
			t.Errorf("%q is logged as %q, want %q", code, got, want)
		}
	}
}

// A handler takes no turn and touches nothing by being called.
func TestAHandlerHasNoHistory(t *testing.T) {
	e := newGuestEnv(t, nil)
	held, done := e.hold(e.call("g/Req.chat", "id", "1", "msg", "U"))
	c := e.raw("g/H.echo", `{"id":"1"}`)
	c.RejectBusy = true
	if _, o := e.answered(c); o.err != nil || len(o.Evicted) != 0 {
		t.Errorf("got %+v", o)
	}
	held.say("A")
	if o := <-done; o.err != nil {
		t.Error(o.err)
	}
}

// A handler needs no place among turns: those behind it go on while it works.
func TestAHandlerHoldsUpNoCallBehindIt(t *testing.T) {
	e := newGuestEnv(t, nil)
	queued := make(chan struct{})
	c := e.raw("g/Req.run", script(step{abi.OpModelGenerate, `{"messages":[{"role":"user","content":"U"}]}`}))
	c.Queued = func() { close(queued) }
	held, done := e.hold(c)
	select {
	case <-queued:
	default:
		t.Error("it works and has not said that it has its place")
	}
	held.say("A")
	if o := <-done; o.err != nil {
		t.Error(o.err)
	}
}

// streamed is a stream that a test watches.
type streamed struct {
	started []string
	deltas  []string
	err     error
}

func (s *streamed) Started(id string) error {
	s.started = append(s.started, id)
	return s.err
}

func (s *streamed) Delta(text string) error {
	s.deltas = append(s.deltas, text)
	return nil
}

// Only the client's own invocation is told of; what it calls is its own affair.
func TestAHandlerIsStartedOnce(t *testing.T) {
	e := newGuestEnv(t, nil)
	s := &streamed{}
	c := e.raw("g/Req.run", script(invokes("Req", "chat", `{"msg":"U"}`), invokes("H", "echo", `{}`)))
	c.Stream = s
	if _, o := e.answered(c); o.err != nil || !slices.Equal(s.started, []string{o.ID}) || s.deltas != nil {
		t.Errorf("got %+v, told %+v", o, s)
	}
	s = &streamed{}
	c = e.raw("g/H.strict", `{}`)
	c.Stream = s
	if _, o := e.answered(c); carrel.CodeOf(o.err) != abi.InvalidParams || s.started != nil {
		t.Errorf("got %v, told %+v", o.err, s)
	}
	gone := errors.New("the client is gone")
	c = e.raw("g/H.says", `{}`)
	c.Stream = &streamed{err: gone}
	if _, o := e.answered(c); !errors.Is(o.err, gone) || len(e.log.After(acme, "g", 0, 1)) != 0 {
		t.Errorf("got %v; the guest ran all the same", o.err)
	}
}
