package storetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

var turnCases = []testCase{
	{"turns come back in order, grouped, newest at the end", turnsViewed},
	{"messages are paged with their places, the system message first", turnsPaged},
	{"a system message is replaced, kept or removed", turnSystem},
	{"a turn is built on the generation that it read, or not stored", turnStale},
	{"a first turn needs that there is no history", turnFirst},
	{"a first turn does all that a touch does", turnTouches},
	{"every byte of a message survives", turnBytes},
	{"a message of a megabyte is stored", turnLarge},
	{"tool calls survive as they were written", turnTools},
	{"what a caller changes later is not the store's", turnCopies},
}

func turnsViewed(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	say(t, s, r, k, "u1", "a1")
	say(t, s, r, k, "u2", "a2", "u2b", "a2b")
	say(t, s, r, k, "u3", "a3")
	generation := history(t, s, k).Generation
	t1 := carrel.Turn{N: 1, Messages: turnOf("u1", "a1")}
	t2 := carrel.Turn{N: 2, Messages: turnOf("u2", "a2", "u2b", "a2b")}
	t3 := carrel.Turn{N: 3, Messages: turnOf("u3", "a3")}
	cut := carrel.Turn{N: 2, Messages: t2.Messages[3:]}
	for _, c := range []struct {
		name  string
		limit int
		want  []carrel.Turn
	}{
		{"more than there are", 100, []carrel.Turn{t1, t2, t3}},
		{"exactly as many", 8, []carrel.Turn{t1, t2, t3}},
		{"whole turns", 6, []carrel.Turn{t2, t3}},
		{"a turn without its beginning", 3, []carrel.Turn{cut, t3}},
		{"one", 1, []carrel.Turn{{N: 3, Messages: t3.Messages[1:]}}},
		{"none", 0, nil},
		{"less than none", -1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantSame(t, "view", must(s.View(ctx, k, store.ViewLimit{Messages: c.limit}))(t), store.View{
				Generation: generation, Recent: c.want, LastTurn: 3, Stored: 8,
			})
		})
	}
}

func turnsPaged(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	say(t, s, r, k, "u1", "a1")
	generation := history(t, s, k).Generation
	system := "S"
	second := commitOf(r, k, generation, "u2", "a2", "u3")
	second.System, second.At = &system, noon.Add(time.Minute)
	noError(t, commit(ctx, s, second))

	at := func(seq, turn int64, m carrel.Message) store.StoredMessage {
		when := storedNoon
		if turn != 1 {
			when = storedNoon.Add(time.Minute)
		}
		return store.StoredMessage{Message: m, Seq: seq, Turn: turn, At: when}
	}
	want := []store.StoredMessage{at(0, 0, carrel.Message{Role: carrel.RoleSystem, Content: "S"})}
	for i, m := range append(turnOf("u1", "a1"), turnOf("u2", "a2", "u3")...) {
		want = append(want, at(int64(i)+1, min(int64(i)/2+1, 2), m))
	}
	got := walk(t, 2, func(last *store.StoredMessage) ([]store.StoredMessage, error) {
		after := orElse(last, -1, func(m store.StoredMessage) int64 { return m.Seq })
		page, err := s.Messages(ctx, k, generation, after, store.MessageLimit{Messages: 2})
		return page.Messages, err
	})
	wantSame(t, "messages", got, want)
	wantSame(t, "messages after the system message", must(s.Messages(ctx, k, generation, 0, store.MessageLimit{Messages: 100}))(t).Messages, want[1:])
	for _, limit := range []int{0, -1} {
		if none := must(s.Messages(ctx, k, generation, -1, store.MessageLimit{Messages: limit}))(t).Messages; len(none) != 0 {
			t.Errorf("at most %d messages are %v", limit, none)
		}
	}
	wantSame(t, "only the system message", must(s.Messages(ctx, k, generation, -1, store.MessageLimit{Messages: 1}))(t).Messages, want[:1])
	_, err := s.Messages(ctx, k, generation+1, -1, store.MessageLimit{Messages: 10})
	wantCode(t, err, abi.NotFound)
}

func turnSystem(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	say(t, s, r, k, "u1", "a1")
	generation := history(t, s, k).Generation
	commit := func(system *string, texts ...string) {
		t.Helper()
		c := commitOf(r, k, generation, texts...)
		c.System = system
		noError(t, commit(ctx, s, c))
	}
	one, two, none := "system one", "2", ""
	commit(&one, "u2")
	wantContents(t, s, k, one, "u1", "a1", "u2")
	commit(nil, "u3")
	wantContents(t, s, k, one, "u1", "a1", "u2", "u3")
	commit(&two, "u4")
	wantContents(t, s, k, two, "u1", "a1", "u2", "u3", "u4")
	if h := history(t, s, k); h.Messages != 6 || h.Bytes != int64(len("2u1a1u2u3u4")) {
		t.Errorf("history counts %d messages, %d bytes", h.Messages, h.Bytes)
	}
	if v := must(s.View(ctx, k, store.ViewLimit{Messages: 1}))(t); v.System != two || len(v.Recent) != 1 {
		t.Errorf("view is %+v", v)
	}
	commit(&none, "u5")
	wantContents(t, s, k, "u1", "a1", "u2", "u3", "u4", "u5")
	if h := history(t, s, k); h.Messages != 6 || h.LastTurn != 5 || h.Bytes != int64(len("u1a1u2u3u4u5")) {
		t.Errorf("history counts %d messages, %d turns, %d bytes", h.Messages, h.LastTurn, h.Bytes)
	}
}

func turnStale(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	say(t, s, r, k, "u1", "a1")
	first := history(t, s, k).Generation
	system := "never"
	stale := func(generation int64) {
		t.Helper()
		c := commitOf(r, k, generation, "late", "turn")
		c.System = &system
		c.At = noon.Add(time.Hour)
		wantCode(t, commit(ctx, s, c), abi.ScopeClosed)
	}
	stale(first + 1)
	stale(-1)
	wantContents(t, s, k, "u1", "a1")

	// Deleted while a turn that read the history is under way.
	must(s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon}))(t)
	stale(first)
	wantGone(t, s, k)

	say(t, s, r, k, "anew", "yes")
	before := history(t, s, k)
	stale(first)
	wantContents(t, s, k, "anew", "yes")
	wantSame(t, "history", history(t, s, k), before)
}

func turnFirst(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	touch(t, s, r, k)
	before := history(t, s, k)
	c := commitOf(requestScope(acme, "late"), k, 0, "u", "a")
	c.Touch.Plugin, c.Touch.At, c.Touch.By = "other", noon.Add(time.Hour), store.Toucher{Key: "k9"}
	wantCode(t, commit(ctx, s, c), abi.ScopeClosed)
	wantSame(t, "history", history(t, s, k), before)
	// Not even the touch happened.
	_, err := s.History(ctx, acme, handleOf(k), &c.Touch.By, store.Cutoff{})
	wantCode(t, err, abi.NotFound)
	if evicted := closeScope(t, s, "late"); len(evicted) != 0 {
		t.Errorf("evicted %v", evicted)
	}
	wantContents(t, s, k)
}

func turnTouches(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	c := commitOf(r, k, 0, "u", "a")
	c.At = noon.Add(time.Second)
	noError(t, commit(ctx, s, c))
	h := must(s.History(ctx, acme, handleOf(k), &c.Touch.By, store.Cutoff{}))(t)
	if h.Generation < 1 || h.Plugin != chat || !h.CreatedAt.Equal(storedNoon) || !h.LastUsedAt.Equal(storedNoon.Add(time.Second)) {
		t.Errorf("history is %+v", h)
	}
	opened := r
	opened.OpenedAt = storedNoon
	wantSame(t, "open scopes", must(s.ListScopes(ctx, carrel.ScopeRequest, "", 10))(t), []store.ScopeInstance{opened})
	if evicted := closeScope(t, s, "r"); len(evicted) != 1 {
		t.Errorf("evicted %v", evicted)
	}
	wantGone(t, s, k)
	wantCode(t, commit(ctx, s, commitOf(r, k, h.Generation, "late", "turn")), abi.ScopeClosed)
	wantGone(t, s, k)

	wantCode(t, commit(ctx, s, commitOf(applicationScope(acme, chat, "no such scope"), k, 0, "u", "a")), abi.ScopeClosed)
	wantGone(t, s, k)
}

func turnBytes(t *testing.T, s store.Store) {
	k := keyOf(acme, "\u2603 %_'\"\\")
	texts := []string{
		"nul \x00 in the middle and at the end\x00", "\x00", "", "\u65e5\u672c\u8a9e \U0001F600 e\u0301",
		"\ufeffbyte order mark", "'; DROP TABLE messages; --", "one\r\ntwo\u2028three", "not \xff UTF-8",
	}
	say(t, s, requestScope(acme, "r"), k, texts...)
	wantContents(t, s, k, texts...)
	c := commitOf(requestScope(acme, "r"), k, history(t, s, k).Generation, "u")
	system := "sys\x00tem"
	c.System = &system
	noError(t, commit(context.Background(), s, c))
	if v := must(s.View(context.Background(), k, store.ViewLimit{Messages: 1}))(t); v.System != system {
		t.Errorf("system message is %q", v.System)
	}
}

func turnLarge(t *testing.T, s store.Store) {
	k := keyOf(acme, "1")
	large := strings.Repeat("0123456789abcde\x00", 1<<16)
	say(t, s, requestScope(acme, "r"), k, large, "answer")
	say(t, s, requestScope(acme, "r"), k, "short", large)
	got := contents(t, s, k)
	if len(got) != 4 || got[0] != large || got[1] != "answer" || got[2] != "short" || got[3] != large {
		t.Errorf("the large messages came back changed")
	}
	if h := history(t, s, k); h.Bytes != int64(2*len(large)+len("answershort")) {
		t.Errorf("history counts %d bytes", h.Bytes)
	}
}

func toolTurn() []carrel.Message {
	return []carrel.Message{
		{Role: carrel.RoleUser, Content: "what is it?"},
		{Role: carrel.RoleAssistant, ToolCalls: []carrel.ToolCall{
			{ID: "c1", Name: "look", Args: []byte(`{ "at" : "<a & b>", "n": 1.0e2, "n": 2 }`)},
			{ID: "c2", Name: "no_arguments"},
			{ID: "c3", Name: "broken", Args: []byte("{\"a\": \x00")},
		}},
		{Role: carrel.RoleTool, Content: "1", ToolCallID: "c1"},
		{Role: carrel.RoleTool, Content: "2", ToolCallID: "c2"},
		{Role: carrel.RoleTool, Content: "3", ToolCallID: "c3"},
		{Role: carrel.RoleAssistant, Content: "it is that"},
	}
}

func turnTools(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	c := commitOf(requestScope(acme, "r"), k, 0)
	c.Turns = []store.NewTurn{{Messages: toolTurn()}}
	noError(t, commit(ctx, s, c))
	v := must(s.View(ctx, k, store.ViewLimit{Messages: 10}))(t)
	wantSame(t, "view", v.Recent, []carrel.Turn{{N: 1, Messages: toolTurn()}})
	var got []carrel.Message
	for _, m := range must(s.Messages(ctx, k, v.Generation, -1, store.MessageLimit{Messages: 10}))(t).Messages {
		got = append(got, m.Message)
	}
	wantSame(t, "messages", got, toolTurn())
}

func turnCopies(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	c := commitOf(requestScope(acme, "r"), k, 0)
	c.Turns = []store.NewTurn{{Messages: toolTurn()}}
	system := "S"
	c.System = &system
	noError(t, commit(ctx, s, c))
	system = "changed"
	spoil := func(ms []carrel.Message) {
		ms[1].ToolCalls[0].Args[0] = '!'
		ms[1].ToolCalls[1].Name = "changed"
		ms[0].Content = "changed"
	}
	spoil(c.Turns[0].Messages)
	for range 2 {
		v := must(s.View(ctx, k, store.ViewLimit{Messages: 10}))(t)
		wantSame(t, "view", v.Recent, []carrel.Turn{{N: 1, Messages: toolTurn()}})
		if v.System != "S" {
			t.Errorf("system message is %q", v.System)
		}
		list := must(s.Messages(ctx, k, v.Generation, 0, store.MessageLimit{Messages: 10}))(t).Messages
		listed := make([]carrel.Message, len(list))
		for i, m := range list {
			listed[i] = m.Message
		}
		wantSame(t, "messages", listed, toolTurn())
		spoil(v.Recent[0].Messages)
		spoil(listed)
	}
}
