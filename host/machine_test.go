package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

// TestChatMemoryDoesWhatItsModelDoes does at random what tenants do, and holds
// the host against the model after every step. -rapid.checks and -rapid.steps
// make it longer.
func TestChatMemoryDoesWhatItsModelDoes(t *testing.T) {
	for name, short := range map[string]string{"rapid.checks": "30", "rapid.steps": "40"} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			if err := flag.Set(name, short); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = flag.Set(name, f.DefValue) })
		}
	}
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		cfg.Limits.MessagesPerHistory = mostMessages
		var env *testenv.Env
		made, whole := 0, false
		rapid.Check(t, func(rt *rapid.T) {
			if !whole { // what is left of a check that failed must not fail the next
				if env != nil {
					env.Stop()
				}
				env = testenv.New(t, cfg)
			}
			whole = false
			m := &machine{T: rt, env: env, keeps: cfg.Store != host.StoreMemory, calls: len(env.Model.Calls()), http: new(http.Transport)}
			defer m.http.CloseIdleConnections()
			for n := range rapid.IntRange(2, 3).Draw(rt, "tenants") {
				made++
				m.tenants = append(m.tenants, m.tenant(made, n == 0))
			}
			defer func() {
				for _, p := range m.places {
					if p.socket != nil {
						_ = p.socket.Close()
					}
				}
			}()
			rt.Repeat(map[string]func(*rapid.T){
				"calls": m.callSome, "calls again": m.callSome, "calls once more": m.callSome, "opens": m.open, "closes": m.close,
				"deletes a history": m.deleteHistory, "deletes a turn": m.deleteTurn, "erases": m.erase, "imports": m.importHistory,
				"deactivates or activates": m.activation, "restarts": m.restart, "scrubs": m.scrub,
			})
			whole = true
		})
	})
}

// machine is a host with what one check has on it.
type machine struct {
	*rapid.T
	env     *testenv.Env
	keeps   bool // data outlive a restart
	http    *http.Transport
	tenants []*machineTenant
	places  []*place
	calls   int // that the model has received
	texts   int
}

type machineTenant struct {
	modelTenant
	mark    string // in all of the tenant's texts
	secrets []string
	handles map[modelKey]string
	listed  []client.Memory
}

// place is an open session, WebSocket, or both.
type place struct {
	t       *machineTenant
	who     modelPerson
	session string
	socket  *client.Socket // nil = there is none
	owns    bool           // the session ends with it
}

// Key 0 is the owner's.
var people = []modelPerson{{0, ""}, {1, ""}, {1, "ada"}, {1, "bob"}, {2, "ada"}}

func (m *machine) tenant(n int, pool bool) *machineTenant {
	name := fmt.Sprint("tenant", n)
	owner := m.env.Tenant(name)
	t := &machineTenant{
		modelTenant: modelTenant{pool: pool, active: map[string]int{}, histories: map[modelKey]*modelHistory{}, touched: map[string]map[modelKey]bool{}},
		mark:        fmt.Sprintf("zq%06dqz", n), secrets: []string{owner.Key()}, handles: map[modelKey]string{}, listed: []client.Memory{},
	}
	for range 2 {
		t.secrets = append(t.secrets, m.env.Key(name, client.NewKey{Role: "caller", AssertSubject: true}).Key())
	}
	for _, plugin := range []string{"alpha", "beta", "hdr"} {
		owner.Install(modelSource(plugin))
		t.activated++
		t.active[plugin] = t.activated
		if pool && plugin != "hdr" {
			_, err := owner.Client().SetGrant(m.Context(), plugin, client.Grant{MemoryNamespace: "pool"})
			m.want("grant", err, abi.OK)
		}
	}
	return t
}

// watched refuses answers that show another tenant's texts.
type watched struct {
	m *machine
	t *machineTenant
}

var marks = regexp.MustCompile(`zq\d{6}qz`)

func (w watched) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.m.http.RoundTrip(r)
	if err != nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	w.t.own(w.m, r.URL.Path, body)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, err
}

func (t *machineTenant) own(m *machine, what string, answer []byte) {
	for _, mark := range marks.FindAll(answer, -1) {
		if string(mark) != t.mark {
			m.Fatalf("%s shows %s, which is another tenant's: %s", what, mark, answer)
		}
	}
}

func (m *machine) as(t *machineTenant, who modelPerson) *client.Client {
	return &client.Client{Base: m.env.Addr(), Key: t.secrets[who.key], Subject: who.subject, HTTP: &http.Client{Transport: watched{m, t}}}
}

func (m *machine) want(what string, err error, code abi.Code) {
	if got := testenv.CodeOf(err); got != code {
		m.Fatalf("%s: got %v, want %v", what, err, code)
	}
}

func (m *machine) anyTenant() *machineTenant {
	return m.tenants[rapid.IntRange(0, len(m.tenants)-1).Draw(m.T, "tenant")]
}

func (m *machine) anybody() modelPerson { return rapid.SampledFrom(people).Draw(m.T, "person") }

func (m *machine) text(t *machineTenant, what string) string {
	m.texts++
	more := rapid.SampledFrom([]string{" w", "ww"}).Draw(m.T, "more") // many words, or one: the model server counts words
	return fmt.Sprintf("%s %s%d%s", t.mark, what, m.texts, strings.Repeat(more, rapid.SampledFrom([]int{0, 7, 25, 80}).Draw(m.T, "times")))
}

func (m *machine) callSome(*rapid.T) {
	for range rapid.IntRange(1, 4).Draw(m.T, "calls") {
		m.call()
	}
}

func (m *machine) call() {
	t := m.anyTenant()
	i := rapid.IntRange(0, len(modelMethods)-1).Draw(m.T, "method")
	c := modelCall{modelMethod: modelMethods[i], who: m.anybody(), user: m.text(t, "U")}
	if c.modelMethod.id != "" {
		c.id = rapid.SampledFrom([]string{"1", "2", "a/b#c", ""}).Draw(m.T, "id")
	}
	in := &place{t: t, who: c.who}
	if open := slices.DeleteFunc(slices.Clone(m.places), func(p *place) bool { return p.t != t }); len(open) > 0 {
		if n := rapid.IntRange(0, len(open)).Draw(m.T, "place"); n > 0 {
			in = open[n-1]
			c.who, c.session = in.who, in.session
		}
	}
	how := "socket"
	if in.socket == nil {
		how = rapid.SampledFrom([]string{"plain", "stream", "twice"}).Draw(m.T, "how")
		c.header = rapid.SampledFrom([]string{"", "blue", "green"}).Draw(m.T, "header")
	}
	fails := rapid.IntRange(0, 5).Draw(m.T, "fails") == 5
	what := fmt.Sprintf("%s call of %s id %q header %q session %q by %v", how, c.address(), c.id, c.header, c.session, c.who)

	var h *modelHistory
	var p plan
	k, code := t.key(c)
	if code == abi.OK {
		if h = t.histories[k]; k.kind != "request" || h != nil {
			h = t.touch(k, c)
		} else {
			h = new(modelHistory)
		}
		var ok bool
		if p, ok = c.plan(h); !ok {
			code = abi.ContextTooLarge
		} else if fails {
			code = abi.ModelFailed
		}
	}
	answer := m.text(t, "A")
	if p.sent != nil {
		m.calls++
		switch {
		case !fails:
			m.env.Model.Reply(answer)
		case how == "plain" || how == "twice":
			m.env.Model.FailNext(http.StatusInternalServerError, `{"error":{"message":"down"}}`)
		default:
			m.env.Model.AnswerNext(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"lost"},"finish_reason":null}]}`+"\n\n")
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}))
		}
	}
	out, err := m.invoke(in, c, how)
	m.want(what, err, code)
	if n := len(m.env.Model.Calls()); n != m.calls {
		m.Fatalf("%s: the model has received %d calls, not %d", what, n, m.calls)
	}
	if p.sent != nil {
		m.same(what+": send", m.env.Model.Send(m.calls), compact(p.sent))
		wellFormed(m, p.sent)
	}
	if code == abi.OK {
		if k.kind == "request" {
			k.id = out.MemoryID
			h = t.touch(k, c)
		}
		trimmed := c.commit(h, p, answer)
		if out.Output != answer || out.MemoryID != k.id || out.Trimmed != trimmed || out.Replayed {
			m.Fatalf("%s: got %+v, want %q in %+v, %d trimmed", what, out, answer, k, trimmed)
		}
	}
	ended := t.closes(thisRequest)
	if code == abi.OK {
		m.ended(t, what, out.Evicted, ended)
	}
	m.check(t, what)
	if code == abi.OK && how == "twice" {
		again, err := m.invoke(in, c, how)
		m.want("repeated "+what, err, abi.OK)
		if !again.Replayed || again.Output != answer || again.ID != out.ID || len(again.Evicted) > 0 {
			m.Fatalf("repeated %s: got %+v, want %+v", what, again, out)
		}
		c.user += "?"
		_, err = m.invoke(in, c, how)
		m.want("changed "+what, err, abi.IdempotencyMismatch)
		m.check(t, "repeated "+what)
	}
}

// invoke makes a call. Those that can be repeated have a key of their user
// message's number.
func (m *machine) invoke(in *place, c modelCall, how string) (client.Invocation, error) {
	args := map[string]string{"msg": c.user}
	if c.id != "" {
		args["id"] = c.id
	}
	at, err := carrel.ParseAddress(c.address())
	m.want("address", err, abi.OK)
	o := client.CallOptions{Session: c.session}
	if c.header != "" {
		o.Header = http.Header{headerKey: {c.header}}
	}
	var events iter.Seq2[client.Event, error]
	switch how {
	case "socket":
		call, err := in.socket.Invoke(m.Context(), client.Frame{Method: c.address(), Args: args})
		m.want("frame", err, abi.OK)
		events = call.Events(m.Context())
	case "stream":
		events = m.as(in.t, c.who).Stream(m.Context(), at, "", args, o)
	case "twice":
		o.IdempotencyKey = fmt.Sprint(in.t.mark, m.texts)
		fallthrough
	default:
		return m.as(in.t, c.who).Invoke(m.Context(), at, "", args, o)
	}
	return client.Result(func(yield func(client.Event, error) bool) {
		for e, err := range events {
			raw, _ := json.Marshal(e)
			in.t.own(m, "an event", raw)
			if !yield(e, err) {
				return
			}
		}
	}, nil)
}

func (m *machine) same(what string, got, want []string) {
	if !slices.Equal(got, want) {
		m.Fatalf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

// wellFormed holds for whatever is sent: at most one system message, which is
// the first, then a user's; results follow the calls that they are of.
func wellFormed(m *machine, sent []carrel.Message) {
	if sent[0].Role == carrel.RoleSystem {
		sent = sent[1:]
	}
	open := map[string]bool{}
	for i, msg := range sent {
		if i == 0 && msg.Role != carrel.RoleUser || msg.Role == carrel.RoleSystem ||
			msg.Role == carrel.RoleTool && !open[msg.ToolCallID] || msg.Role != carrel.RoleTool && len(open) > 0 {
			m.Fatalf("message %d has no business there: %q", i, compact(sent))
		}
		delete(open, msg.ToolCallID)
		for _, call := range msg.ToolCalls {
			open[call.ID] = true
		}
	}
}

// wait asks again until what nobody announces has happened.
func (m *machine) wait(what string, happened func(context.Context) bool) {
	within, cancel := context.WithTimeout(m.Context(), 30*time.Second)
	defer cancel()
	for !happened(within) {
		if within.Err() != nil {
			m.Fatalf("%s did not happen", what)
		}
		runtime.Gosched()
	}
}

// sees tells whether a person may see a history.
func sees(who modelPerson, h *modelHistory) bool { return who.key == 0 || h.by[who] }

// keys returns the keys of a tenant's histories in an order that is always the
// same.
func (t *machineTenant) keys() []modelKey {
	return slices.SortedFunc(maps.Keys(t.histories), func(a, b modelKey) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
}

func (m *machine) records(t *machineTenant) []string {
	page, err := m.as(t, people[0]).Evictions(m.Context(), time.Time{}, client.ListOptions{Limit: 1000})
	m.want("list evictions", err, abi.OK)
	var out []string
	for _, r := range page.Data {
		if (r.Scope == "") != (r.Instance == "") {
			m.Fatalf("a record has the scope %q and the instance %q", r.Scope, r.Instance)
		}
		out = append(out, modelEnd{
			plugin: r.Plugin, memoryID: r.MemoryID, scope: r.Scope, why: r.Reason, messages: r.Messages, bytes: r.Bytes,
		}.String())
	}
	return out
}
