package host_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

const botMethod = "bot/com.acme.MyChat.chat"

// talking is a plugin whose system message tells its version.
func talking(version string) string { return bot("bot", version) + " " + version }

// active returns the number of the active version; 0 is none.
func active(t *testing.T, a *testenv.Actor, plugin string) int {
	t.Helper()
	p, err := a.Client().Plugin(t.Context(), plugin)
	if err != nil {
		t.Fatal(err)
	}
	if p.Active == nil {
		return 0
	}
	return p.Active.N
}

func TestTheSameBytesAreOneVersion(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		one, two := testenv.Pack(t, talking("one")), testenv.Pack(t, talking("two"))
		upload := acme.With("Content-Type", "application/wasm")
		for _, step := range []struct {
			what, query     string
			module          []byte
			status, n, runs int
		}{
			{"a dry run", "?dryRun=true", one, http.StatusOK, 0, 0},
			{"the first upload", "", one, http.StatusCreated, 1, 1},
			{"the same bytes", "", one, http.StatusOK, 1, 1},
			{"other bytes that stay inactive", "?activate=false", two, http.StatusCreated, 2, 1},
			{"the same other bytes, inactive", "?activate=false", two, http.StatusOK, 2, 1},
			{"the other bytes again", "", two, http.StatusOK, 2, 2},
			{"the first bytes, inactive", "?activate=false", one, http.StatusOK, 1, 2},
			{"the first bytes again", "", one, http.StatusOK, 1, 1},
		} {
			ans := upload.Do(http.MethodPost, "/api/v1/plugins"+step.query, string(step.module))
			if ans.Status != step.status {
				t.Errorf("%s answers %d %s, want %d", step.what, ans.Status, ans.Body, step.status)
			}
			if step.n == 0 {
				if left := acme.Plugins(); len(left) > 0 {
					t.Errorf("%s left %+v", step.what, left)
				}
				continue
			}
			if n := active(t, acme, "bot"); n != step.runs {
				t.Errorf("after %s version %d is active, want %d", step.what, n, step.runs)
			}
			if n := len(acme.Versions("bot")); n > 2 || n < step.n {
				t.Errorf("after %s there are %d versions", step.what, n)
			}
		}
		back, err := acme.Client().Module(t.Context(), "bot", "2")
		if err != nil || !bytes.Equal(back, two) {
			t.Errorf("version 2 comes back as %d bytes, not the %d that were sent: %v", len(back), len(two), err)
		}
	})
}

func TestVersionsAreActivatedRolledBackAndDeleted(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		c, ctx := acme.Client(), t.Context()
		ok := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		runs := func(what string, n int, system string) {
			t.Helper()
			if got := active(t, acme, "bot"); got != n {
				t.Errorf("%s: version %d is active, want %d", what, got, n)
			}
			acme.Chat(botMethod, "id", what, "msg", "hello")
			calls := env.Model.Calls()
			same(t, what+": send", calls[len(calls)-1].Compact()[:1], "system:You are bot "+system)
		}
		first := acme.Install(talking("one"))
		acme.Install(talking("two"))
		third := acme.Install(talking("three"))
		runs("the last upload", 3, "three")
		acme.Chat(botMethod, "id", "lasting", "msg", "hello")

		_, err := c.Activate(ctx, "bot", "1")
		ok("activate", err)
		runs("activated by number", 1, "one")
		_, err = c.Activate(ctx, "bot", third.Version.Digest)
		ok("activate", err)
		runs("activated by digest", 3, "three")
		_, err = c.Rollback(ctx, "bot")
		ok("roll back", err)
		runs("rolled back", 1, "one")
		_, err = c.Rollback(ctx, "bot")
		ok("roll back", err)
		runs("rolled back twice", 3, "three")

		acme.Chat("bot@2/com.acme.MyChat.chat", "id", "by number", "msg", "hello")
		acme.Chat("bot@"+first.Version.Digest+"/com.acme.MyChat.chat", "id", "by digest", "msg", "hello")
		calls := env.Model.Calls()
		same(t, "send of @2", calls[len(calls)-2].Compact()[:1], "system:You are bot two")
		same(t, "send of @digest", calls[len(calls)-1].Compact()[:1], "system:You are bot one")

		if err := c.DeleteVersion(ctx, "bot", "3"); testenv.CodeOf(err) != abi.BadRequest {
			t.Errorf("the active version is deleted: %v", err)
		}
		ok("delete", c.DeleteVersion(ctx, "bot", "1"))
		if _, err := c.Version(ctx, "bot", first.Version.Digest); testenv.CodeOf(err) != abi.NotFound {
			t.Errorf("the deleted version: %v", err)
		}
		if _, err := c.Rollback(ctx, "bot"); testenv.CodeOf(err) != abi.BadRequest {
			t.Errorf("a rollback to a version that was deleted: %v", err)
		}
		if again := acme.Install(talking("one")); again.Version.N != 4 {
			t.Errorf("the deleted version comes back as %d", again.Version.N)
		}
		if stored := acme.Stored("bot", "lasting"); len(stored) != 3 {
			t.Errorf("what the versions' changes left of a history: %q", stored)
		}
	})
}

func TestADeactivatedPluginIsNotFoundUntilItIsActivated(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(talking("one"))
		acme.Install(talking("two"))
		acme.Chat(botMethod, "id", "1", "msg", "hello")
		done, err := acme.Client().Deactivate(t.Context(), "bot")
		if err != nil || len(done.Evicted) != 1 || done.Evicted[0].MemoryID != "1" || done.Evicted[0].Reason != "scope_closed" {
			t.Errorf("deactivated: %+v, %v", done, err)
		}
		gone(t, acme, "bot", "1")
		for _, address := range []string{botMethod, "bot@1/com.acme.MyChat.chat", "bot@2/com.acme.MyChat.chat"} {
			acme.WantCode(abi.NotFound).Chat(address, "id", "1", "msg", "hello")
		}
		if again, err := acme.Client().Deactivate(t.Context(), "bot"); err != nil || len(again.Evicted) > 0 {
			t.Errorf("deactivated again: %+v, %v", again, err)
		}
		if n := active(t, acme, "bot"); n != 0 || len(acme.Versions("bot")) != 2 {
			t.Errorf("version %d is active of %d", n, len(acme.Versions("bot")))
		}
		if _, err := acme.Client().Rollback(t.Context(), "bot"); err != nil || active(t, acme, "bot") != 2 {
			t.Errorf("rolled back to version %d: %v", active(t, acme, "bot"), err)
		}
		acme.Chat(botMethod, "id", "1", "msg", "anew")
		same(t, "send", env.Model.Send(2), "system:You are bot two", "user:anew")

		gone := acme.Memories("bot")[0].Key
		removed, err := acme.Client().DeletePlugin(t.Context(), "bot")
		if err != nil || len(removed.Evicted) != 1 || removed.Evicted[0].Key != gone || removed.Evicted[0].Reason != "plugin_removed" {
			t.Errorf("deleted: %+v, %v", removed, err)
		}
		if len(acme.Plugins())+len(acme.Memories("")) > 0 {
			t.Errorf("left are %+v, %+v", acme.Plugins(), acme.Memories(""))
		}
		acme.WantCode(abi.NotFound).Chat(botMethod, "id", "1", "msg", "hello")
	})
}

func TestAnInvocationFinishesOnTheVersionThatItBeganWith(t *testing.T) {
	for what, change := range map[string]func(*testing.T, *testenv.Actor){
		"another version is activated": func(_ *testing.T, a *testenv.Actor) { a.Install(talking("two")) },
		"its version is deleted": func(t *testing.T, a *testenv.Actor) {
			a.Install(talking("two"))
			if err := a.Client().DeleteVersion(t.Context(), "bot", "1"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
				env := testenv.New(t, cfg)
				acme := env.Tenant("acme")
				acme.Install(talking("one"))
				call := acme.Hold(t.Context(), botMethod, "id", "1", "msg", "U1")
				change(t, acme)
				call.Release()
				if out := acme.Check("the call", call.Outcome()); out.Output != "A1" {
					t.Errorf("the output is %v", out.Output)
				}
				same(t, "stored", acme.Stored("bot", "1"), "system:You are bot one", "user:U1", "assistant:A1")
				acme.Chat(botMethod, "id", "1", "msg", "U2")
				same(t, "send of the next", env.Model.Send(2), "system:You are bot two", "user:U1", "assistant:A1", "user:U2")
			})
		})
	}
}

func TestTheEndOfAPluginEndsTheTurnsThatRun(t *testing.T) {
	for what, end := range map[string]func(*testing.T, *client.Client) (client.Deactivated, error){
		"it is deactivated": func(t *testing.T, c *client.Client) (client.Deactivated, error) {
			return c.Deactivate(t.Context(), "bot")
		},
		"it is deleted": func(t *testing.T, c *client.Client) (client.Deactivated, error) {
			return c.DeletePlugin(t.Context(), "bot")
		},
	} {
		t.Run(what, func(t *testing.T) {
			testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
				env := testenv.New(t, cfg)
				acme := env.Tenant("acme")
				acme.Install(talking("one"))
				acme.Chat(botMethod, "id", "1", "msg", "U1")
				call := acme.Hold(t.Context(), botMethod, "id", "1", "msg", "U2")
				fresh := acme.Hold(t.Context(), botMethod, "id", "fresh", "msg", "U3")
				done, err := end(t, acme.Client())
				if err != nil || len(done.Evicted) != 2 {
					t.Fatalf("%+v, %v", done, err)
				}
				call.Release()
				fresh.Release()
				acme.WantCode(abi.ScopeClosed).Check("the call", call.Outcome())
				acme.WantCode(abi.ScopeClosed).Check("the call on a fresh id", fresh.Outcome())
				if left := acme.Memories(""); len(left) > 0 {
					t.Errorf("left are %+v", left)
				}
				acme.Install(talking("one"))
				acme.Chat(botMethod, "id", "1", "msg", "anew")
				same(t, "send of a later life", env.Model.Send(4), "system:You are bot one", "user:anew")
			})
		})
	}
}
