package host_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/model/modeltest"
)

// What follows is chat memory as memory.md tells it, as naive as can be, for
// the state machine to hold the host against. It shares no policy with it.

// mostMessages is limits.messagesPerHistory of the machine's hosts: so few that
// histories are trimmed.
const mostMessages = 9

// modelMethod is a method of the machine's plugins.
type modelMethod struct {
	plugin, service, name string
	scope                 string
	id                    string // how the param is declared: "", "id" or "id?"
	system                string // "" = none
	messages              int    // of the window; 0 = tokens says it
	tokens                int64
	retainWindow          bool
	seeds                 []string // user, assistant, user, assistant
}

func (m modelMethod) address() string { return m.plugin + "/" + m.service + "." + m.name }

// modelMethods are all methods. Alpha and beta ask for one shared namespace,
// hdr takes its default ids from a header.
var modelMethods = []modelMethod{
	{plugin: "alpha", service: "App", name: "chat", scope: "application", id: "id", system: "Sa", messages: 5},
	{plugin: "alpha", service: "Req", name: "chat", scope: "request", id: "id?", system: "Sb", messages: 20},
	{plugin: "alpha", service: "Req", name: "plain", scope: "request", system: "Sb", messages: 4},
	{plugin: "alpha", service: "Ses", name: "chat", scope: "session", id: "id?", messages: 6},
	{plugin: "alpha", service: "Ses", name: "plain", scope: "session", system: "Sc", messages: 4, seeds: []string{"su", "sa"}},
	{plugin: "beta", service: "App", name: "chat", scope: "application", id: "id", system: "Sd", tokens: 120, seeds: []string{"su1", "sa1", "su2", "sa2"}},
	{plugin: "beta", service: "App", name: "keep", scope: "application", id: "id", messages: 6, retainWindow: true},
	{plugin: "beta", service: "Ses", name: "chat", scope: "session", id: "id?", system: "Sa", tokens: 60, retainWindow: true, seeds: []string{"su", "sa"}},
	{plugin: "beta", service: "Req", name: "chat", scope: "request", id: "id", messages: 1},
	{plugin: "hdr", service: "App", name: "chat", scope: "application", id: "id?", system: "Se", messages: 7},
	{plugin: "hdr", service: "App", name: "plain", scope: "application", system: "Se", tokens: 200, retainWindow: true},
	{plugin: "hdr", service: "Req", name: "plain", scope: "request", system: "Sf", messages: 20},
	{plugin: "hdr", service: "Ses", name: "plain", scope: "session", messages: 5},
}

// modelSource returns the source of a plugin of modelMethods.
func modelSource(plugin string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\nname: %s\n", plugin)
	if plugin == "hdr" {
		b.WriteString("defaultMemoryId: {from: 'header:X-Conversation', priority: -10}\n")
	} else {
		b.WriteString("memoryNamespace: pool\n")
	}
	b.WriteString("services:\n")
	service := ""
	for _, m := range modelMethods {
		if m.plugin != plugin {
			continue
		}
		if m.service != service {
			service = m.service
			fmt.Fprintf(&b, "- name: %s\n  scope: %s\n  methods:\n", m.service, m.scope)
		}
		fmt.Fprintf(&b, "  - name: %s\n    params: {msg: string", m.name)
		if m.id != "" {
			fmt.Fprintf(&b, ", %s: string}\n    memoryId: id\n", m.id)
		} else {
			b.WriteString("}\n")
		}
		if m.system != "" {
			fmt.Fprintf(&b, "    systemMessage: %s\n", m.system)
		}
		if m.tokens > 0 {
			fmt.Fprintf(&b, "    window: {type: tokens, max: %d}\n", m.tokens)
		} else {
			fmt.Fprintf(&b, "    window: {max: %d}\n", m.messages)
		}
		if m.retainWindow {
			b.WriteString("    retain: window\n")
		}
		for i := 0; i < len(m.seeds); i += 2 {
			if i == 0 {
				b.WriteString("    seed:\n")
			}
			fmt.Fprintf(&b, "    - {user: %s, assistant: %s}\n", m.seeds[i], m.seeds[i+1])
		}
	}
	b.WriteString("---\n")
	return b.String()
}

// modelPerson is an API key on behalf of a subject. Key 0 is the owner's.
type modelPerson struct {
	key     int
	subject string
}

type modelKey struct{ namespace, kind, owner, id string }

type modelTurn struct {
	n        int64
	messages []carrel.Message
}

type modelHistory struct {
	plugin string // that touched it last
	system string
	turns  []modelTurn
	last   int64 // number of the newest turn there ever was
	rate   int64 // tokens per 1,000 bytes, as measured; 0 = nothing was
	by     map[modelPerson]bool
	// applications are those that touched it. They forget a key when its
	// history ends; requests and sessions never do.
	applications map[string]bool
}

// all returns the history's messages, the system message first.
func (h *modelHistory) all() []carrel.Message {
	var out []carrel.Message
	if h.system != "" {
		out = append(out, carrel.Message{Role: carrel.RoleSystem, Content: h.system})
	}
	return append(out, flat(h.turns)...)
}

func flat(turns []modelTurn) []carrel.Message {
	var out []carrel.Message
	for _, t := range turns {
		out = append(out, t.messages...)
	}
	return out
}

func bytesOf(messages []carrel.Message) (n int64) {
	for _, m := range messages {
		n += int64(len(m.Content) + len(m.ToolCallID))
		for _, c := range m.ToolCalls {
			n += int64(len(c.ID) + len(c.Name) + len(c.Args))
		}
	}
	return n
}

func compact(messages []carrel.Message) []string {
	return modeltest.Call{Messages: messages}.Compact()
}

// modelEnd is an eviction record.
type modelEnd struct {
	key                modelKey
	plugin, scope, why string
	messages, bytes    int64
	memoryID           string // as records have it: "" if it was erased
}

// modelTenant is all that a tenant has.
type modelTenant struct {
	pool      bool           // alpha and beta share the namespace pool
	active    map[string]int // plugin → its activation's number; 0 = none
	activated int
	histories map[modelKey]*modelHistory
	touched   map[string]map[modelKey]bool // in requests and sessions that are open
	ended     []modelEnd
}

// modelCall is an invocation.
type modelCall struct {
	modelMethod
	who     modelPerson
	id      string // "" = not given
	header  string // likewise
	session string // likewise: the ambient session's id
	user    string
}

// explicit returns the key of an explicit id.
func (t *modelTenant) explicit(plugin, id string) modelKey {
	if t.pool && plugin != "hdr" {
		return modelKey{"pool of several", "explicit", "", id}
	}
	return modelKey{plugin, "explicit", "", id}
}

// key returns a call's key, or why it is refused before any work. That of a
// request's own has no id yet: nobody can tell it.
func (t *modelTenant) key(c modelCall) (modelKey, abi.Code) {
	switch {
	case t.active[c.plugin] == 0:
		return modelKey{}, abi.NotFound
	case c.scope == "session" && c.session == "":
		return modelKey{}, abi.NoSession
	case c.modelMethod.id != "" && c.id != "":
		return t.explicit(c.plugin, c.id), abi.OK
	case c.modelMethod.id == "id":
		return modelKey{}, abi.InvalidMemoryID
	}
	method := "#" + c.service + "." + c.name
	switch {
	case c.plugin == "hdr" && c.header != "":
		owner := fmt.Sprint("key ", c.who.key)
		if c.who.subject != "" {
			owner = "subject " + c.who.subject
		}
		return modelKey{c.plugin, "plugin", owner, c.header + method}, abi.OK
	case c.scope == "application":
		return modelKey{}, abi.DefaultIDLeak
	case c.session != "":
		return modelKey{c.plugin, "session", "", c.session + method}, abi.OK
	}
	return modelKey{c.plugin, "request", "", ""}, abi.OK
}

// thisRequest is the label of the request scope that is open.
const thisRequest = "request"

// touch makes the history of a key if there is none.
func (t *modelTenant) touch(k modelKey, c modelCall) *modelHistory {
	h := t.histories[k]
	if h == nil {
		h = &modelHistory{by: map[modelPerson]bool{}, applications: map[string]bool{}}
		t.histories[k] = h
	}
	h.plugin = c.plugin
	h.by[c.who] = true
	label := thisRequest
	switch c.scope {
	case "application":
		h.applications[t.application(c.plugin)] = true
		return h
	case "session":
		label = "session " + c.session
	}
	if t.touched[label] == nil {
		t.touched[label] = map[modelKey]bool{}
	}
	t.touched[label][k] = true
	return h
}

func (t *modelTenant) application(plugin string) string {
	return fmt.Sprintf("application %s %d", plugin, t.active[plugin])
}

// tokensOf estimates at a rate, 250 if nothing was measured: a quarter token a
// byte, rounded up, and four for each message.
func tokensOf(messages []carrel.Message, rate int64) (n int64) {
	if rate == 0 {
		rate = 250
	}
	for _, m := range messages {
		n += 4 + (bytesOf([]carrel.Message{m})*rate+999)/1000
	}
	return n
}

// fits tells whether messages fit into a method's window.
func (m modelMethod) fits(messages []carrel.Message, rate int64) bool {
	if m.tokens > 0 {
		return tokensOf(messages, rate) <= m.tokens
	}
	return len(messages) <= m.messages
}

// window returns how many of the oldest turns do not fit before current.
func (m modelMethod) window(system string, turns []modelTurn, current []carrel.Message, rate int64) int {
	fixed := current
	if system != "" {
		fixed = append([]carrel.Message{{Role: carrel.RoleSystem, Content: system}}, current...)
	}
	out := len(turns)
	for out > 0 && m.fits(slices.Concat(flat(turns[out-1:]), fixed), rate) {
		out--
	}
	return out
}

// plan is what a call finds and sends.
type plan struct {
	system string
	seeds  []modelTurn
	sent   []carrel.Message
}

// plan is the call on a history; it is false if the model cannot be asked.
func (c modelCall) plan(h *modelHistory) (plan, bool) {
	p := plan{system: h.system}
	if c.system != "" {
		p.system = c.system
	}
	old := h.turns
	if len(old) == 0 {
		for i := 0; i < len(c.seeds); i += 2 {
			p.seeds = append(p.seeds, modelTurn{messages: qa(c.seeds[i], c.seeds[i+1])})
		}
		old = p.seeds
	}
	question := qa(c.user, "")[:1]
	now := modelHistory{system: p.system, turns: []modelTurn{{messages: question}}}
	if c.tokens > 0 && !c.fits(now.all(), h.rate) {
		return p, false
	}
	now.turns = append(slices.Clone(old[c.window(p.system, old, question, h.rate):]), now.turns...)
	p.sent = now.all()
	return p, true
}

func qa(user, assistant string) []carrel.Message {
	return []carrel.Message{{Role: carrel.RoleUser, Content: user}, {Role: carrel.RoleAssistant, Content: assistant}}
}

// commit stores a planned turn and returns how many messages were trimmed.
func (c modelCall) commit(h *modelHistory, p plan, answer string) int64 {
	turn := qa(c.user, answer)
	if c.retainWindow {
		h.turns = h.turns[c.window(p.system, h.turns, turn, h.rate):]
	}
	h.system = p.system
	for _, s := range p.seeds {
		h.add(s.messages)
	}
	h.add(turn)
	if words, size := wordsOf(p.sent), bytesOf(p.sent); size >= 256 {
		counted := max(0, words-4*int64(len(p.sent)))
		h.rate = min(1000, max(100, (counted*1000+size-1)/size))
	}
	return h.trim()
}

// wordsOf counts as the machine's model server does.
func wordsOf(messages []carrel.Message) (n int64) {
	for _, m := range messages {
		n += int64(len(strings.Fields(m.Content)))
	}
	return n
}

func (h *modelHistory) add(messages []carrel.Message) {
	h.last++
	h.turns = append(h.turns, modelTurn{h.last, messages})
}

func (h *modelHistory) trim() int64 {
	before := len(h.all())
	for len(h.turns) > 1 && len(h.all()) > mostMessages {
		h.turns = h.turns[1:]
	}
	return int64(before - len(h.all()))
}

// end ends histories and returns their records.
func (t *modelTenant) end(scope, why string, which func(modelKey, *modelHistory) bool) []modelEnd {
	var ended []modelEnd
	for k, h := range t.histories {
		if which(k, h) {
			e := modelEnd{key: k, plugin: h.plugin, scope: scope, why: why, messages: int64(len(h.all())), bytes: bytesOf(h.all()), memoryID: k.id}
			if why == "erased" {
				e.memoryID = ""
			}
			ended = append(ended, e)
			delete(t.histories, k)
		}
	}
	t.ended = append(t.ended, ended...)
	return ended
}

// closes ends what a scope instance touched.
func (t *modelTenant) closes(label string) []modelEnd {
	keys := t.touched[label]
	delete(t.touched, label)
	scope, _, _ := strings.Cut(label, " ")
	return t.end(scope, "scope_closed", func(k modelKey, h *modelHistory) bool { return keys[k] || h.applications[label] })
}
