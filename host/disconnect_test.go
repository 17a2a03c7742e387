package host_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/internal/testproc"
)

func TestAClientThatGoesAwayTakesItsCallAlong(t *testing.T) {
	for _, rule := range []string{"", "cancel"} {
		t.Run("rule "+rule, func(t *testing.T) {
			testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
				env := testenv.New(t, cfg)
				acme := env.Tenant("acme")
				acme.Install(testenv.Example(t, "smallest-scope"))
				acme.Chat(lasting, "id", "1", "msg", "U1")
				acme.Chat(lasting, "id", "brief", "msg", "U2")
				caller := acme
				if rule != "" {
					caller = acme.With("Carrel-On-Disconnect", rule)
				}
				for _, address := range []string{lasting, fleeting} {
					id := map[string]string{lasting: "1", fleeting: "brief"}[address]
					ctx, leave := context.WithCancel(t.Context())
					call := caller.Hold(ctx, address, "id", id, "msg", "lost")
					within, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					leave()
					if err := env.Model.Gone(within, call.N); err != nil {
						t.Fatalf("the model still works on %s a second later: %v", address, err)
					}
					call.Outcome()
				}
				// The turn is free again, and whoever takes it finds all done.
				acme.Chat(lasting, "id", "1", "msg", "U3")
				same(t, "send of the next call", env.Model.Send(5), sysLast, "user:U1", "assistant:A1", "user:U3")
				// A request that was lost ends its scope like any other, but tells
				// nobody when.
				testproc.Until(t, "the end of what the lost request touched", func() bool { return !slices.Contains(acme.MemoryIDs("smallest-scope"), "brief") })
				acme.Chat(lasting, "id", "brief", "msg", "U4")
				same(t, "send after the lost request", env.Model.Send(6), sysLast, "user:U4")
			})
		})
	}
}

func TestACallThatIsToGoOnIsStoredWithoutItsClient(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "nice-and-mean"))
		ctx, leave := context.WithCancel(t.Context())
		call := acme.With("Carrel-On-Disconnect", "continue").Hold(ctx, nice, "id", "1", "msg", "U1")
		leave()
		if o := call.Outcome(); o.Err == nil {
			t.Fatal("the client did not go away")
		}
		call.Release()
		// The next turn of the id comes after the one that goes on.
		acme.Chat(nice, "id", "1", "msg", "U2")
		same(t, "send of the next call", env.Model.Send(2), sysNice, "user:U1", "assistant:A1", "user:U2")
		same(t, "stored", acme.Stored("nice-and-mean", "1"), sysNice, "user:U1", "assistant:A1", "user:U2", "assistant:A2")
	})
}

func TestACallThatTakesTooLongEndsWithTimeoutAndSoDoesItsModelCall(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(talking("one"))
		acme.Chat(botMethod, "id", "1", "msg", "U1")
		defer env.Model.Hold()()
		ans := acme.With("Carrel-Timeout", "100ms").Do(http.MethodPost, botChat, `{"id":"1","msg":"U2"}`)
		if p := ans.Problem(t); ans.Status != http.StatusGatewayTimeout || p.Code != "timeout" || p.Limit != "timeout" || !p.Retryable {
			t.Errorf("the answer is %d %+v", ans.Status, p)
		}
		if err := env.Model.Gone(t.Context(), 2); err != nil {
			t.Error(err)
		}
		same(t, "stored", acme.Stored("bot", "1"), "system:You are bot one", "user:U1", "assistant:A1")
		acme.With("Carrel-Timeout", "2m").Chat(botMethod, "id", "1", "msg", "U2")
	})
}

func TestTheHostsOwnTimeoutHoldsForThoseWhoNameNone(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.Timeout = 100 * time.Millisecond
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	acme.Install(talking("one"))
	defer env.Model.Hold()()
	acme.WantCode(abi.Timeout).Chat(botMethod, "id", "1", "msg", "U1")
	acme.WantCode(abi.LimitExceeded).With("Carrel-Timeout", "101ms").Chat(botMethod, "id", "1", "msg", "U1")
	if err := env.Model.Gone(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

func TestAModelThatFailsIsABadGatewayAndSaysNothingOfItsOwn(t *testing.T) {
	const secret = "upstream account 4711"
	for what, fail := range map[string]http.HandlerFunc{
		"status 500": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, secret, http.StatusInternalServerError)
		},
		"status 429": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			http.Error(w, secret, http.StatusTooManyRequests)
		},
		"status 401": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, secret, http.StatusUnauthorized)
		},
		"a redirect": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/"+secret)
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
		"no JSON":      func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>"+secret) },
		"no choices":   func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"choices":[]}`) },
		"a cut answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(what, func(t *testing.T) {
			env := testenv.New(t, testenv.Config())
			acme := env.Tenant("acme")
			acme.Install(talking("one"))
			acme.Chat(botMethod, "id", "1", "msg", "U1")
			env.Model.AnswerNext(fail)
			refusal{body: `{"id":"1","msg":"U2"}`, status: 502, code: "model_failed"}.refuse(t, acme)
			env.Model.AnswerNext(fail)
			ans := acme.Do(http.MethodPost, botChat, `{"id":"new","msg":"U2"}`)
			for _, internal := range []string{"4711", "127.0.0.1", "fake", "openai"} {
				if strings.Contains(strings.ToLower(string(ans.Body)), internal) {
					t.Errorf("the answer %s tells of %q", ans.Body, internal)
				}
			}
			same(t, "stored", acme.Stored("bot", "1"), "system:You are bot one", "user:U1", "assistant:A1")
			same(t, "of the id that had none", acme.Stored("bot", "new"))
		})
	}
}
