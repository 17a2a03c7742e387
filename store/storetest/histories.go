package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

var historyCases = []testCase{
	{"a key that was never touched has no history", historyMissing},
	{"a touched key has an empty history", historyTouched},
	{"a history counts turns, messages and bytes and tells who used it last", historyCounts},
	{"keys that differ in any part are apart", historyKeys},
	{"two tenants with equal ids are apart in every method", historyTenants},
	{"a caller sees what its key and subject touched", historyTouchers},
	{"histories are listed by generation, page by page", historyPages},
	{"a filter's parts all count, and a prefix counts byte for byte", historyFilter},
	{"histories of one namespace, or of several, are listed by generation, page by page", historyNamespaces},
	{"generations rise and are never used again", historyGenerations},
	{"a handle names one key", historyHandle},
}

func historyMissing(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	wantSame(t, "view", must(s.View(ctx, k, store.ViewLimit{Messages: 10}))(t), store.View{})
	_, err := s.History(ctx, acme, handleOf(k), nil, store.Cutoff{})
	wantCode(t, err, abi.NotFound)
	for _, generation := range []int64{0, 1} {
		_, err = s.Messages(ctx, k, generation, -1, store.MessageLimit{Messages: 10})
		wantCode(t, err, abi.NotFound)
	}
	_, err = s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon})
	wantCode(t, err, abi.NotFound)
	if list := must(s.ListHistories(ctx, store.HistoryFilter{Tenant: acme, Limit: 10}))(t); len(list) != 0 {
		t.Errorf("listed %v", list)
	}
}

func historyTouched(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	generation := touch(t, s, requestScope(acme, "r"), k)
	if generation < 1 {
		t.Errorf("generation is %d", generation)
	}
	want := store.History{
		Key: k, Handle: handleOf(k), Plugin: chat, Generation: generation,
		CreatedAt: storedNoon, LastUsedAt: storedNoon,
	}
	wantSame(t, "history", history(t, s, k), want)
	wantSame(t, "list", must(s.ListHistories(ctx, store.HistoryFilter{Tenant: acme, Limit: 10}))(t), []store.History{want})
	wantSame(t, "view", must(s.View(ctx, k, store.ViewLimit{Messages: 10}))(t), store.View{Generation: generation})
	wantContents(t, s, k)
	if again := touch(t, s, requestScope(acme, "other"), k); again != generation {
		t.Errorf("a second touch returned generation %d, want %d", again, generation)
	}
}

func historyCounts(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	generation := touch(t, s, r, k)

	later := touchOf(r, k)
	later.Plugin, later.At = "other", noon.Add(time.Hour)
	must(s.Touch(ctx, later))(t)
	c := commitOf(r, k, generation, "hello", "h\u00e9")
	system := "be brief"
	c.System, c.At = &system, noon.Add(2*time.Hour)
	c.Turns[0].Messages[1].ToolCalls = []carrel.ToolCall{{ID: "c1", Name: "add", Args: []byte(`[1]`)}}
	noError(t, commit(ctx, s, c))
	early := touchOf(r, k)
	early.Plugin, early.At = "other", noon.Add(-time.Hour)
	must(s.Touch(ctx, early))(t)

	want := store.History{
		Key: k, Handle: handleOf(k), Plugin: "other", Generation: generation,
		LastTurn: 1, Messages: 3, Bytes: int64(len("be brief") + len("hello") + len("h\u00e9") + len("c1add[1]")),
		CreatedAt: storedNoon, LastUsedAt: storedNoon.Add(2 * time.Hour),
	}
	wantSame(t, "history", history(t, s, k), want)
}

func historyKeys(t *testing.T, s store.Store) {
	ctx := context.Background()
	r := requestScope(acme, "r")
	keys := []carrel.MemoryKey{
		{Tenant: acme, Namespace: "a", Kind: carrel.KindExplicit, ID: "bc"},
		{Tenant: acme, Namespace: "ab", Kind: carrel.KindExplicit, ID: "c"},
		{Tenant: acme, Namespace: "a", Kind: carrel.KindExplicit, ID: "BC"},
		{Tenant: acme, Namespace: "a", Kind: carrel.KindExplicit, ID: "bc "},
		{Tenant: acme, Namespace: "a", Kind: carrel.KindSession, ID: "bc"},
		{Tenant: acme, Namespace: "a", Kind: carrel.KindRequest, ID: "bc"},
		{Tenant: acme, Namespace: "a", Kind: carrel.KindPlugin, ID: "bc"},
		{Tenant: acme, Namespace: "a", Kind: carrel.KindPlugin, Owner: "b", ID: "c"},
		{Tenant: acme, Namespace: "a", Kind: carrel.KindPlugin, Owner: "B", ID: "c"},
		{Tenant: acme, Namespace: "a", Kind: carrel.KindPlugin, ID: "c"},
		{Tenant: acme, Namespace: "a", Kind: carrel.KindExplicit, ID: "\u00e9"},  // one code point
		{Tenant: acme, Namespace: "a", Kind: carrel.KindExplicit, ID: "e\u0301"}, // looks alike, two code points
		{Tenant: acme, Namespace: "a", Kind: carrel.KindExplicit, ID: "1"},
		{Tenant: acme, Namespace: "a", Kind: carrel.KindExplicit, ID: "1.0"},
		{Tenant: acme, Namespace: "a", Kind: carrel.KindExplicit, ID: "01"},
	}
	for _, k := range keys {
		say(t, s, r, k, handleOf(k).String(), "answer")
	}
	for _, k := range keys {
		wantContents(t, s, k, handleOf(k).String(), "answer")
		wantSame(t, "key", history(t, s, k).Key, k)
	}
	must(s.DeleteHistory(ctx, keys[0], store.Deletion{Reason: carrel.ReasonDeleted, At: noon}))(t)
	wantGone(t, s, keys[0])
	for _, k := range keys[1:] {
		wantContents(t, s, k, handleOf(k).String(), "answer")
	}
}

func historyTenants(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme, globex)
	mine, theirs := keyOf(acme, "1"), keyOf(globex, "1")
	app := install(t, s, acme, chat, "app-1")
	theirApp := install(t, s, globex, chat, "app-2")
	say(t, s, app, mine, "hello", "hi")
	generation := history(t, s, mine).Generation

	wantSame(t, "their view", must(s.View(ctx, theirs, store.ViewLimit{Messages: 10}))(t), store.View{})
	_, err := s.History(ctx, globex, handleOf(mine), nil, store.Cutoff{})
	wantCode(t, err, abi.NotFound)
	_, err = s.Messages(ctx, theirs, generation, -1, store.MessageLimit{Messages: 10})
	wantCode(t, err, abi.NotFound)
	_, err = s.DeleteHistory(ctx, theirs, store.Deletion{Reason: carrel.ReasonDeleted, At: noon})
	wantCode(t, err, abi.NotFound)
	wantCode(t, commit(ctx, s, commitOf(theirApp, theirs, generation, "forged", "turn")), abi.ScopeClosed)
	if list := must(s.ListHistories(ctx, store.HistoryFilter{Tenant: globex, Limit: 10}))(t); len(list) != 0 {
		t.Errorf("listed %v", list)
	}
	// Another tenant's scope is closed for this tenant's keys, by whichever
	// claim, and another tenant's key is out of this tenant's reach.
	stolen := app
	stolen.Tenant = globex
	_, err = s.Touch(ctx, touchOf(stolen, theirs))
	wantCode(t, err, abi.ScopeClosed)
	if _, err = s.Touch(ctx, touchOf(theirApp, mine)); err == nil {
		t.Error("a scope of globex touched a key of acme")
	}

	say(t, s, theirApp, theirs, "good day", "to you")
	wantContents(t, s, mine, "hello", "hi")
	wantContents(t, s, theirs, "good day", "to you")
	closeScope(t, s, theirApp.ID)
	wantGone(t, s, theirs)
	wantContents(t, s, mine, "hello", "hi")
}

func historyTouchers(t *testing.T, s store.Store) {
	ctx := context.Background()
	r := requestScope(acme, "r")
	k, other := keyOf(acme, "1"), keyOf(acme, "2")
	by := func(k carrel.MemoryKey, who store.Toucher) {
		touching := touchOf(r, k)
		touching.By = who
		must(s.Touch(ctx, touching))(t)
	}
	ada, adaElsewhere, bob := store.Toucher{Key: "k1", Subject: "ada"}, store.Toucher{Key: "k2", Subject: "ada"}, store.Toucher{Key: "k1", Subject: "bob"}
	plain := store.Toucher{Key: "k1"}
	by(k, ada)
	by(k, ada)
	by(k, adaElsewhere)
	by(other, bob)
	for who, want := range map[store.Toucher][]carrel.MemoryKey{
		ada: {k}, adaElsewhere: {k}, bob: {other}, plain: nil,
	} {
		var got []carrel.MemoryKey
		for _, h := range must(s.ListHistories(ctx, store.HistoryFilter{Tenant: acme, TouchedBy: &who, Limit: 10}))(t) {
			got = append(got, h.Key)
		}
		wantSame(t, "histories of "+string(who.Key+" "+carrel.KeyID(who.Subject)), got, want)
		for _, tried := range []carrel.MemoryKey{k, other} {
			h, err := s.History(ctx, acme, handleOf(tried), &who, store.Cutoff{})
			if len(want) == 1 && want[0] == tried {
				noError(t, err)
				wantSame(t, "key", h.Key, tried)
			} else {
				wantCode(t, err, abi.NotFound)
			}
		}
	}
	// Who touched a history that was deleted did not touch the next one.
	must(s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon}))(t)
	by(k, bob)
	_, err := s.History(ctx, acme, handleOf(k), &ada, store.Cutoff{})
	wantCode(t, err, abi.NotFound)
}

func historyPages(t *testing.T, s store.Store) {
	ctx := context.Background()
	r := requestScope(acme, "r")
	var want []carrel.MemoryKey
	for _, id := range []carrel.MemoryID{"c", "a", "e", "b", "d"} {
		touch(t, s, requestScope(globex, "other"), keyOf(globex, id))
		touch(t, s, r, keyOf(acme, id))
		want = append(want, keyOf(acme, id))
	}
	list := walk(t, 2, func(last *store.History) ([]store.History, error) {
		after := orElse(last, 0, func(h store.History) int64 { return h.Generation })
		return s.ListHistories(ctx, store.HistoryFilter{Tenant: acme, After: after, Limit: 2})
	})
	var got []carrel.MemoryKey
	for _, h := range list {
		got = append(got, h.Key)
	}
	wantSame(t, "keys", got, want)
	if none := must(s.ListHistories(ctx, store.HistoryFilter{Tenant: acme}))(t); len(none) != 0 {
		t.Errorf("a list of at most 0 has %d", len(none))
	}
}

func historyFilter(t *testing.T, s store.Store) {
	ctx := context.Background()
	r := requestScope(acme, "r")
	ada := store.Toucher{Key: "k1", Subject: "ada"}
	for _, h := range []struct {
		id carrel.MemoryID
		p  carrel.PluginName
		by store.Toucher
	}{
		{"%a", chat, ada},
		{"%b", chat, store.Toucher{Key: "k2"}},
		{"xa", chat, ada},
		{"XA", chat, ada},
		{"%c", "other", ada},
		{"\u00e9t\u00e9", chat, ada},
	} {
		touching := touchOf(r, keyOf(acme, h.id))
		touching.Plugin, touching.By = h.p, h.by
		must(s.Touch(ctx, touching))(t)
	}
	for _, c := range []struct {
		name string
		f    store.HistoryFilter
		want []carrel.MemoryID
	}{
		{"a percent sign is no wildcard", store.HistoryFilter{Prefix: "%"}, []carrel.MemoryID{"%a", "%b", "%c"}},
		{"capitals count", store.HistoryFilter{Prefix: "x"}, []carrel.MemoryID{"xa"}},
		{"a prefix may end inside a letter", store.HistoryFilter{Prefix: "\xc3"}, []carrel.MemoryID{"\u00e9t\u00e9"}},
		{"a whole id is its own prefix", store.HistoryFilter{Prefix: "XA"}, []carrel.MemoryID{"XA"}},
		{"a longer prefix finds nothing", store.HistoryFilter{Prefix: "XAB"}, nil},
		{"plugin", store.HistoryFilter{Plugin: "other"}, []carrel.MemoryID{"%c"}},
		{"plugin and prefix", store.HistoryFilter{Plugin: chat, Prefix: "%"}, []carrel.MemoryID{"%a", "%b"}},
		{"all three", store.HistoryFilter{Plugin: chat, Prefix: "%", TouchedBy: &ada}, []carrel.MemoryID{"%a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.f.Tenant, c.f.Limit = acme, 10
			var got []carrel.MemoryID
			for _, h := range must(s.ListHistories(ctx, c.f))(t) {
				got = append(got, h.Key.ID)
			}
			wantSame(t, "ids", got, c.want)
		})
	}
}

func historyNamespaces(t *testing.T, s store.Store) {
	ctx := context.Background()
	ada := store.Toucher{Key: "k1", Subject: "ada"}
	for i, n := range []carrel.Namespace{"a", "shared:x", "b", "a", "b", "shared:x", "a", "A"} {
		k := keyOf(acme, carrel.MemoryID(fmt.Sprint(i)))
		k.Namespace = n
		touching := touchOf(requestScope(acme, "r"), k)
		if i%2 == 0 {
			touching.By = ada
		}
		must(s.Touch(ctx, touching))(t)
		k.Tenant = globex
		touch(t, s, requestScope(globex, "other"), k)
	}
	for _, c := range []struct {
		name string
		f    store.HistoryFilter
		want []carrel.MemoryID
	}{
		{"all", store.HistoryFilter{}, []carrel.MemoryID{"0", "1", "2", "3", "4", "5", "6", "7"}},
		{"one", store.HistoryFilter{Namespaces: []carrel.Namespace{"a"}}, []carrel.MemoryID{"0", "3", "6"}},
		{"two", store.HistoryFilter{Namespaces: []carrel.Namespace{"shared:x", "a"}}, []carrel.MemoryID{"0", "1", "3", "5", "6"}},
		{"one twice", store.HistoryFilter{Namespaces: []carrel.Namespace{"b", "b"}}, []carrel.MemoryID{"2", "4"}},
		{"one that is not there", store.HistoryFilter{Namespaces: []carrel.Namespace{"c", "b"}}, []carrel.MemoryID{"2", "4"}},
		{"none that is there", store.HistoryFilter{Namespaces: []carrel.Namespace{"c"}}, nil},
		{
			"two that somebody touched",
			store.HistoryFilter{Namespaces: []carrel.Namespace{"a", "b"}, TouchedBy: &ada},
			[]carrel.MemoryID{"0", "2", "4", "6"},
		},
		{"two and a prefix", store.HistoryFilter{Namespaces: []carrel.Namespace{"a", "b"}, Prefix: "4"}, []carrel.MemoryID{"4"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []carrel.MemoryID
			for _, h := range walk(t, 2, func(last *store.History) ([]store.History, error) {
				f := c.f
				f.Tenant, f.Limit = acme, 2
				f.After = orElse(last, 0, func(h store.History) int64 { return h.Generation })
				return s.ListHistories(ctx, f)
			}) {
				got = append(got, h.Key.ID)
			}
			wantSame(t, "ids", got, c.want)
			c.f.Tenant, c.f.Limit = acme, 0
			if none := must(s.ListHistories(ctx, c.f))(t); len(none) != 0 {
				t.Errorf("a list of at most 0 has %d", len(none))
			}
		})
	}
}

func historyGenerations(t *testing.T, s store.Store) {
	ctx := context.Background()
	r := requestScope(acme, "r")
	last := int64(0)
	for range 3 {
		for _, k := range []carrel.MemoryKey{keyOf(acme, "1"), keyOf(globex, "1"), keyOf(acme, "2")} {
			r.Tenant, r.ID = k.Tenant, carrel.ScopeID("r-"+k.Tenant)
			g := touch(t, s, r, k)
			if g <= last {
				t.Errorf("generation %d came after %d", g, last)
			}
			last = g
			must(s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon}))(t)
		}
	}
}

func historyHandle(t *testing.T, s store.Store) {
	ctx := context.Background()
	r := requestScope(acme, "r")
	touch(t, s, r, keyOf(acme, "1"))
	forged := touchOf(r, keyOf(acme, "2"))
	forged.Handle = handleOf(keyOf(acme, "1"))
	if _, err := s.Touch(ctx, forged); err == nil {
		t.Error("a second key took the handle")
	}
	wantGone(t, s, keyOf(acme, "2"))
	renamed := touchOf(r, keyOf(acme, "1"))
	renamed.Handle = carrel.Handle{1}
	if _, err := s.Touch(ctx, renamed); err == nil {
		t.Error("a key took a second handle")
	}
	wantSame(t, "handle", history(t, s, keyOf(acme, "1")).Handle, handleOf(keyOf(acme, "1")))
}
