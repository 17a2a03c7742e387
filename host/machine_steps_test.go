package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

// What a machine does besides calls.

func (m *machine) open(*rapid.T) {
	if len(m.places) > 6 {
		m.Skip("there are enough")
	}
	p := &place{t: m.anyTenant(), who: m.anybody()}
	c := m.as(p.t, p.who)
	kind := rapid.SampledFrom([]string{"session", "socket", "attached socket"}).Draw(m.T, "kind")
	var o client.SocketOptions
	if kind != "socket" {
		s, err := c.OpenSession(m.Context(), client.NewSession{})
		m.want("open session", err, abi.OK)
		p.session, o.Session = s.ID, s.ID
	}
	if kind != "session" {
		s, err := c.Connect(m.Context(), o)
		m.want("open WebSocket", err, abi.OK)
		p.socket, p.session, p.owns = s, s.Session, kind == "socket"
	}
	m.places = append(m.places, p)
}

func (m *machine) close(*rapid.T) {
	if len(m.places) == 0 {
		m.Skip("nothing is open")
	}
	i := rapid.IntRange(0, len(m.places)-1).Draw(m.T, "place")
	p := m.places[i]
	m.places = slices.Delete(m.places, i, i+1)
	if p.socket != nil {
		if err := p.socket.Close(); err != nil {
			m.Fatalf("close WebSocket: %v", err)
		}
	}
	ended := p.t.closes("session " + p.session)
	if p.owns {
		m.wait("the end of a WebSocket's histories", func(context.Context) bool { return len(m.records(p.t)) >= len(p.t.ended) })
		m.check(p.t, "a WebSocket's close")
		return
	}
	for _, again := range []string{"", " again"} {
		done, err := m.as(p.t, p.who).CloseSession(m.Context(), p.session)
		m.want("close session"+again, err, abi.OK)
		m.ended(p.t, "close of a session"+again, done.Evicted, ended)
	}
	m.check(p.t, "the close of a session")
}

// anyHistory returns the key of a history that has been listed, and tries it
// with who may not see it, and as another tenant.
func (m *machine) anyHistory() (*machineTenant, modelPerson, modelKey, *modelHistory) {
	t, who := m.anyTenant(), m.anybody()
	all := t.keys()
	if len(all) == 0 {
		m.Skip("there is no history")
	}
	k := rapid.SampledFrom(all).Draw(m.T, "history")
	stranger := m.tenants[(slices.Index(m.tenants, t)+1)%len(m.tenants)]
	c := m.as(stranger, people[0])
	_, err := c.DeleteMemory(m.Context(), t.handles[k])
	m.want("another tenant deletes", err, abi.NotFound)
	_, err = c.Messages(m.Context(), t.handles[k], client.ListOptions{})
	m.want("another tenant reads", err, abi.NotFound)
	return t, who, k, t.histories[k]
}

func (m *machine) deleteHistory(*rapid.T) {
	t, who, k, h := m.anyHistory()
	done, err := m.as(t, who).DeleteMemory(m.Context(), t.handles[k])
	if !sees(who, h) {
		m.want("delete what one does not see", err, abi.NotFound)
	} else {
		m.want("delete", err, abi.OK)
		m.ended(t, "a deletion", done.Evicted, t.end("", "deleted", func(k2 modelKey, _ *modelHistory) bool { return k2 == k }))
	}
	m.check(t, "a deletion")
}

func (m *machine) deleteTurn(*rapid.T) {
	t, who, k, h := m.anyHistory()
	turns := []int64{rapid.Int64Range(0, h.last+1).Draw(m.T, "turn")}
	if rapid.IntRange(0, 2).Draw(m.T, "all of them") == 2 {
		turns = nil
		for _, turn := range h.turns {
			turns = append(turns, turn.n)
		}
	}
	for _, turn := range turns {
		i := slices.IndexFunc(h.turns, func(t modelTurn) bool { return t.n == turn })
		code := abi.NotFound
		if i >= 0 && sees(who, h) {
			code = abi.OK
			h.turns = slices.Delete(slices.Clone(h.turns), i, i+1)
		}
		m.want("delete turn", m.as(t, who).DeleteTurn(m.Context(), t.handles[k], turn), code)
	}
	m.check(t, "a turn's deletion")
}

func (m *machine) erase(*rapid.T) {
	t := m.anyTenant()
	subject := rapid.SampledFrom([]string{"ada", "bob"}).Draw(m.T, "subject")
	inHers := map[modelKey]bool{} // touched in her HTTP sessions, which end
	m.places = slices.DeleteFunc(m.places, func(p *place) bool {
		hers := p.t == t && p.who.subject == subject
		if hers && !p.owns {
			maps.Copy(inHers, t.touched["session "+p.session])
			delete(t.touched, "session "+p.session)
		}
		if hers && p.socket != nil {
			_ = p.socket.Close() // an end by that would have another reason than the erasure
		}
		if hers && p.owns {
			t.closes("session " + p.session)
			m.wait("the end of a WebSocket's histories", func(context.Context) bool { return len(m.records(t)) >= len(t.ended) })
		}
		return hers
	})
	done, err := m.as(t, people[0]).EraseSubject(m.Context(), subject)
	m.want("erase", err, abi.OK)
	m.ended(t, "an erasure", done.Evicted, t.end("", "erased", func(k modelKey, h *modelHistory) bool {
		if inHers[k] {
			return true
		}
		for who := range h.by {
			if who.subject == subject {
				return true
			}
		}
		return false
	}))
	m.check(t, "an erasure")
}

func (m *machine) importHistory(*rapid.T) {
	t, who := m.anyTenant(), people[0]
	if rapid.IntRange(0, 5).Draw(m.T, "not the owner") == 5 {
		who = m.anybody()
	}
	plugin := rapid.SampledFrom([]string{"alpha", "beta", "hdr"}).Draw(m.T, "plugin")
	id := rapid.SampledFrom([]string{"1", "2", "3"}).Draw(m.T, "id")
	system := rapid.SampledFrom([]string{"", "imported"}).Draw(m.T, "system")
	var turns []modelTurn
	for n := range rapid.IntRange(1, 2).Draw(m.T, "turns") {
		turn := qa(m.text(t, "U"), m.text(t, "A"))
		if rapid.Bool().Draw(m.T, "with tools") {
			calls := []carrel.ToolCall{{ID: "c1", Name: "add", Args: json.RawMessage(`{"a":1}`)}, {ID: "c2", Name: "add", Args: json.RawMessage(`{}`)}}
			turn = slices.Insert(turn, 1, carrel.Message{Role: carrel.RoleAssistant, ToolCalls: calls},
				carrel.Message{Role: carrel.RoleTool, ToolCallID: "c1", Content: "one"}, carrel.Message{Role: carrel.RoleTool, ToolCallID: "c2"})
		}
		turns = append(turns, modelTurn{int64(n + 1), turn})
	}
	var b bytes.Buffer
	line := json.NewEncoder(&b)
	all := (&modelHistory{system: system, turns: turns}).all()
	lines := []any{client.HistoryHead{Format: client.HistoryFormat, Plugin: plugin, MemoryID: id, Kind: "explicit", CreatedAt: time.Unix(1e9, 0), Messages: int64(len(all))}}
	seq, number := int64(0), int64(0)
	for _, msg := range all {
		if msg.Role == carrel.RoleUser {
			number++
		}
		if number > 0 {
			seq++
		}
		lines = append(lines, client.Message{
			Seq: seq, Turn: number, Role: string(msg.Role), Content: msg.Content,
			ToolCalls: msg.ToolCalls, ToolCallID: msg.ToolCallID, At: time.Unix(1e9, 0),
		})
	}
	for _, l := range append(lines, client.HistoryEnd{End: true, Messages: int64(len(all))}) {
		if err := line.Encode(l); err != nil {
			m.Fatal(err)
		}
	}

	k := t.explicit(plugin, id)
	h := t.histories[k]
	code := abi.OK
	switch {
	case who.key != 0:
		code = abi.Forbidden
	case len(all) > mostMessages:
		code = abi.LimitExceeded
	case t.active[plugin] == 0:
		code = abi.NotFound
	case h != nil && len(h.all()) > 0:
		code = abi.HistoryConflict
	default:
		h = t.touch(k, modelCall{modelMethod: modelMethod{plugin: plugin, scope: "application"}, who: who})
		h.system = system
		for _, turn := range turns {
			h.add(turn.messages)
		}
	}
	_, err := m.as(t, who).Import(m.Context(), &b, client.ImportOptions{})
	m.want("import", err, code)
	m.check(t, "an import")
}

func (m *machine) activation(*rapid.T) {
	t := m.anyTenant()
	plugin := rapid.SampledFrom([]string{"alpha", "beta", "hdr"}).Draw(m.T, "plugin")
	c := m.as(t, people[0])
	if t.active[plugin] == 0 {
		_, err := c.Activate(m.Context(), plugin, "1")
		m.want("activate", err, abi.OK)
		t.activated++
		t.active[plugin] = t.activated
		m.check(t, "an activation")
		return
	}
	done, err := c.Deactivate(m.Context(), plugin)
	m.want("deactivate", err, abi.OK)
	m.ended(t, "a deactivation", done.Evicted, t.closes(t.application(plugin)))
	t.active[plugin] = 0
	m.check(t, "a deactivation")
}

func (m *machine) restart(*rapid.T) {
	if !m.keeps || rapid.IntRange(0, 7).Draw(m.T, "restarts") < 7 {
		m.Skip("not now")
	}
	m.env.Restart()
	left := []*place{}
	for _, p := range m.places {
		switch {
		case p.socket == nil:
			left = append(left, p)
		case p.owns:
			p.t.closes("session " + p.session)
		default: // the session that it was attached to is still open
			left = append(left, &place{t: p.t, who: p.who, session: p.session})
		}
	}
	m.places = left
	for _, t := range m.tenants {
		t.listed = nil // what a dead WebSocket touched is gone from it
	}
	for _, t := range m.tenants {
		m.check(t, "a restart")
	}
}

func (m *machine) scrub(*rapid.T) {
	if rapid.IntRange(0, 3).Draw(m.T, "scrubs") < 3 {
		m.Skip("not now")
	}
	_, err := m.env.Admin().Scrub(m.Context())
	m.want("scrub", err, abi.OK)
	m.check(m.tenants[0], "a scrub")
}

// check holds all that a tenant's people see against the model, and all that
// the other tenants see against what they saw before.
func (m *machine) check(t *machineTenant, after string) {
	for _, other := range m.tenants {
		if other == t || other.listed == nil {
			continue
		}
		if now := m.list(other, people[0]); !reflect.DeepEqual(now, other.listed) {
			m.Fatalf("after %s of another tenant: histories were %+v and are %+v", after, other.listed, now)
		}
	}
	t.listed = m.list(t, people[0])
	if len(t.listed) != len(t.histories) {
		m.Fatalf("after %s: there are %d histories, %+v, not %d: %+v", after, len(t.listed), t.listed, len(t.histories), t.keys())
	}
	for _, row := range t.listed {
		k := m.named(t, row, after)
		h := t.histories[k]
		if row.Plugin != h.plugin || row.MemoryID != k.id || row.Kind != k.kind || row.Messages != int64(len(h.all())) || row.Bytes != bytesOf(h.all()) {
			m.Fatalf("after %s: %+v is %+v, not %+v", after, k, row, h)
		}
		m.messages(t, row.Key, h, after)
	}
	for _, who := range people[1:] {
		var got, want []string
		for k, h := range t.histories {
			if sees(who, h) {
				want = append(want, t.handles[k])
			}
		}
		for _, row := range m.list(t, who) {
			got = append(got, row.Key)
		}
		slices.Sort(got)
		slices.Sort(want)
		m.same(fmt.Sprintf("after %s: %v sees", after, who), got, want)
	}
	got, want := m.records(t), []string{}
	for _, e := range t.ended {
		want = append(want, e.String())
	}
	slices.Sort(got)
	slices.Sort(want)
	m.same("records after "+after, got, want)
}

// named returns the key that a listed history has. A key that is new to the
// machine is the only one without a handle.
func (m *machine) named(t *machineTenant, row client.Memory, after string) modelKey {
	var unknown []modelKey
	for k := range t.histories {
		switch t.handles[k] {
		case row.Key:
			return k
		case "":
			unknown = append(unknown, k)
		}
	}
	if len(unknown) != 1 {
		m.Fatalf("after %s: %+v is one of %+v", after, row, unknown)
	}
	m.learn(t, unknown[0], row.Key)
	return unknown[0]
}

// learn notes the handle of a key, which is nobody else's and for good.
func (m *machine) learn(t *machineTenant, k modelKey, handle string) {
	for other, known := range t.handles {
		if (other == k) != (known == handle) {
			m.Fatalf("%+v is %s, and %+v is %s", other, known, k, handle)
		}
	}
	t.handles[k] = handle
}

func (m *machine) list(t *machineTenant, who modelPerson) []client.Memory {
	page, err := m.as(t, who).Memories(m.Context(), client.MemoryFilter{}, client.ListOptions{Limit: 1000})
	m.want("list", err, abi.OK)
	return page.Data
}

func (m *machine) messages(t *machineTenant, key string, h *modelHistory, after string) {
	page, err := m.as(t, people[0]).Messages(m.Context(), key, client.ListOptions{Limit: 1000})
	m.want("read", err, abi.OK)
	var got, want []string
	for _, r := range page.Data {
		msg := carrel.Message{Role: carrel.Role(r.Role), Content: r.Content, ToolCalls: r.ToolCalls, ToolCallID: r.ToolCallID}
		got = append(got, fmt.Sprint(r.Turn, compact([]carrel.Message{msg})))
	}
	for _, turn := range append([]modelTurn{{0, (&modelHistory{system: h.system}).all()}}, h.turns...) {
		for _, msg := range turn.messages {
			want = append(want, fmt.Sprint(turn.n, compact([]carrel.Message{msg})))
		}
	}
	m.same("stored after "+after, got, want)
}

// String is a record as records of it compares.
func (e modelEnd) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %q %s %s %d %d", e.plugin, e.memoryID, e.scope, e.why, e.messages, e.bytes))
}

// ended holds what an answer says of ended histories against the model.
func (m *machine) ended(t *machineTenant, what string, got []client.Evicted, want []modelEnd) {
	if got == nil || len(got) != len(want) {
		m.Fatalf("%s: evicted is %+v, want %v", what, got, want)
	}
	for _, e := range got {
		shown := modelEnd{plugin: e.Plugin, memoryID: e.MemoryID, why: e.Reason, messages: e.Messages, bytes: e.Bytes}.String()
		i := slices.IndexFunc(want, func(w modelEnd) bool {
			w.scope, w.memoryID = "", w.key.id // an answer names what was erased, its record does not
			known := t.handles[w.key]
			return (known == "" || known == e.Key) && w.String() == shown
		})
		if i < 0 {
			m.Fatalf("%s: evicted has %+v, want %v", what, e, want)
		}
		m.learn(t, want[i].key, e.Key)
		want = slices.Delete(slices.Clone(want), i, i+1)
	}
}
