package invoke_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
	"github.com/carrelhost/carrel/store"
)

// say is a user message that no other turn has.
func say(round int, s faultStep, attempt int) string {
	if s.same {
		attempt = 0
	}
	return fmt.Sprintf("U%d %s %d", round, s.name, attempt)
}

// turnOf is what one turn of a step came to.
type turnOf struct {
	text  string // of the user
	id    string // memory id; "" = its history has ended when the step has
	err   error
	doubt bool // nobody can tell from err what became of it
}

// judge notes what must be stored of a turn from now on.
func (r *trial) judge(t turnOf) {
	r.t.Helper()
	if _, before := r.held[t.text]; before && t.err != nil { // a repeated call that failed made no turn
		return
	}
	delete(r.gone, t.text)
	delete(r.doubted, t.text)
	delete(r.held, t.text)
	op, done := r.faulty.failed()
	switch {
	case t.err == nil && t.id != "":
		r.held[t.text] = t.id
	case t.doubt:
	case t.err != nil && op == "Commit" && done:
		if !saysUnknown(t.err) {
			r.failf("the turn %s is stored, but its error does not say that it may be: %v", t.text, t.err)
		}
	default:
		r.gone[t.text] = struct{}{}
	}
}

// saysUnknown reports whether an error leaves open what became of a turn. To a
// guest the host's own failures say nothing but that they are.
func saysUnknown(err error) bool {
	e, ok := errors.AsType[*carrel.Error](err)
	return ok && (strings.Contains(e.Msg, "may be stored or not") || e.Op == "guest" && e.Code == abi.Internal)
}

// verify judges everything that is stored.
func (r *trial) verify() {
	r.t.Helper()
	ctx := r.t.Context()
	list, err := r.below.ListHistories(ctx, store.HistoryFilter{Tenant: acme, Limit: 1000})
	if err != nil {
		r.failf("list: %v", err)
	}
	found := map[string]string{}
	for _, h := range list {
		page, err := r.below.Messages(ctx, h.Key, h.Generation, -1, store.MessageLimit{Messages: 1000})
		if err != nil {
			r.failf("read: %v", err)
		}
		r.wellFormed(h, page.Messages)
		for _, m := range page.Messages {
			if m.Role != carrel.RoleUser || m.Content[0] != 'U' {
				continue
			}
			if at, twice := found[m.Content]; twice {
				r.failf("%s is stored twice, under %s and %s", m.Content, at, h.Key.ID)
			}
			found[m.Content] = string(h.Key.ID)
		}
	}
	for text, id := range r.held {
		if id == "session" {
			id = r.session
		}
		if found[text] != id {
			r.failf("%s is acknowledged and not stored under %s: %v", text, id, found)
		}
	}
	for text := range r.gone {
		if at, is := found[text]; is {
			r.failf("%s is stored under %s, and should not be", text, at)
		}
	}
}

// wellFormed judges one history: what §4, §6 and §7 say of every one.
func (r *trial) wellFormed(h store.History, rows []store.StoredMessage) {
	r.t.Helper()
	size := int64(0)
	var turns []carrel.Turn
	for i, m := range rows {
		size += m.Size()
		if m.Role == carrel.RoleSystem {
			if i != 0 || m.Seq != 0 {
				r.failf("%s has a system message at %d", h.Key.ID, i)
			}
			continue
		}
		if n := len(turns); n == 0 || turns[n-1].N != m.Turn {
			turns = append(turns, carrel.Turn{N: m.Turn})
		}
		last := &turns[len(turns)-1]
		last.Messages = append(last.Messages, m.Message)
	}
	for _, turn := range turns {
		if err := memory.CheckTurn(turn.Messages); err != nil {
			r.failf("%s has the turn %d: %v", h.Key.ID, turn.N, err)
		}
	}
	if h.Messages != int64(len(rows)) || h.Bytes != size {
		r.failf("%s counts %d messages, %d bytes, and has %d, %d", h.Key.ID, h.Messages, h.Bytes, len(rows), size)
	}
	if h.Messages > faultMessages {
		r.failf("%s keeps %d messages", h.Key.ID, h.Messages)
	}
}

// clean wants nothing to be left of a round.
func (r *trial) clean() {
	r.t.Helper()
	<-time.After(10 * time.Minute) // sessions that nobody knows of have expired
	r.heal()
	c, err := r.below.Counts(r.t.Context())
	if err != nil {
		r.failf("count: %v", err)
	}
	for kind, n := range c.Scopes {
		if n != 0 {
			r.failf("%d scopes of the kind %s are open", n, kind)
		}
	}
	if c.Histories != 0 || c.Touches != 0 {
		r.failf("%d histories and %d touches are left", c.Histories, c.Touches)
	}
}

// errorOf is the error that a guest was told, or nil.
func errorOf(t *testing.T, l line) error {
	t.Helper()
	if l.errno == 0 {
		return nil
	}
	var said told
	if err := json.Unmarshal([]byte(l.body), &said); err != nil {
		t.Fatal(err)
	}
	code, _ := abi.ParseCode(said.Code)
	return carrel.Fail("guest", code, said.Message)
}
