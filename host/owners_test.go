package host_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

// The id of a key is no secret, so somebody may name an end user like it.
func TestAnEndUserNamedLikeAKeyDoesNotShareItsHistories(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "own-default-id"))
		made, err := env.Admin().CreateKey(t.Context(), "acme", client.NewKey{Role: "caller", AssertSubject: true})
		if err != nil {
			t.Fatal(err)
		}
		key := env.Anyone(made.Secret).With(headerKey, "blue")
		key.Chat(byHeader, "msg", "mine")
		for n, subject := range []string{made.ID, "key:" + made.ID} {
			key.As(subject).Chat(byHeader, "msg", "hers?")
			same(t, "send as "+subject, env.Model.Send(n+2), sysNice, "user:hers?")
		}
	})
}

func TestACallWithoutTheHeaderIsRefusedBeforeAnyWork(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "own-default-id"))
		acme.WantCode(abi.DefaultIDLeak).Chat(byHeader, "msg", "hello")
		acme.WantCode(abi.InvalidMemoryID).With(headerKey, strings.Repeat("x", 129)).Chat(byHeader, "msg", "hello")
		if calls, left := env.Model.Calls(), acme.Memories(""); len(calls)+len(left) > 0 {
			t.Errorf("%d model calls and %d histories", len(calls), len(left))
		}
	})
}

func TestACallerSeesOnlyWhatItsOwnKeyAndSubjectTouched(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "nice-and-mean"))
		backend := env.Key("acme", client.NewKey{Role: "caller", AssertSubject: true})
		colleague := env.Key("acme", client.NewKey{Role: "caller", AssertSubject: true})
		viewer := env.Key("acme", client.NewKey{Role: "viewer"})
		fixed := env.Key("acme", client.NewKey{Role: "caller", Subject: "ada"})
		everybody := map[string]*testenv.Actor{
			"backend": backend, "backend-ada": backend.As("ada"), "backend-bob": backend.As("bob"),
			"colleague": colleague, "colleague-ada": colleague.As("ada"), "fixed-ada": fixed,
		}
		all := []string{"shared"}
		for name, a := range everybody {
			a.Chat(nice, "id", name, "msg", "mine")
			all = append(all, name)
		}
		backend.As("ada").Chat(nice, "id", "shared", "msg", "from ada")
		colleague.Chat(nice, "id", "shared", "msg", "from a colleague")
		keys := map[string]string{}
		for _, m := range acme.Memories("nice-and-mean") {
			keys[m.MemoryID] = m.Key
		}

		for name, a := range everybody {
			sees := []string{name}
			if name == "backend-ada" || name == "colleague" {
				sees = append(sees, "shared")
			}
			got := a.MemoryIDs("nice-and-mean")
			slices.Sort(got)
			same(t, name+" sees", got, sees...)
			for _, id := range all {
				_, err := a.Client().Messages(t.Context(), keys[id], client.ListOptions{})
				want := abi.NotFound
				if slices.Contains(sees, id) {
					want = abi.OK
				}
				if testenv.CodeOf(err) != want {
					t.Errorf("%s reads %s: %v, want %v", name, id, err, want)
				}
				if want == abi.NotFound {
					if _, err := a.Client().DeleteMemory(t.Context(), keys[id]); testenv.CodeOf(err) != abi.NotFound {
						t.Errorf("%s deletes %s: %v", name, id, err)
					}
				}
			}
		}
		slices.Sort(all)
		for name, a := range map[string]*testenv.Actor{"the owner": acme, "a viewer": viewer} {
			got := a.MemoryIDs("nice-and-mean")
			slices.Sort(got)
			same(t, name+" sees", got, all...)
		}
		// What a caller may see it may also end.
		colleague.End("nice-and-mean", "shared")
		gone(t, acme, "nice-and-mean", "shared")
	})
}
