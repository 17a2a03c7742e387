package storetest

import (
	"context"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// What a view shows, and how turns go that are deleted one by one.
var viewCases = []testCase{
	{"a view ends before the message that exceeds its bytes", viewBytes},
	{"a page of messages ends before the one that exceeds its bytes, but has one", pageBytes},
	{"a view tells what the history holds beyond it", viewStored},
	{"a deleted turn is gone, and its numbers are not used again", turnDeleted},
	{"any turn of many is deleted, and just that", turnDeletedOfMany},
	{"the last turn's end leaves an empty history", turnDeletedLast},
	{"a turn that is not there is not found", turnNotFound},
	{"a turn may be stored on a history that lost one meanwhile", turnDeletedMeanwhile},
}

func viewBytes(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	system := "a system message, whose length does not matter"
	c := commitOf(r, k, 0)
	c.System, c.Turns = &system, newTurns(turnOf("12345", "1234567"), toolTurn(), turnOf("123", "1234"))
	noError(t, commit(ctx, s, c))
	tools := toolTurn()
	whole := func(n int64) int64 { // of the newest n messages of the second turn
		size := int64(7)
		for _, m := range tools[int64(len(tools))-n:] {
			size += m.Size()
		}
		return size
	}
	for _, c := range []struct {
		name     string
		messages int
		bytes    int64
		want     []string
	}{
		{"no bound", 100, 0, []string{"12345", "1234567", "what is it?", "", "1", "2", "3", "it is that", "123", "1234"}},
		{"a negative bound is none", 100, -1, []string{"12345", "1234567", "what is it?", "", "1", "2", "3", "it is that", "123", "1234"}},
		{"the newest exceeds it", 100, 3, nil},
		{"the newest fits, the next exceeds it", 100, 4, []string{"1234"}},
		{"two fit just so", 100, 7, []string{"123", "1234"}},
		{"ids of tool results count", 100, whole(2), []string{"3", "it is that", "123", "1234"}},
		{"one byte less", 100, whole(2) - 1, []string{"it is that", "123", "1234"}},
		{"tool calls count", 100, whole(5), []string{"", "1", "2", "3", "it is that", "123", "1234"}},
		{"tool calls count to the byte", 100, whole(5) - 1, []string{"1", "2", "3", "it is that", "123", "1234"}},
		{"fewer messages come first", 1, 100, []string{"1234"}},
		{"no messages", 0, 100, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := must(s.View(ctx, k, store.ViewLimit{Messages: c.messages, Bytes: c.bytes}))(t)
			var got []string
			for _, turn := range v.Recent {
				for _, m := range turn.Messages {
					got = append(got, m.Content)
				}
			}
			wantSame(t, "contents", got, c.want)
			if v.System != system || v.Stored != 10 || v.LastTurn != 3 {
				t.Errorf("the view has system message %q, %d messages, last turn %d", v.System, v.Stored, v.LastTurn)
			}
		})
	}
}

func pageBytes(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	system := "12345"
	c := commitOf(requestScope(acme, "r"), k, 0)
	c.System, c.Turns = &system, newTurns(turnOf("123", ""), toolTurn(), turnOf("1234", "1"))
	generation := must(s.Commit(ctx, c))(t).Generation
	calls := toolTurn()[1].Size()
	for _, c := range []struct {
		name     string
		after    int64
		messages int
		bytes    int64
		want     []string
		more     bool
	}{
		{"no bound", -1, 100, 0, []string{system, "123", "", "what is it?", "", "1", "2", "3", "it is that", "1234", "1"}, false},
		{"a negative bound is none", 0, 100, -1, []string{"123", "", "what is it?", "", "1", "2", "3", "it is that", "1234", "1"}, false},
		{"just all", 8, 100, 5, []string{"1234", "1"}, false},
		{"one byte less than all", 8, 100, 4, []string{"1234"}, true},
		{"the first exceeds it", 8, 100, 3, []string{"1234"}, true},
		{"the first exceeds it, and an empty one follows", 0, 100, 1, []string{"123"}, true},
		{"the only one exceeds it", 7, 1, 3, []string{"it is that"}, true},
		{"the last exceeds it", 9, 100, 1, []string{"1"}, false},
		{"an empty one fits into nothing", 0, 100, 3, []string{"123", ""}, true},
		{"the system message counts", -1, 100, 7, []string{system}, true},
		{"the system message exceeds it", -1, 100, 4, []string{system}, true},
		{"the system message and one more", -1, 100, 8, []string{system, "123", ""}, true},
		{"tool calls count", 2, 100, 11 + calls, []string{"what is it?", ""}, true},
		{"tool calls count to the byte", 2, 100, 10 + calls, []string{"what is it?"}, true},
		{"tool calls are read, though they exceed it", 3, 100, 1, []string{""}, true},
		{"fewer messages come first", 0, 1, 100, []string{"123"}, true},
		{"as many messages as there are", 8, 2, 100, []string{"1234", "1"}, false},
		{"no messages", -1, 0, 100, nil, true},
		{"no messages behind the last", 10, 0, 100, nil, false},
		{"nothing behind the last", 10, 100, 1, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			page := must(s.Messages(ctx, k, generation, c.after, store.MessageLimit{Messages: c.messages, Bytes: c.bytes}))(t)
			var got []string
			for i, m := range page.Messages {
				got = append(got, m.Content)
				if m.Turn > 0 && m.Seq != max(c.after, 0)+int64(i+1)-int64(len(page.Messages)-turned(page.Messages)) {
					t.Errorf("message %d of the page has seq %d", i, m.Seq)
				}
			}
			wantSame(t, "contents", got, c.want)
			if page.More != c.more {
				t.Errorf("there are more: %t", page.More)
			}
		})
	}
	large := must(s.Messages(ctx, k, generation, 3, store.MessageLimit{Messages: 1, Bytes: 1}))(t).Messages
	wantSame(t, "a message that exceeds the bytes", large, []store.StoredMessage{{Message: toolTurn()[1], Seq: 4, Turn: 2, At: storedNoon}})
	first := must(s.Messages(ctx, k, generation, 0, store.MessageLimit{Messages: 1, Bytes: 1}))(t).Messages
	wantSame(t, "a content that exceeds the bytes", first, []store.StoredMessage{{Message: turnOf("123")[0], Seq: 1, Turn: 1, At: storedNoon}})
}

// turned counts the messages that are in turns.
func turned(list []store.StoredMessage) (n int) {
	for _, m := range list {
		if m.Turn > 0 {
			n++
		}
	}
	return n
}

func viewStored(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	generation := fill(t, s, r, k, 5)
	want := store.View{
		Generation: generation, LastTurn: 5, Stored: 10,
		Recent: []carrel.Turn{{N: 5, Messages: turnOf("u5", "a5")}},
	}
	wantSame(t, "view", must(s.View(ctx, k, store.ViewLimit{Messages: 2}))(t), want)
	system := "S"
	c := commitOf(r, k, generation)
	c.System = &system
	noError(t, commit(ctx, s, c))
	want.System = "S"
	wantSame(t, "view with a system message", must(s.View(ctx, k, store.ViewLimit{Messages: 2}))(t), want)
	want.Recent = nil
	wantSame(t, "view of nothing", must(s.View(ctx, k, store.ViewLimit{}))(t), want)
}

func turnDeleted(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	system := "S"
	c := commitOf(r, k, 0)
	c.System, c.Turns = &system, newTurns(turnOf("u1", "a1"), toolTurn(), turnOf("u3", "a3"))
	generation := must(s.Commit(ctx, c))(t).Generation
	before := history(t, s, k)
	noError(t, s.DeleteTurn(ctx, k, generation, 2))
	wantContents(t, s, k, "S", "u1", "a1", "u3", "a3")
	wantCounted(t, s, k)
	want := before
	want.Messages, want.Bytes = 5, int64(len("Su1a1u3a3"))
	wantSame(t, "history", history(t, s, k), want)
	wantSame(t, "recent turns", must(s.View(ctx, k, store.ViewLimit{Messages: 10}))(t).Recent,
		[]carrel.Turn{{N: 1, Messages: turnOf("u1", "a1")}, {N: 3, Messages: turnOf("u3", "a3")}})

	noError(t, s.DeleteTurn(ctx, k, generation, 3))
	noError(t, commit(ctx, s, commitOf(r, k, generation, "u4")))
	list := must(s.Messages(ctx, k, generation, 0, store.MessageLimit{Messages: 10}))(t).Messages
	want4 := store.StoredMessage{Message: turnOf("u4")[0], Seq: 11, Turn: 4, At: storedNoon}
	wantSame(t, "the message after the deleted ones", list[len(list)-1], want4)
	wantContents(t, s, k, "S", "u1", "a1", "u4")
	wantCounted(t, s, k)
}

func turnDeletedOfMany(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	const turns = 41
	generation := fill(t, s, r, k, turns)
	there := make(map[int64]bool)
	for n := range int64(turns) {
		there[n+1] = true
	}
	for i := range int64(turns) { // in an order without order
		turn := i*17%turns + 1
		noError(t, s.DeleteTurn(ctx, k, generation, turn))
		delete(there, turn)
		wantCode(t, s.DeleteTurn(ctx, k, generation, turn), abi.NotFound)
		left := must(s.View(ctx, k, store.ViewLimit{Messages: 2 * turns}))(t).Recent
		if len(left) != len(there) {
			t.Fatalf("%d turns are left, want %d", len(left), len(there))
		}
		for _, l := range left {
			if !there[l.N] || len(l.Messages) != 2 {
				t.Fatalf("turn %d is left with %d messages", l.N, len(l.Messages))
			}
		}
	}
	wantContents(t, s, k)
	wantCounted(t, s, k)
}

func turnDeletedLast(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	generation := fill(t, s, r, k, 1)
	noError(t, s.DeleteTurn(ctx, k, generation, 1))
	wantContents(t, s, k)
	wantSame(t, "view", must(s.View(ctx, k, store.ViewLimit{Messages: 10}))(t), store.View{Generation: generation, LastTurn: 1})
	if evicted := closeScope(t, s, r.ID); len(evicted) != 1 || evicted[0].Messages != 0 || evicted[0].Bytes != 0 {
		t.Errorf("evicted %v", evicted)
	}
}

func turnNotFound(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	wantCode(t, s.DeleteTurn(ctx, k, 0, 1), abi.NotFound)
	wantCode(t, s.DeleteTurn(ctx, k, 1, 1), abi.NotFound)
	system := "S"
	c := commitOf(r, k, fill(t, s, r, k, 2))
	c.System = &system
	noError(t, commit(ctx, s, c))
	for _, turn := range []int64{-1, 0, 3, 100} {
		wantCode(t, s.DeleteTurn(ctx, k, c.Generation, turn), abi.NotFound)
	}
	wantCode(t, s.DeleteTurn(ctx, k, c.Generation+1, 1), abi.NotFound)
	wantCode(t, s.DeleteTurn(ctx, k, 0, 1), abi.NotFound)
	wantCode(t, s.DeleteTurn(ctx, keyOf(globex, "1"), c.Generation, 1), abi.NotFound)
	wantCode(t, s.DeleteTurn(ctx, keyOf(acme, "2"), c.Generation, 1), abi.NotFound)
	wantContents(t, s, k, "S", "u1", "a1", "u2", "a2")
	wantCounted(t, s, k)

	must(s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon}))(t)
	say(t, s, r, k, "anew", "yes")
	wantCode(t, s.DeleteTurn(ctx, k, c.Generation, 1), abi.NotFound)
	wantContents(t, s, k, "anew", "yes")
}

func turnDeletedMeanwhile(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	generation := fill(t, s, r, k, 2)
	v := must(s.View(ctx, k, store.ViewLimit{Messages: 10}))(t)
	noError(t, s.DeleteTurn(ctx, k, generation, 1))
	noError(t, commit(ctx, s, commitOf(r, k, v.Generation, "u3", "a3")))
	wantContents(t, s, k, "u2", "a2", "u3", "a3")
	wantCounted(t, s, k)
}
