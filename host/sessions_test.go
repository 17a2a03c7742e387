package host_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

// lives has a service for each scope, without memory ids.
const lives = `---
name: lives
version: 1.0.0
services:
  - name: com.acme.Sitting
    scope: session
    methods: [{ name: chat }, { name: named, memoryId: id }]
  - name: com.acme.Passing
    scope: request
    methods: [{ name: chat }]
  - name: com.acme.Staying
    scope: application
    methods: [{ name: named, memoryId: id }]
---
# com.acme.Sitting
You sit

# com.acme.Passing
You pass

# com.acme.Staying
You stay
`

const (
	sitting = "lives/com.acme.Sitting.chat"
	named   = "lives/com.acme.Sitting.named"
	passing = "lives/com.acme.Passing.chat"
	staying = "lives/com.acme.Staying.named"
	sysSits = "system:You sit"
	sysPass = "system:You pass"
)

func TestASessionRemembersUntilItIsClosed(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(lives)
		acme.WantCode(abi.NoSession).Chat(sitting, "msg", "U0")
		s := acme.Open(client.NewSession{IdleTTL: "20m", MaxTTL: "90m", Metadata: json.RawMessage(`{"room":"7"}`)})
		if s.IdleTTL != "20m0s" || s.MaxTTL != "1h30m0s" || string(s.Metadata) != `{"room":"7"}` || !s.ExpiresAt.Equal(s.LastUsedAt.Add(20*time.Minute)) {
			t.Errorf("the session is %+v", s)
		}
		in := acme.With("Carrel-Session", s.ID)
		if out := in.Chat(sitting, "msg", "U1"); out.MemoryID != s.ID+"#com.acme.Sitting.chat" {
			t.Errorf("the memory id is %q", out.MemoryID)
		}
		in.Stream(t.Context(), sitting, "msg", "U2").Rest()
		same(t, "the second send", env.Model.Send(2), sysSits, "user:U1", "assistant:A1", "user:U2")
		in.Chat(passing, "msg", "P1")
		in.Chat(passing, "msg", "P2")
		same(t, "the second send of the request's service", env.Model.Send(4), sysPass, "user:P2")

		done := acme.Shut(s.ID)
		if len(done.Evicted) != 1 || done.Evicted[0].MemoryID != s.ID+"#com.acme.Sitting.chat" || done.Evicted[0].Messages != 5 {
			t.Errorf("its end: %+v", done)
		}
		again := acme.Shut(s.ID)
		if len(again.Evicted) != 1 || again.Evicted[0] != done.Evicted[0] || again.ID != s.ID {
			t.Errorf("its end again: %+v", again)
		}
		if got := acme.Memories("lives"); len(got) > 0 {
			t.Errorf("left is %+v", got)
		}
		in.WantCode(abi.SessionClosed).Chat(sitting, "msg", "U3")
		refusal{method: http.MethodGet, path: "/api/v1/sessions/" + s.ID, status: 410, code: "session_closed"}.refuse(t, acme)
	})
}

func TestASessionThatNobodyUsesEndsByItself(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(lives)
		for what, n := range map[string]client.NewSession{"idle": {IdleTTL: "30ms"}, "at its longest": {MaxTTL: "30ms"}} {
			s := acme.Open(n)
			_, _ = acme.With("Carrel-Session", s.ID).Call(t.Context(), sitting, "msg", "U1") // if it comes in time
			for {
				if _, err := acme.Client().Session(t.Context(), s.ID); testenv.CodeOf(err) == abi.SessionClosed {
					break
				}
				if what == "idle" { // reading is no use
					continue
				}
				_, _ = acme.With("Carrel-Session", s.ID).Call(t.Context(), sitting, "msg", "U2")
			}
			acme.With("Carrel-Session", s.ID).WantCode(abi.SessionClosed).Chat(sitting, "msg", "U3")
			for _, e := range acme.Shut(s.ID).Evicted {
				if e.Reason != "expired" {
					t.Errorf("%s: the history ended by %q", what, e.Reason)
				}
			}
			if got := acme.Memories("lives"); len(got) > 0 {
				t.Errorf("%s: left is %+v", what, got)
			}
		}
		if page, err := acme.Client().Sessions(t.Context(), client.ListOptions{}); err != nil || len(page.Data) > 0 {
			t.Errorf("open are %+v, %v", page, err)
		}
	})
}

// Each use is the first thing that happens after the session's time has passed:
// another session, which is as old, tells when that is.
func TestNobodyUsesWhatASessionTouchedThatEndedByItself(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(lives)
		for name, tc := range map[string]struct {
			session client.NewSession
			use     func(t *testing.T, key string)
			left    []string
		}{
			"its histories are not listed": {
				session: client.NewSession{IdleTTL: "1s"},
				use: func(t *testing.T, _ string) {
					if got := acme.In(t).Memories("lives"); len(got) > 0 {
						t.Errorf("listed is %+v", got)
					}
				},
			},
			"its messages are not read": {
				session: client.NewSession{MaxTTL: "1s"},
				use: func(t *testing.T, key string) {
					if page, err := acme.Client().Messages(t.Context(), key, client.ListOptions{}); testenv.CodeOf(err) != abi.NotFound {
						t.Errorf("got %+v, %v", page, err)
					}
				},
			},
			"a turn of another scope does not see them, and stays": {
				session: client.NewSession{IdleTTL: "1s"},
				use: func(t *testing.T, _ string) {
					env.Model.Reply("A2")
					acme.In(t).Chat(staying, "id", "shared", "msg", "U2")
					same(t, "the send", env.Model.Send(len(env.Model.Calls())), "system:You stay", "user:U2")
				},
				left: []string{"system:You stay", "user:U2", "assistant:A2"},
			},
		} {
			t.Run(name, func(t *testing.T) {
				acme := acme.In(t)
				s := acme.Open(tc.session)
				acme.With("Carrel-Session", s.ID).Chat(named, "id", "shared", "msg", "U1")
				all := acme.Memories("lives")
				if len(all) != 1 || all[0].MemoryID != "shared" || all[0].Messages != 3 {
					t.Fatalf("before it ended, listed is %+v", all)
				}
				witness := acme.Open(tc.session)
				for {
					if _, err := acme.Client().Session(t.Context(), witness.ID); testenv.CodeOf(err) == abi.SessionClosed {
						break
					}
				}
				tc.use(t, all[0].Key)
				done := acme.Shut(s.ID)
				if len(done.Evicted) != 1 || done.Evicted[0].Reason != "expired" || done.Evicted[0].Messages != 3 {
					t.Errorf("its end: %+v", done)
				}
				same(t, "left after its end", acme.Stored("lives", "shared"), tc.left...)
				if len(tc.left) > 0 {
					acme.End("lives", "shared")
				}
			})
		}
	})
}

func TestASessionIsItsOwnersAndForListAndCloseTheTenantOwners(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme, globex := env.Tenant("acme"), env.Tenant("globex")
		acme.Install(lives)
		backend := env.Key("acme", client.NewKey{Role: "caller", AssertSubject: true})
		ada, bob := backend.As("ada"), backend.As("bob")
		s := ada.Open(client.NewSession{})
		if s.Subject != "ada" || s.Key == "" {
			t.Errorf("the session is %+v", s)
		}
		for who, a := range map[string]*testenv.Actor{
			"another subject": bob, "no subject": backend, "another key": env.Key("acme", client.NewKey{Role: "caller"}), "another tenant": globex,
		} {
			for _, method := range []string{http.MethodGet, http.MethodDelete} {
				refusal{method: method, path: "/api/v1/sessions/" + s.ID, status: 404, code: "not_found"}.refuse(t, a)
			}
			if got := open(t, a); len(got) > 0 {
				t.Errorf("%s lists %v", who, got)
			}
			if a != globex {
				a.WantCode(abi.NotFound).With("Carrel-Session", s.ID).Chat(sitting, "msg", "U")
			}
		}
		ada.With("Carrel-Session", s.ID).Chat(sitting, "msg", "U1")
		acme.WantCode(abi.NotFound).With("Carrel-Session", s.ID).Chat(sitting, "msg", "the owner's")
		same(t, "the owner lists", open(t, acme), s.ID)
		same(t, "its owner lists", open(t, ada), s.ID)
		if _, err := acme.Client().Session(t.Context(), s.ID); err != nil {
			t.Error(err)
		}
		if done := acme.Shut(s.ID); len(done.Evicted) != 1 {
			t.Errorf("the owner's close: %+v", done)
		}
		if done := ada.Shut(s.ID); len(done.Evicted) != 1 {
			t.Errorf("its owner's close after it: %+v", done)
		}
	})
}

// open lists the ids of the open sessions, in pages of two.
func open(t *testing.T, a *testenv.Actor) []string {
	t.Helper()
	all, err := client.All(1000, func(o client.ListOptions) (client.Page[client.Session], error) {
		o.Limit = 2
		return a.Client().Sessions(t.Context(), o)
	})
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	return ids
}

func TestSessionsAreListedInPagesAndBoundedInNumber(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		cfg.Limits.Sessions = 5
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		var made []string
		for range 5 {
			made = append(made, acme.Open(client.NewSession{}).ID)
		}
		slices.Sort(made)
		same(t, "listed", open(t, acme), made...)
		refusal{path: "/api/v1/sessions", body: `{}`, status: 429, code: "quota_exceeded", limit: "sessions"}.refuse(t, acme)
		acme.Shut(made[0])
		acme.Open(client.NewSession{})
		env.Tenant("globex").Open(client.NewSession{})
	})
}

func TestASessionThatIsWrongIsNotOpened(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(lives)
	for name, r := range map[string]refusal{
		"a TTL without a unit":       {body: `{"idleTtl":"5"}`, status: 400, code: "bad_request", pointers: []string{"/idleTtl"}},
		"a TTL that is a number":     {body: `{"maxTtl":5}`, status: 400, code: "bad_request", pointers: []string{"/maxTtl"}},
		"a TTL of nothing":           {body: `{"maxTtl":"0s"}`, status: 400, code: "bad_request", pointers: []string{"/maxTtl"}},
		"a TTL in the past":          {body: `{"idleTtl":"-1m"}`, status: 400, code: "bad_request", pointers: []string{"/idleTtl"}},
		"an idle TTL over the most":  {body: `{"idleTtl":"25h"}`, status: 422, code: "limit_exceeded", limit: "sessionIdleTtlMax", says: []string{"limits.sessionIdleTtlMax"}},
		"a max TTL over the most":    {body: `{"maxTtl":"169h"}`, status: 422, code: "limit_exceeded", limit: "sessionMaxTtlMax", says: []string{"limits.sessionMaxTtlMax"}},
		"metadata that is no object": {body: `{"metadata":[1]}`, status: 400, code: "bad_request", pointers: []string{"/metadata"}},
		"metadata of 4097 bytes":     {body: `{"metadata":{"a":"` + strings.Repeat("x", 4097-8) + `"}}`, status: 422, code: "limit_exceeded", limit: "sessionMetadata"},
		"a member of another name":   {body: `{"ttl":"5m"}`, status: 400, code: "bad_request", pointers: []string{"/ttl"}},
		"a member twice":             {body: `{"idleTtl":"5m","idleTtl":"6m"}`, status: 400, code: "malformed_json", pointers: []string{"/idleTtl"}},
	} {
		r.path = "/api/v1/sessions"
		t.Run(name, func(t *testing.T) { r.refuse(t, acme) })
	}
	same(t, "open", open(t, acme))
	if s := acme.Open(client.NewSession{Metadata: json.RawMessage(`{"a":"` + strings.Repeat("x", 4096-8) + `"}`)}); len(s.Metadata) != 4096 {
		t.Errorf("metadata of 4096 bytes come back as %d", len(s.Metadata))
	}
	body := `{"msg":"U"}`
	for name, r := range map[string]refusal{
		"a session without a name":  {header: [2]string{"Carrel-Session", ""}, status: 400, code: "bad_request"},
		"a session of another form": {header: [2]string{"Carrel-Session", "ses_1"}, status: 404, code: "not_found"},
		"a session of nobody":       {header: [2]string{"Carrel-Session", "ses_00000000-0000-4000-8000-000000000000"}, status: 404, code: "not_found"},
	} {
		r.path, r.body = "/api/v1/plugins/lives/services/com.acme.Sitting/chat", body
		t.Run(name, func(t *testing.T) { r.refuse(t, acme) })
	}
}

func TestASessionsEventsEndWithIt(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(lives)
	s := acme.Open(client.NewSession{})
	release := env.Model.Hold()
	defer release()
	stream := acme.With("Carrel-Session", s.ID).Stream(t.Context(), sitting, "msg", "U1")
	id := stream.Next().Response.ID
	acme.Shut(s.ID)
	acme.WantCode(abi.NotFound).Check("its events", testenv.Outcome{Err: acme.Events(t.Context(), id, 0).Err()})
	release()
	same(t, "who reads already sees the end", testenv.Show(stream.Rest()), "2 response.output_text.delta A1", "3 error scope_closed", "4 response.failed failed")
}

func TestASessionOutlivesARestart(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(lives)
	s := acme.Open(client.NewSession{})
	in := acme.With("Carrel-Session", s.ID)
	in.Chat(sitting, "msg", "U1")
	env.Restart()
	in.Chat(sitting, "msg", "U2")
	same(t, "the send after the restart", env.Model.Send(2), sysSits, "user:U1", "assistant:A1", "user:U2")
}
