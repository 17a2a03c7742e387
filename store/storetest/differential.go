package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// Differential does the same random things to two empty stores and compares
// everything that they answer, and everything that can be read of them after
// each step, records of evictions now and then. open is called once for each
// of rapid's runs that is not skipped; Differential closes the stores.
func Differential(t *testing.T, open func(t *testing.T) (a, b store.Store)) {
	rapid.Check(t, func(rt *rapid.T) {
		if rapid.IntRange(0, 9).Draw(rt, "skipped") > 0 {
			return // fewer runs, for they are long, and a disk is slow
		}
		a, b := open(t)
		defer func() { noError(t, errors.Join(a.Close(), b.Close())) }()
		p := &pair{rt: rt, a: a, b: b, apps: map[carrel.TenantID]store.ScopeInstance{}}
		p.begin()
		rt.Repeat(map[string]func(*rapid.T){
			"":                  p.compare,
			"touch":             p.touch,
			"commit":            p.commit,
			"commit once more":  p.commit,
			"close a scope":     p.closeScope,
			"open applications": p.openApplications,
			"delete a turn":     p.deleteTurn,
			"delete a history":  p.deleteHistory,
			"expire":            p.expire,
			"erase":             p.erase,
			"forget":            p.forget,
			"claim":             p.claim,
			"answer":            p.answer,
			"release a claim":   p.releaseClaim,
			"release claims":    p.releaseClaims,
			"open a session":    p.openSession,
			"use a session":     p.useSession,
			"scrub":             p.scrub,
		})
	})
}

// What the steps draw from is little, so that they meet.
var (
	pairTenants  = []carrel.TenantID{acme, globex}
	pairSubjects = []carrel.Subject{"", "ada", "bob"}
	pairNodes    = []string{node, "run-2"}
	pairSessions = []carrel.SessionID{"ses_1", "ses_2", "ses_3"}
	pairReasons  = []carrel.EvictionReason{
		carrel.ReasonScopeClosed, carrel.ReasonExpired, carrel.ReasonDeleted, carrel.ReasonErased, carrel.ReasonPluginRemoved,
	}
)

// pair is two stores that are to be alike.
type pair struct {
	rt      *rapid.T // of the step that runs
	a, b    store.Store
	apps    map[carrel.TenantID]store.ScopeInstance // opened last
	opened  int                                     // scope ids are not used again
	request [2]store.ScopeInstance
}

// same asks both stores and ends the run unless they answer alike.
func same[T any](p *pair, op string, ask func(s store.Store) (T, error)) T {
	p.rt.Helper()
	a, errA := ask(p.a)
	b, errB := ask(p.b)
	if outcomeOf(errA) != outcomeOf(errB) {
		p.rt.Fatalf("%s: errors differ:\na: %v\nb: %v", op, errA, errB)
	}
	if reflect.DeepEqual(a, b) { // nearly always, and much faster
		return a
	}
	if d := cmp.Diff(a, b, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(store.Scrub{}, "Took")); d != "" {
		p.rt.Fatalf("%s: answers differ (-a +b):\n%s", op, d)
	}
	return a
}

func sameError(p *pair, op string, do func(s store.Store) error) {
	p.rt.Helper()
	same(p, op, func(s store.Store) (struct{}, error) { return struct{}{}, do(s) })
}

// outcomeOf returns what a caller may tell of an error.
func outcomeOf(err error) string {
	limit := ""
	if coded, ok := errors.AsType[*carrel.Error](err); ok {
		limit = coded.Limit
	}
	return fmt.Sprint(carrel.CodeOf(err), limit, errors.Is(err, store.ErrExists), errors.Is(err, store.ErrActive))
}

func pick[T any](p *pair, what string, from []T) T { return rapid.SampledFrom(from).Draw(p.rt, what) }

func (p *pair) number(what string, low, high int) int {
	return rapid.IntRange(low, high).Draw(p.rt, what)
}

func (p *pair) chance(what string) bool { return rapid.Bool().Draw(p.rt, what) }
func (p *pair) time(what string) time.Time {
	return noon.Add(time.Duration(p.number(what, 0, 60)) * time.Minute)
}

// cutoff is zero as often as not.
func (p *pair) cutoff() store.Cutoff {
	if p.chance("no cutoff") {
		return store.Cutoff{}
	}
	return p.time("cutoff")
}

func (p *pair) tenant() carrel.TenantID { return pick(p, "tenant", pairTenants) }

func keysOf(t carrel.TenantID) []carrel.MemoryKey {
	return []carrel.MemoryKey{
		keyOf(t, "1"),
		keyOf(t, "2"),
		{Tenant: t, Namespace: "shared:a", Kind: carrel.KindExplicit, ID: "1"},
		{Tenant: t, Namespace: "chat", Kind: carrel.KindSession, ID: "ses_1#S.m"},
	}
}

func (p *pair) key() carrel.MemoryKey { return pick(p, "key", keysOf(p.tenant())) }

func (p *pair) toucher() store.Toucher {
	return store.Toucher{Key: pick(p, "api key", []carrel.KeyID{"k1", "k2"}), Subject: pick(p, "subject", pairSubjects)}
}

func (p *pair) nextID(prefix string) carrel.ScopeID {
	p.opened++
	return carrel.ScopeID(fmt.Sprint(prefix, "-", p.opened))
}

// scope is one of a tenant that is open, was, or never will be.
func (p *pair) scope(t carrel.TenantID) store.ScopeInstance {
	si := pick(p, "scope", []store.ScopeInstance{
		p.request[0], p.request[1], p.apps[t], p.apps[t], sessionScope(t, "never"),
		sessionScope(t, pairSessions[0]), sessionScope(t, pairSessions[1]), sessionScope(t, pairSessions[2]),
	})
	si.Tenant = t
	return si
}

func (p *pair) newTouch(k carrel.MemoryKey) store.Touch {
	t := touchOf(p.scope(k.Tenant), k)
	t.Plugin = pick(p, "plugin", []carrel.PluginName{chat, "other"})
	t.By, t.At, t.Cutoff = p.toucher(), p.time("touched at"), p.cutoff()
	return t
}

func (p *pair) newTurns(what string, most int) []store.NewTurn {
	turns := make([]store.NewTurn, p.number(what, 0, most))
	for i := range turns {
		texts := make([]string, p.number("messages", 1, 4))
		for j := range texts {
			texts[j] = pick(p, "text", []string{"", "u", "h\u00e9", "a longer one"})
		}
		turns[i].Messages = turnOf(texts...)
		if p.chance("tools") {
			turns[i].Messages = toolTurn()
		}
		turns[i].Origin = pick(p, "origin", []carrel.Origin{carrel.OriginModel, carrel.OriginPlugin, carrel.OriginImport})
		if p.chance("its own time") {
			turns[i].At = p.time("turn at")
		}
	}
	return turns
}

func (p *pair) begin() {
	ctx := context.Background()
	for i := range p.request {
		p.request[i] = requestScope("", p.nextID("r"))
	}
	for _, t := range pairTenants {
		sameError(p, "CreateTenant", func(s store.Store) error { return s.CreateTenant(ctx, store.Tenant{ID: t, CreatedAt: noon}) })
		v := versionOf(t, chat, "module")
		p.apps[t] = applicationScope(t, chat, p.nextID("app"))
		sameError(p, "Activate", func(s store.Store) error {
			_, _, err := s.PutVersion(ctx, v, []byte("module"), roomy)
			if err == nil {
				_, err = s.Activate(ctx, t, chat, v.Digest, p.apps[t])
			}
			return err
		})
	}
}

func (p *pair) touch(rt *rapid.T) {
	p.rt = rt
	t := p.newTouch(p.key())
	same(p, "Touch", func(s store.Store) (store.Touched, error) { return s.Touch(context.Background(), t) })
}

func (p *pair) commit(rt *rapid.T) {
	p.rt = rt
	c := store.Commit{Touch: p.newTouch(p.key()), At: p.time("committed at")}
	v := p.view(c.Touch.Key, store.ViewLimit{})
	c.Generation = v.Generation + pick(p, "stale by", []int64{0, 0, 0, 0, 0, -1, 1})
	if p.chance("system") {
		system := pick(p, "system text", []string{"", "S", "another"})
		c.System = &system
	}
	c.Seeds, c.Turns = p.newTurns("seeds", 2), p.newTurns("turns", 3)
	c.DropTo = int64(p.number("drop to", 0, int(v.LastTurn)+2))
	c.Most = int64(p.number("most", 0, 8))
	c.TokenRate = pick(p, "token rate", []int{0, 0, 250, 300})
	if p.chance("answers") {
		a := p.newAnswer()
		c.Answer = &a
	}
	same(p, "Commit", func(s store.Store) (store.Committed, error) { return s.Commit(context.Background(), c) })
}

func (p *pair) closeScope(rt *rapid.T) {
	p.rt = rt
	si := p.scope(p.tenant())
	why, at := pick(p, "reason", pairReasons), p.time("closed at")
	same(p, "CloseScope", func(s store.Store) ([]carrel.Eviction, error) {
		return s.CloseScope(context.Background(), si.ID, why, at)
	})
	for i, r := range p.request {
		if r.ID == si.ID {
			p.request[i].ID = p.nextID("r")
		}
	}
}

func (p *pair) openApplications(rt *rapid.T) {
	p.rt = rt
	for _, t := range pairTenants {
		si := applicationScope(t, chat, p.nextID("app"))
		sameError(p, "OpenApplication", func(s store.Store) error { return s.OpenApplication(context.Background(), si) })
		if now := same(p, "Plugin", func(s store.Store) (store.Plugin, error) { return s.Plugin(context.Background(), t, chat) }); now.Scope == si.ID {
			p.apps[t] = si
		}
	}
}

func (p *pair) deleteTurn(rt *rapid.T) {
	p.rt = rt
	k := p.key()
	v := p.view(k, store.ViewLimit{})
	generation, turn := v.Generation+pick(p, "stale by", []int64{0, 0, 0, 1}), int64(p.number("turn", 0, int(v.LastTurn)+1))
	sameError(p, "DeleteTurn", func(s store.Store) error { return s.DeleteTurn(context.Background(), k, generation, turn) })
}

func (p *pair) deleteHistory(rt *rapid.T) {
	p.rt = rt
	k, d := p.key(), store.Deletion{Reason: pick(p, "reason", pairReasons), At: p.time("deleted at"), Cutoff: p.cutoff()}
	same(p, "DeleteHistory", func(s store.Store) (carrel.Eviction, error) { return s.DeleteHistory(context.Background(), k, d) })
}

func (p *pair) expire(rt *rapid.T) {
	p.rt = rt
	c, at, limit := p.cutoff(), p.time("expired at"), p.number("limit", 0, 3)
	same(p, "ExpireHistories", func(s store.Store) ([]carrel.Eviction, error) {
		return s.ExpireHistories(context.Background(), c, at, limit)
	})
}

func (p *pair) erase(rt *rapid.T) {
	p.rt = rt
	t, subject, at, limit := p.tenant(), pick(p, "subject", pairSubjects), p.time("erased at"), p.number("limit", 0, 5)
	same(p, "EraseSubject", func(s store.Store) (store.Erasure, error) {
		return s.EraseSubject(context.Background(), t, subject, at, limit)
	})
}

func (p *pair) forget(rt *rapid.T) {
	p.rt = rt
	ctx := context.Background()
	before, limit, run := p.time("before"), p.number("limit", 0, 3), pick(p, "node", pairNodes)
	same(p, "ForgetEvictions", func(s store.Store) (int, error) { return s.ForgetEvictions(ctx, before, limit) })
	same(p, "ForgetClaims", func(s store.Store) (int, error) { return s.ForgetClaims(ctx, run, before, limit) })
	now := before.Add(time.Duration(p.number("hours later", 0, 3)) * time.Hour)
	same(p, "ForgetSessions", func(s store.Store) (int, error) { return s.ForgetSessions(ctx, now) })
}

func (p *pair) openSession(rt *rapid.T) {
	p.rt = rt
	n := sessionOf(p.tenant(), pick(p, "session", pairSessions))
	n.Owner, n.CreatedAt = p.toucher(), p.time("opened at")
	sameError(p, "CreateSession", func(s store.Store) error { return s.CreateSession(context.Background(), n, 2) })
}

func (p *pair) useSession(rt *rapid.T) {
	p.rt = rt
	t, id, at := p.tenant(), pick(p, "session", pairSessions), p.time("used at")
	sameError(p, "UseSession", func(s store.Store) error { return s.UseSession(context.Background(), t, id, at) })
}

func (p *pair) scrub(rt *rapid.T) {
	p.rt = rt
	at := p.time("scrubbed at")
	same(p, "Scrub", func(s store.Store) (store.Scrub, error) { return s.Scrub(context.Background(), at) })
}

// The reads.

func (p *pair) view(k carrel.MemoryKey, limit store.ViewLimit) store.View {
	return same(p, "View", func(s store.Store) (store.View, error) { return s.View(context.Background(), k, limit) })
}

// compare reads everything, under limits and cutoffs that it draws.
func (p *pair) compare(rt *rapid.T) {
	p.rt = rt
	ctx := context.Background()
	limit := store.ViewLimit{Messages: p.number("view", 0, 20), Bytes: int64(p.number("view bytes", 0, 40)), Cutoff: p.cutoff()}
	by, since, records := p.toucher(), p.time("since"), p.number("records", 0, 2) == 0
	for _, t := range pairTenants {
		for _, k := range keysOf(t) {
			p.view(k, limit)
			if v := p.view(k, store.ViewLimit{Messages: 1000}); v.Generation > 0 {
				same(p, "Messages", func(s store.Store) (store.MessagePage, error) {
					return s.Messages(ctx, k, v.Generation, -1, store.MessageLimit{Messages: 1000, Cutoff: limit.Cutoff})
				})
			}
			for _, who := range []*store.Toucher{nil, &by} {
				same(p, "History", func(s store.Store) (store.History, error) { return s.History(ctx, t, handleOf(k), who, limit.Cutoff) })
			}
		}
		for _, f := range []store.HistoryFilter{
			{},
			{Cutoff: limit.Cutoff, TouchedBy: &by},
			{Cutoff: limit.Cutoff, Namespaces: []carrel.Namespace{"shared:a", "none"}},
			{Plugin: chat, Prefix: "1"},
		} {
			f.Tenant, f.Limit = t, 100
			same(p, "ListHistories", func(s store.Store) ([]store.History, error) { return s.ListHistories(ctx, f) })
		}
		for _, f := range []store.EvictionFilter{{Limit: 1000}, {Limit: 3, After: 2, Since: since}} {
			if f.Tenant = t; !records {
				continue
			}
			same(p, "ListEvictions", func(s store.Store) ([]store.EvictionRecord, error) { return s.ListEvictions(ctx, f) })
		}
		for _, id := range pairSessions {
			same(p, "Session", func(s store.Store) (store.Session, error) { return s.Session(ctx, t, id, nil) })
		}
		same(p, "ListSessions", func(s store.Store) ([]store.Session, error) { return s.ListSessions(ctx, t, nil, "", 100) })
	}
	for _, kind := range []carrel.Scope{carrel.ScopeRequest, carrel.ScopeSession, carrel.ScopeApplication} {
		same(p, "ListScopes", func(s store.Store) ([]store.ScopeInstance, error) { return s.ListScopes(ctx, kind, "", 100) })
	}
	same(p, "Counts", func(s store.Store) (store.Counts, error) { return s.Counts(ctx) })
	same(p, "LastScrub", func(s store.Store) (store.Scrub, error) { return s.LastScrub(ctx) })
}
