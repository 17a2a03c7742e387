package sqlite_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

// A session may have touched, or reported, much more than one change deletes.
func TestALargeSessionIsErasedInSmallChanges(t *testing.T) {
	const touched = 3000 // more than two changes, or steps, take
	ada := store.Toucher{Key: "k", Subject: "ada"}
	for _, c := range []struct {
		name   string
		closed bool
	}{
		{"open", false},
		{"closed", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := t.Context()
			s := open(t, sqlite.Config{Path: newPath(t)})
			if err := createTenant(ctx, s, acme); err != nil {
				t.Fatal(err)
			}
			ses := fixtureSession("ses_large")
			ses.Owner = ada
			if err := s.CreateSession(ctx, ses, 10); err != nil {
				t.Fatal(err)
			}
			si := store.ScopeInstance{ID: "ses_large", Tenant: acme, Scope: carrel.ScopeSession}
			fill(t, s, si, touched)
			if c.closed {
				must(s.CloseScope(ctx, si.ID, carrel.ReasonScopeClosed, noon))(t)
				emptied(ctx, s)
				wantRows(t, s, map[string]int{"session_evictions": touched, "sessions": 1})
			}
			release, err := s.HoldEndings() // so that the rows show what changes delete
			if err != nil {
				t.Fatal(err)
			}
			evicted, changes := 0, 0
			before := must(s.Count(ctx, "session_evictions"))(t)
			for more := true; more; changes++ {
				done := must(s.EraseSubject(ctx, acme, ada.Subject, noon, 256))(t)
				evicted, more = evicted+len(done.Evicted), done.More
				now := must(s.Count(ctx, "session_evictions"))(t)
				if len(done.Evicted) > 256 || before-now > 1024 {
					t.Errorf("change %d ends %d histories and deletes %d rows", changes, len(done.Evicted), before-now)
				}
				before = now
			}
			if c.closed != (evicted == 0) || evicted > touched || !c.closed && evicted != touched {
				t.Errorf("%d histories were erased", evicted)
			}
			if n := must(s.Count(ctx, "sessions"))(t); n != 0 {
				t.Errorf("%d sessions are left", n)
			}
			if list := must(s.ListScopes(ctx, carrel.ScopeSession, "", 10))(t); len(list) != 0 {
				t.Errorf("open are %v", list)
			}
			if !c.closed {
				if n := must(s.Count(ctx, "touches"))(t); n < touched {
					t.Errorf("%d touches are left: the change that closed the session deleted them", n)
				}
			}
			release()
			emptied(ctx, s)
			wantRows(t, s, map[string]int{"touches": 0, "session_evictions": 0, "histories": 0, "closings": 0, "scopes": 0, "touchers": 0})
		})
	}
}

func TestHistoriesThatExpireTogetherAreDeletedInSmallChanges(t *testing.T) {
	ctx := t.Context()
	const each, tenants = 1500, 4 // two of them are more than one change deletes
	s := open(t, sqlite.Config{Path: newPath(t)})
	texts := bytesOf("a message", each)
	var apps []store.ScopeInstance
	for n := range tenants {
		v, module := fixtureVersion()
		v.Tenant = carrel.TenantID(fmt.Sprint("tenant-", n))
		if err := createTenant(ctx, s, v.Tenant); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.PutVersion(ctx, v, module, store.PluginLimits{Plugins: 1, Versions: 1}); err != nil {
			t.Fatal(err)
		}
		app := store.ScopeInstance{
			ID: carrel.ScopeID(fmt.Sprint("app-", n)), Tenant: v.Tenant, Scope: carrel.ScopeApplication, Plugin: v.Plugin, OpenedAt: noon,
		}
		must(s.Activate(ctx, v.Tenant, v.Plugin, v.Digest, app))(t)
		apps = append(apps, app)
	}
	var want []carrel.MemoryID
	for n := range tenants * 2 {
		c := inScope(commitOf(n, 0, texts...), apps[n%tenants])
		c.Touch.Key.Tenant = c.Touch.Scope.Tenant
		c.Touch.At, c.At = noon.Add(time.Duration(n)*time.Second), noon.Add(time.Duration(n)*time.Second)
		commit(t, s, c)
		want = append(want, c.Touch.Key.ID)
	}
	release, err := s.HoldEndings()
	if err != nil {
		t.Fatal(err)
	}
	evicted := must(s.ExpireHistories(ctx, noon.Add(time.Hour), noon.Add(time.Hour), 256))(t)
	if len(evicted) != len(want) {
		t.Fatalf("%d expired", len(evicted))
	}
	for i, e := range evicted {
		if e.Key.ID != want[i] || e.Messages != each || e.Reason != carrel.ReasonExpired {
			t.Errorf("eviction %d is %+v, want that of %s: the longest unused come first", i, e, want[i])
		}
	}
	if n := must(s.Count(ctx, "messages"))(t); n < each*len(want)-2048 {
		t.Errorf("%d messages are left: one change deleted the others", n)
	}
	if again := must(s.ExpireHistories(ctx, noon.Add(time.Hour), noon.Add(time.Hour), 256))(t); len(again) != 0 {
		t.Errorf("again, %v", again)
	}
	release()
	emptied(ctx, s)
	wantRows(t, s, map[string]int{"messages": 0, "histories": 0, "closings": 0, "evictions": len(want)})
}
