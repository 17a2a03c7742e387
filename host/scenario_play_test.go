package host_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/internal/testproc"
)

// step is one thing that happens in a scenario, and what must come of it. In
// histories and sends a message is its text alone, where that begins with its
// role's letter: S, U, A. Anything else stands as "role:text". Answers are
// numbered from 1 in each scenario.
type step struct {
	call    string   // the address of a method, unless do happens
	who     string   // who calls: the owner (""), a key by its name, or "key/subject"; "elsewhere" owns another tenant
	params  []string // name, value and so on
	header  string   // the value of X-Conversation
	session string   // opened by the first step that names it: own or attached
	key     string   // an idempotency key
	fails   int      // the status with which the model fails
	during  []step   // what happens while the model keeps the call waiting
	do      func(t *testing.T, p *play, s step) []client.Evicted

	sends    []string // what the model is sent, call by call
	code     abi.Code // of the refusal
	lost     bool     // the host is gone before it answers
	memory   string   // the memory id; "<default>" and "<session>" stand for what the host made
	evicts   []string // what ends with it: "memory id: messages reason"
	trims    int64    // messages that the history's limit takes
	replayed bool     // the answer is an earlier one
	stored   []string // all of the tenant's histories then: "memory id: messages"; nil = not looked at
}

// Sessions of steps.
const (
	own      = "own"      // on a WebSocket a connection, else an HTTP session
	attached = "attached" // an HTTP session, on a WebSocket attached to one
)

// nothing is that no history is there.
var nothing = []string{}

// play is a scenario that is being played.
type play struct {
	*runner
	scenario scenario
	tenant   string
	before   int                       // model calls before it
	actors   map[string]*testenv.Actor // by name, without subjects
	sessions map[string]string         // ids by name
	sockets  map[string]*client.Socket // by who, session and header
	defaults map[string]bool           // default ids of requests so far
}

// do plays steps in their order.
func (p *play) do(t *testing.T, steps []step) {
	t.Helper()
	for i, s := range steps {
		what := fmt.Sprintf("step %d, %s %q", i+1, s.call, s.params)
		if s.do != nil {
			same(t, what+": evicts", p.ended(s.do(t, p, s)), p.named(s.evicts)...)
		} else {
			p.talk(t, what, s)
		}
		if s.stored != nil {
			same(t, what+": stored", p.stored(t), p.named(s.stored)...)
		}
	}
}

// talk plays a step that is a call.
func (p *play) talk(t *testing.T, what string, s step) {
	t.Helper()
	n := len(p.model.Calls())
	if s.fails > 0 {
		p.model.FailNext(s.fails, `{"error":{"message":"upstream secret detail"}}`)
	}
	var out client.Invocation
	var err error
	if s.during == nil {
		out, err = p.ready(t, s)()
		if got := len(p.model.Calls()) - n; got != len(s.sends) {
			t.Errorf("%s: %d model calls, want %d", what, got, len(s.sends))
		}
	} else {
		call, ended := p.ready(t, s), make(chan testenv.Outcome, 1)
		release := p.model.Hold()
		defer release()
		go func() {
			out, err := call()
			ended <- testenv.Outcome{Invocation: out, Err: err}
		}()
		if err := p.model.Arrived(t.Context(), n+1); err != nil {
			t.Fatal(err)
		}
		p.do(t, s.during)
		release()
		o := <-ended
		out, err = o.Invocation, o.Err
	}
	for i, want := range s.sends {
		same(t, fmt.Sprintf("%s: send %d", what, i+1), []string{p.letters(p.model.Send(n + i + 1))}, want)
	}
	if s.lost {
		if err == nil || errors.As(err, new(*client.Problem)) {
			t.Errorf("%s: a host that is gone answers %+v, %v", what, out, err)
		}
		return
	}
	if got := testenv.CodeOf(err); got != s.code {
		t.Fatalf("%s: got %v, want the code %v", what, err, s.code)
	}
	if err != nil {
		return
	}
	p.memory(t, what, s, out)
	same(t, what+": evicts", p.ended(out.Evicted), p.named(s.evicts)...)
	if out.Evicted == nil || out.EvictionPending || out.Trimmed != s.trims || out.Replayed != s.replayed {
		t.Errorf("%s: the answer is %+v", what, out)
	}
	if len(s.sends) == 1 && out.Output != fmt.Sprintf("A%d", n+1) {
		t.Errorf("%s: the answer is %v, the model's was A%d", what, out.Output, n+1)
	}
}

// memory holds the memory id of an answer against what the step says. A
// request's default id is one that no request had before.
func (p *play) memory(t *testing.T, what string, s step, out client.Invocation) {
	t.Helper()
	switch method, ok := strings.CutPrefix(s.memory, "<default>"); {
	case s.memory == "":
	case ok && !p.socket:
		id, found := strings.CutSuffix(out.MemoryID, method)
		if !found || id == "" || p.defaults[id] {
			t.Errorf("%s: the memory id %q is no fresh one of %s", what, out.MemoryID, method)
		}
		p.defaults[id] = true
		p.sessions[lastDefault] = id
	default:
		same(t, what+": the memory id", []string{out.MemoryID}, p.named([]string{s.memory})...)
	}
}

// lastDefault is what play.sessions holds the id under that <default> stands
// for.
const lastDefault = "default"

// named returns texts, sorted, with the ids in them that the host made.
func (p *play) named(texts []string) []string {
	ids := strings.NewReplacer("<session>", cmp.Or(p.sessions[own], p.sessions[attached]), "<default>", p.sessions[lastDefault])
	out := make([]string, len(texts))
	for i, s := range texts {
		out[i] = ids.Replace(s)
	}
	slices.Sort(out)
	return out
}

// actor returns who a step says.
func (p *play) actor(t *testing.T, who string) *testenv.Actor {
	name, subject, asserted := strings.Cut(who, "/")
	a, ok := p.actors[name]
	switch {
	case ok:
	case name == "":
		a = p.runner.tenant(t, p.tenant, p.scenario.plugins)
	case name == "elsewhere":
		a = p.runner.tenant(t, p.tenant+"-elsewhere", p.scenario.plugins)
	default:
		a = p.key(t, p.tenant, client.NewKey{Role: "caller", AssertSubject: true})
	}
	p.actors[name] = a
	if asserted {
		return a.As(subject)
	}
	return a
}

// ready opens what the call of a step needs and returns what makes the call,
// whatever comes of it, on any goroutine.
func (p *play) ready(t *testing.T, s step) func() (client.Invocation, error) {
	t.Helper()
	a := p.actor(t, s.who)
	if s.session != "" && p.sessions[s.session] == "" && (!p.socket || s.session == attached) {
		p.sessions[s.session] = a.Open(client.NewSession{}).ID
	}
	if !p.socket {
		for name, value := range map[string]string{
			headerKey: s.header, "Carrel-Session": p.sessions[s.session], idempotencyKey: s.key,
		} {
			if value != "" {
				a = a.With(name, value)
			}
		}
		return func() (client.Invocation, error) { return a.Call(t.Context(), s.call, s.params...) }
	}
	socket, err := p.connection(t, a, s)
	args := map[string]string{}
	for i := 0; i+1 < len(s.params); i += 2 {
		args[s.params[i]] = s.params[i+1]
	}
	return func() (client.Invocation, error) {
		if err != nil {
			return client.Invocation{}, err
		}
		call, err := socket.Invoke(t.Context(), client.Frame{Method: s.call, Args: args})
		if err != nil {
			return client.Invocation{}, err
		}
		return call.Result(t.Context())
	}
}

// connection returns the WebSocket that a step's frames are sent on.
func (p *play) connection(t *testing.T, a *testenv.Actor, s step) (*client.Socket, error) {
	name := s.who + "|" + s.session + "|" + s.header
	if socket := p.sockets[name]; socket != nil {
		return socket, nil
	}
	c := a.Client()
	c.HTTP = &http.Client{Transport: conversation(s.header)}
	o := client.SocketOptions{}
	if s.session == attached {
		o.Session = p.sessions[attached]
	}
	socket, err := c.Connect(t.Context(), o)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = socket.Close() }) // it may be closed
	p.sockets[name] = socket
	if s.session == own {
		p.sessions[own] = socket.Session
	} else {
		p.sessions[lastDefault] = socket.Session
	}
	return socket, nil
}

// conversation sends requests with a header that has a value, unless that is
// empty.
type conversation string

// RoundTrip sends the request.
func (value conversation) RoundTrip(r *http.Request) (*http.Response, error) {
	if value != "" {
		r = r.Clone(r.Context())
		r.Header.Set(headerKey, string(value))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// letters are the texts of example plugins by which memory.md's S, U and A are
// meant.
var letters = map[string]string{
	"You are a nice assistant": "S", "You are a mean assistant": "S'",
	"You remember": "S", "You forget": "S'", "You have a short memory": "S", "You sit": "S", "You pass": "S'", "You stay": "S''",
	"I am one": "U1a", "I am two": "U2a", "Who am I?": "U1b", "And who am I?": "U2b",
	"My name is Ada": "U1", "What is my name?": "U2",
}

// letters writes messages of the form role:text as steps do.
func (p *play) letters(messages []string) string {
	out := make([]string, len(messages))
	for i, m := range messages {
		role, text, _ := strings.Cut(m, ":")
		if n, err := strconv.Atoi(strings.TrimPrefix(text, "A")); err == nil && role == "assistant" {
			text = fmt.Sprintf("A%d", n-p.before)
		}
		if letter, ok := letters[text]; ok {
			text = letter
		}
		if text == "" || !strings.EqualFold(text[:1], role[:1]) {
			text = m
		}
		out[i] = text
	}
	return strings.Join(out, ",")
}

// stored returns all histories of the scenario's tenant, in the order of their
// memory ids and texts.
func (p *play) stored(t *testing.T) []string {
	t.Helper()
	a := p.actor(t, "")
	out := []string{}
	for _, m := range a.Memories("") {
		all, err := client.All(100_000, func(o client.ListOptions) (client.Page[client.Message], error) {
			return a.Client().Messages(t.Context(), m.Key, o)
		})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m.MemoryID+": "+p.letters(shown(all)))
	}
	slices.Sort(out)
	return out
}

// ended writes evictions as steps do.
func (p *play) ended(all []client.Evicted) []string {
	out := []string{}
	for _, e := range all {
		out = append(out, fmt.Sprintf("%s: %d %s", e.MemoryID, e.Messages, e.Reason))
	}
	slices.Sort(out)
	return out
}

// records waits until there are n records of what ended in the scenario's
// tenant, and returns all.
func (p *play) records(t *testing.T, n int) []client.Evicted {
	t.Helper()
	var out []client.Evicted
	testproc.Until(t, "the record of what ended", func() bool {
		all, err := client.All(1000, func(o client.ListOptions) (client.Page[client.EvictionRecord], error) {
			return p.actor(t, "").Client().Evictions(t.Context(), time.Time{}, o)
		})
		if err != nil {
			t.Fatal(err)
		}
		out = nil
		for _, r := range all {
			out = append(out, client.Evicted{MemoryID: r.MemoryID, Messages: r.Messages, Reason: r.Reason})
		}
		return len(out) >= n
	})
	return out
}
