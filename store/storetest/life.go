package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

var lifeCases = []testCase{
	{"the host secret is random and never changes", lifeSecret},
	{"a healthy store passes its check", func(t *testing.T, s store.Store) { noError(t, s.Check(context.Background())) }},
	{"a context that has ended stops every method before it does anything", lifeCanceled},
	{"every method fails after Close, and closing twice is safe", lifeClosed},
}

func lifeSecret(t *testing.T, s store.Store) {
	first := must(s.HostSecret(context.Background()))(t)
	if first == ([32]byte{}) {
		t.Error("the secret is zero")
	}
	if again := must(s.HostSecret(context.Background()))(t); again != first {
		t.Error("the secret changed")
	}
}

// everyMethod calls each method of a store that takes a context. The calls
// name what makeAll made, so that none fails for want of it.
func everyMethod(ctx context.Context, s store.Store, generation int64) map[string]error {
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	d := carrel.DigestOf([]byte("module of app"))
	errs := make(map[string]error)
	_, errs["Tenant"] = s.Tenant(ctx, acme)
	errs["CreateTenant"] = s.CreateTenant(ctx, store.Tenant{ID: "new"})
	_, errs["ListTenants"] = s.ListTenants(ctx, "", 10)
	errs["CreateKey"] = s.CreateKey(ctx, apiKey(acme, "new", carrel.RoleCaller))
	errs["CreateFirstOwner"] = s.CreateFirstOwner(ctx, apiKey(acme, "owner", carrel.RoleOwner))
	_, errs["KeyByHash"] = s.KeyByHash(ctx, apiKey(acme, "k", "").Hash)
	_, _, errs["PutVersion"] = s.PutVersion(ctx, versionOf(acme, chat, "new"), []byte("new"), roomy)
	_, errs["Version"] = s.Version(ctx, acme, chat, carrel.VersionRef{})
	_, errs["FindVersion"] = s.FindVersion(ctx, acme, d)
	_, errs["ListVersions"] = s.ListVersions(ctx, acme, chat, 0, 10)
	_, errs["Module"] = s.Module(ctx, acme, chat, d)
	_, errs["Plugin"] = s.Plugin(ctx, acme, chat)
	_, errs["ListPlugins"] = s.ListPlugins(ctx, acme, "", 10)
	_, errs["ActivePlugins"] = s.ActivePlugins(ctx, "", "", 10)
	_, errs["Activate"] = s.Activate(ctx, acme, chat, d, applicationScope(acme, chat, "unused"))
	errs["OpenApplication"] = s.OpenApplication(ctx, applicationScope(acme, chat, "unused"))
	errs["DeleteVersion"] = s.DeleteVersion(ctx, acme, chat, carrel.DigestOf([]byte("spare")))
	_, errs["View"] = s.View(ctx, k, store.ViewLimit{Messages: 10})
	_, errs["History"] = s.History(ctx, acme, handleOf(k), nil, store.Cutoff{})
	_, errs["ListHistories"] = s.ListHistories(ctx, store.HistoryFilter{Tenant: acme, Limit: 10})
	_, errs["Messages"] = s.Messages(ctx, k, generation, -1, store.MessageLimit{Messages: 10})
	_, errs["Touch"] = s.Touch(ctx, touchOf(r, k))
	errs["Commit"] = commit(ctx, s, commitOf(r, keyOf(acme, "new"), 0, "u", "a"))
	errs["DeleteTurn"] = s.DeleteTurn(ctx, k, generation, 1)
	_, errs["DeleteHistory"] = s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon})
	errs["CreateSession"] = s.CreateSession(ctx, sessionOf(acme, "ses_new"), 10)
	errs["OpenSession"] = s.OpenSession(ctx, socketScope(acme, "ses_ws", node))
	_, errs["Session"] = s.Session(ctx, acme, ses, nil)
	errs["UseSession"] = s.UseSession(ctx, acme, ses, noon)
	_, errs["ListSessions"] = s.ListSessions(ctx, acme, nil, "", 10)
	_, errs["ExpiredSessions"] = s.ExpiredSessions(ctx, noon, 10)
	_, errs["ForgetSessions"] = s.ForgetSessions(ctx, noon)
	errs["SetGrant"] = s.SetGrant(ctx, acme, chat, store.Grant{Namespace: "shared"})
	_, errs["Grant"] = s.Grant(ctx, acme, chat)
	_, errs["CloseScope"] = s.CloseScope(ctx, "r", carrel.ReasonScopeClosed, noon)
	_, errs["Orphans"] = s.Orphans(ctx, node, 10)
	_, errs["ListScopes"] = s.ListScopes(ctx, carrel.ScopeRequest, "", 10)
	_, errs["Deactivate"] = s.Deactivate(ctx, acme, chat)
	_, errs["DeletePlugin"] = s.DeletePlugin(ctx, acme, chat)
	_, errs["ListEvictions"] = s.ListEvictions(ctx, store.EvictionFilter{Tenant: acme, Limit: 10})
	_, errs["ForgetEvictions"] = s.ForgetEvictions(ctx, noon, 10)
	_, errs["EraseSubject"] = s.EraseSubject(ctx, acme, "ada", noon, 1000)
	_, errs["Claim"] = s.Claim(ctx, claimOf(1), manyClaims)
	errs["Answer"] = s.Answer(ctx, store.Answer{Claim: claimOf(1).ID, At: noon})
	errs["ReleaseClaim"] = s.ReleaseClaim(ctx, claimOf(1))
	_, errs["ReleaseClaims"] = s.ReleaseClaims(ctx, node)
	_, errs["ForgetClaims"] = s.ForgetClaims(ctx, node, noon, 10)
	_, errs["Scrub"] = s.Scrub(ctx, noon)
	_, errs["LastScrub"] = s.LastScrub(ctx)
	_, errs["ExpireHistories"] = s.ExpireHistories(ctx, noon, noon, 10)
	_, errs["Counts"] = s.Counts(ctx)
	_, errs["HostSecret"] = s.HostSecret(ctx)
	errs["Check"] = s.Check(ctx)
	return errs
}

// makeAll returns the generation of the history that it makes.
func makeAll(t *testing.T, s store.Store) int64 {
	t.Helper()
	createTenants(t, s, acme)
	noError(t, s.CreateKey(context.Background(), apiKey(acme, "k", carrel.RoleCaller)))
	install(t, s, acme, chat, "app")
	put(t, s, acme, chat, "spare")
	createSession(t, s, sessionOf(acme, ses))
	say(t, s, requestScope(acme, "r"), keyOf(acme, "1"), "hello", "hi")
	return history(t, s, keyOf(acme, "1")).Generation
}

func lifeCanceled(t *testing.T, s store.Store) {
	generation := makeAll(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for method, err := range everyMethod(ctx, s, generation) {
		if !errors.Is(err, context.Canceled) || carrel.CodeOf(err) != abi.Canceled {
			t.Errorf("%s returned %v, want context.Canceled", method, err)
		}
	}
	// Nothing was done: now each of them finds what it needs.
	for method, err := range everyMethod(context.Background(), s, generation) {
		if err != nil {
			t.Errorf("%s returned %v after it had been canceled", method, err)
		}
	}
}

func lifeClosed(t *testing.T, s store.Store) {
	generation := makeAll(t, s)
	noError(t, s.Close())
	noError(t, s.Close())
	for method, err := range everyMethod(context.Background(), s, generation) {
		if err == nil {
			t.Errorf("%s succeeded after Close", method)
		}
	}
}
