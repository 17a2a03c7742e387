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

func TestAHeaderNamesAHistoryOfItsSenderAlone(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(example(t, "own-default-id"))
		backend := env.Key("acme", client.NewKey{Role: "caller", AssertSubject: true})
		colleague := env.Key("acme", client.NewKey{Role: "caller", AssertSubject: true})
		globex := env.Tenant("globex")
		globex.Install(example(t, "own-default-id"))

		for name, chats := range map[string]*testenv.Actor{
			"the owner":            acme,
			"another key":          backend,
			"a third key":          colleague,
			"an end user":          backend.As("ada"),
			"another end user":     backend.As("bob"),
			"another tenant's key": globex,
		} {
			from := len(env.Model.Calls())
			chats = chats.With(headerKey, "blue")
			first := chats.Chat(byHeader, "msg", name)
			second := chats.Chat(byHeader, "msg", "again")
			same(t, name+": send 1", env.Model.Send(from+1), sysNice, "user:"+name)
			same(t, name+": send 2", env.Model.Send(from+2), sysNice, "user:"+name, "assistant:"+first.Output.(string), "user:again")
			if first.MemoryID != "blue#com.acme.MyChat.chat" || second.MemoryID != first.MemoryID || len(second.Evicted) > 0 {
				t.Errorf("%s: the answers are %+v and %+v", name, first, second)
			}
		}
		if n := len(acme.Memories("own-default-id")); n != 5 {
			t.Errorf("acme has %d histories", n)
		}
		acme.With(headerKey, "green").Chat(byHeader, "msg", "other value")
		same(t, "the send under another value", env.Model.Send(13), sysNice, "user:other value")
		ada := colleague.As("ada").With(headerKey, "blue").Chat(byHeader, "msg", "from another device")
		if sent := env.Model.Send(14); len(sent) != 6 || sent[1] != "user:an end user" {
			t.Errorf("one end user through two keys: %s sends %q", ada.MemoryID, sent)
		}
	})
}

// The id of a key is no secret, so somebody may name an end user like it.
func TestAnEndUserNamedLikeAKeyDoesNotShareItsHistories(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(example(t, "own-default-id"))
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
		acme.Install(example(t, "own-default-id"))
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
		acme.Install(example(t, "nice-and-mean"))
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
