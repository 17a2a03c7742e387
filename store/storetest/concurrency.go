package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

var concurrencyCases = []testCase{
	{"turns of many writers to one key are all there, once and whole", concurrentOneKey},
	{"turns to many keys are all there", concurrentManyKeys},
	{"of many first turns on one key one is stored", concurrentFirstTurn},
	{"turns race with deletions and none comes back from the dead", concurrentDeletes},
	{"of many seeded turns on one empty history one brings its seeds", concurrentSeeds},
	{"turns that trim, deleted turns and new ones leave exact counts", concurrentTrims},
	{"of many that end an expired history at once one does", concurrentExpiry},
	{"of many equal tenants one is created", concurrentCreate},
	{"of many first owners one is created", concurrentFirstOwner},
}

// together runs f(0) … f(n-1) at once and waits for all.
func together(n int, f func(i int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	all.Wait()
}

// persist commits a turn of three messages that bear its name, reading anew
// as often as the history's generation changed under it.
func persist(s store.Store, si store.ScopeInstance, k carrel.MemoryKey, name string) error {
	for {
		v, err := s.View(context.Background(), k, store.ViewLimit{Messages: 4})
		if err != nil {
			return err
		}
		err = commit(context.Background(), s, commitOf(si, k, v.Generation, name+"/0", name+"/1", name+"/2"))
		if carrel.CodeOf(err) != abi.ScopeClosed {
			return err
		}
	}
}

// wantWhole checks that a history consists of the named turns, each once and
// none interleaved with another.
func wantWhole(t *testing.T, s store.Store, k carrel.MemoryKey, names map[string]bool) {
	t.Helper()
	h := history(t, s, k)
	list := must(s.Messages(context.Background(), k, h.Generation, -1, store.MessageLimit{Messages: 1_000_000}))(t).Messages
	if len(list) != 3*len(names) || h.LastTurn != int64(len(names)) || h.Messages != int64(len(list)) {
		t.Fatalf("%d messages in %d turns, and %d are counted; want %d turns of 3", len(list), h.LastTurn, h.Messages, len(names))
	}
	for i, m := range list {
		name, n, _ := strings.Cut(m.Content, "/")
		first, _, _ := strings.Cut(list[i-i%3].Content, "/")
		if !names[name] || name != first || n != fmt.Sprint(i%3) || m.Seq != int64(i)+1 || m.Turn != int64(i/3)+1 {
			t.Fatalf("message %d is %q with seq %d in turn %d", i, m.Content, m.Seq, m.Turn)
		}
		if i%3 == 2 {
			delete(names, name)
		}
	}
}

func concurrentOneKey(t *testing.T, s store.Store) {
	const writers, turns = 32, 8
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	together(writers, func(i int) {
		for j := range turns {
			if err := persist(s, r, k, fmt.Sprintf("%d.%d", i, j)); err != nil {
				t.Error(err)
			}
		}
	})
	names := make(map[string]bool)
	for i := range writers {
		for j := range turns {
			names[fmt.Sprintf("%d.%d", i, j)] = true
		}
	}
	wantWhole(t, s, k, names)
}

func concurrentManyKeys(t *testing.T, s store.Store) {
	const writers, turns = 32, 8
	key := func(i int) carrel.MemoryKey { return keyOf(acme, carrel.MemoryID(fmt.Sprint(i))) }
	together(writers, func(i int) {
		r := requestScope(acme, carrel.ScopeID(fmt.Sprint(i)))
		for j := range turns {
			if err := persist(s, r, key(i), fmt.Sprint(j)); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range writers {
		names := make(map[string]bool)
		for j := range turns {
			names[fmt.Sprint(j)] = true
		}
		wantWhole(t, s, key(i), names)
	}
}

func concurrentFirstTurn(t *testing.T, s store.Store) {
	k := keyOf(acme, "1")
	var stored atomic.Int32
	together(32, func(i int) {
		err := commit(context.Background(), s, commitOf(requestScope(acme, carrel.ScopeID(fmt.Sprint(i))), k, 0, "u", "a"))
		switch carrel.CodeOf(err) {
		case abi.OK:
			stored.Add(1)
		case abi.ScopeClosed:
		default:
			t.Error(err)
		}
	})
	if n := stored.Load(); n != 1 {
		t.Errorf("%d first turns were stored", n)
	}
	wantContents(t, s, k, "u", "a")
}

func concurrentDeletes(t *testing.T, s store.Store) {
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	var evicted, stored atomic.Int64
	together(16, func(i int) {
		for j := range 8 {
			if i%4 == 0 {
				e, err := s.DeleteHistory(context.Background(), k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon})
				switch carrel.CodeOf(err) {
				case abi.OK:
					evicted.Add(e.Messages)
				case abi.NotFound:
				default:
					t.Error(err)
				}
			} else {
				if err := persist(s, r, k, fmt.Sprintf("%d.%d", i, j)); err != nil {
					t.Error(err)
				}
				stored.Add(3)
			}
		}
	})
	if left := int64(len(contents(t, s, k))); evicted.Load()+left != stored.Load() {
		t.Errorf("%d messages were stored, %d evicted, %d are left", stored.Load(), evicted.Load(), left)
	}
}

func concurrentSeeds(t *testing.T, s store.Store) {
	const writers = 16
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	generation := touch(t, s, r, k)
	together(writers, func(i int) {
		c := commitOf(r, k, generation, fmt.Sprint("u", i), "a")
		c.Seeds = newTurns(turnOf("s", "t"))
		if err := commit(context.Background(), s, c); err != nil {
			t.Error(err)
		}
	})
	all := contents(t, s, k)
	if len(all) != 2+2*writers || all[0] != "s" || slices.Contains(all[1:], "s") {
		t.Errorf("the history is %q", all)
	}
	wantCounted(t, s, k)
}

func concurrentTrims(t *testing.T, s store.Store) {
	const writers, turns = 8, 12
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	generation := touch(t, s, r, k)
	var trimmed, deleted atomic.Int64
	together(writers, func(i int) {
		for range turns {
			c := commitOf(r, k, generation, fmt.Sprint("u", i), "a", "and more")
			c.Most = 15
			done, err := s.Commit(context.Background(), c)
			if err != nil {
				t.Error(err)
			}
			trimmed.Add(done.Trimmed)
			switch err := s.DeleteTurn(context.Background(), k, generation, done.LastTurn-int64(i)); carrel.CodeOf(err) {
			case abi.OK:
				deleted.Add(3)
			case abi.NotFound:
			default:
				t.Error(err)
			}
		}
	})
	wantCounted(t, s, k)
	h := history(t, s, k)
	if h.LastTurn != writers*turns || h.Messages != 3*writers*turns-trimmed.Load()-deleted.Load() || h.Messages > 15 {
		t.Errorf("after %d turns of 3 messages, of which %d were trimmed and %d deleted, the history is %+v",
			writers*turns, trimmed.Load(), deleted.Load(), h)
	}
}

func concurrentExpiry(t *testing.T, s store.Store) {
	const callers = 12
	app := applicationOf(t, s)
	k := keyOf(acme, "1")
	say(t, s, app, k, "hello", "hi")
	was := history(t, s, k).Generation
	var ended atomic.Int64
	generations := make([]int64, callers)
	together(callers, func(i int) {
		switch i % 3 {
		case 0:
			evicted, err := s.ExpireHistories(context.Background(), noon, late, 10)
			if err != nil {
				t.Error(err)
			}
			ended.Add(int64(len(evicted)))
		default:
			again := touchOf(app, k)
			again.At, again.Cutoff = late, noon
			done, err := s.Touch(context.Background(), again)
			if err != nil {
				t.Error(err)
			}
			if generations[i] = done.Generation; done.Replaced != nil {
				ended.Add(1)
			}
		}
	})
	now := history(t, s, k).Generation
	if now == was || ended.Load() != 1 {
		t.Errorf("the generation is %d, it was %d, and its end was reported %d times", now, was, ended.Load())
	}
	for i, g := range generations {
		if i%3 != 0 && g != now {
			t.Errorf("a touch returned generation %d, want %d", g, now)
		}
	}
	wantContents(t, s, k)
	records := must(s.ListEvictions(context.Background(), store.EvictionFilter{Tenant: acme, Limit: 10}))(t)
	if len(records) != 1 {
		t.Errorf("%d histories ended", len(records))
	}
}

// oneOf checks that of 32 calls of f at once one succeeds and the others
// return ErrExists.
func oneOf(t *testing.T, f func(i int) error) {
	t.Helper()
	var created atomic.Int32
	together(32, func(i int) {
		if err := f(i); err == nil {
			created.Add(1)
		} else {
			wantIs(t, err, store.ErrExists)
		}
	})
	if n := created.Load(); n != 1 {
		t.Errorf("%d calls succeeded", n)
	}
}

func concurrentCreate(t *testing.T, s store.Store) {
	oneOf(t, func(int) error { return s.CreateTenant(context.Background(), store.Tenant{ID: acme}) })
}

func concurrentFirstOwner(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	oneOf(t, func(i int) error {
		return s.CreateFirstOwner(context.Background(), apiKey(acme, carrel.KeyID(fmt.Sprint(i)), carrel.RoleOwner))
	})
}
