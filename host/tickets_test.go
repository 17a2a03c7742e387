package host_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

func TestATicketOpensOneWebSocketForWhoeverAskedForIt(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(lives)
		ada := env.Key("acme", client.NewKey{Role: "caller", AssertSubject: true}).As("ada")
		session := ada.Open(client.NewSession{})
		bearer := env.Anyone("")
		for _, in := range []string{"", session.ID} {
			k, err := ada.Client().NewTicket(t.Context(), client.NewTicket{Session: in})
			if err != nil {
				t.Fatal(err)
			}
			if left := time.Until(k.ExpiresAt); len(k.Ticket) < 43 || left <= 0 || left > 30*time.Second {
				t.Errorf("the ticket is %q for %v", k.Ticket, left)
			}
			s := bearer.Socket(client.SocketOptions{Ticket: k.Ticket})
			if in != "" && s.Session != in {
				t.Errorf("the socket is in %q", s.Session)
			}
			s.Chat(sitting, "msg", "U")
			if own := ada.MemoryIDs("lives"); len(own) == 0 || own[len(own)-1] != s.Session+"#com.acme.Sitting.chat" {
				t.Errorf("the caller sees %q", own)
			}
			bearer.WantCode(abi.Unauthenticated).Socket(client.SocketOptions{Ticket: k.Ticket})
		}
		bearer.WantCode(abi.Unauthenticated).Socket(client.SocketOptions{Ticket: "carrel_ticket_" + strings.Repeat("A", 43)})
		bearer.WantCode(abi.Unauthenticated).Socket(client.SocketOptions{Ticket: ada.Key()})
	})
}

func TestATicketIsForOnePageAndOneSession(t *testing.T) {
	cfg := testenv.Config()
	cfg.AllowedOrigins = []string{"https://app.example", "https://other.example"}
	env := testenv.New(t, cfg)
	acme, globex := env.Tenant("acme"), env.Tenant("globex")
	ticket := func(a *testenv.Actor, n client.NewTicket) string {
		t.Helper()
		k, err := a.Client().NewTicket(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return k.Ticket
	}
	bearer := env.Anyone("")
	page := client.NewTicket{Origin: "https://App.example"}
	bearer.Socket(client.SocketOptions{Ticket: ticket(acme, page), Origin: "https://app.example"})
	for _, origin := range []string{"https://other.example", ""} {
		k := ticket(acme, page)
		bearer.WantCode(abi.Forbidden).Socket(client.SocketOptions{Ticket: k, Origin: origin})
		bearer.WantCode(abi.Unauthenticated).Socket(client.SocketOptions{Ticket: k, Origin: "https://app.example"}) // it is used
	}
	bearer.WantCode(abi.Forbidden).Socket(client.SocketOptions{Ticket: ticket(acme, client.NewTicket{}), Origin: "https://app.example"})
	evil := client.NewTicket{Origin: "https://evil.example"}
	bearer.WantCode(abi.Forbidden).Socket(client.SocketOptions{Ticket: ticket(acme, evil), Origin: "https://evil.example"})
	bearer.WantCode(abi.BadRequest).Socket(client.SocketOptions{Ticket: ticket(acme, page), Session: acme.Open(client.NewSession{}).ID})
	// A page that asks itself is the page that the ticket is for.
	ans := acme.With("Origin", "https://app.example").Do(http.MethodPost, "/api/v1/ws-tickets", `{}`)
	own := strings.Split(string(ans.Body), `"`)[3]
	bearer.Socket(client.SocketOptions{Ticket: own, Origin: "https://app.example"})

	theirs := globex.Open(client.NewSession{}).ID
	gone := acme.Open(client.NewSession{}).ID
	acme.Shut(gone)
	for name, r := range map[string]refusal{
		"no origin":                 {body: `{"origin":"app.example"}`, status: 400, code: "bad_request", pointers: []string{"/origin"}},
		"an origin with a path":     {body: `{"origin":"https://app.example/x"}`, status: 400, code: "bad_request", pointers: []string{"/origin"}},
		"another tenant's session":  {body: `{"session":"` + theirs + `"}`, status: 404, code: "not_found"},
		"a session of another form": {body: `{"session":"x"}`, status: 404, code: "not_found"},
		"a session that is closed":  {body: `{"session":"` + gone + `"}`, status: 410, code: "session_closed"},
		"a member to come":          {body: `{"ttl":"1h"}`, status: 400, code: "bad_request", pointers: []string{"/ttl"}},
	} {
		r.path = "/api/v1/ws-tickets"
		t.Run(name, func(t *testing.T) { r.refuse(t, acme) })
	}
	refusal{method: http.MethodGet, path: "/api/v1/ws?ticket=" + ticket(acme, page), status: 400, code: "bad_request"}.refuse(t, acme)
}

func TestATenantHasOnlySoManyTickets(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.SocketTickets = 2
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	for range 2 {
		if _, err := acme.Client().NewTicket(t.Context(), client.NewTicket{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := acme.Client().NewTicket(t.Context(), client.NewTicket{})
	if p := new(client.Problem); !errors.As(err, &p) || p.Code != "quota_exceeded" || p.Limit != "socketTickets" {
		t.Errorf("the third ticket is refused with %v", err)
	}
	if _, err := env.Tenant("globex").Client().NewTicket(t.Context(), client.NewTicket{}); err != nil {
		t.Errorf("another tenant's: %v", err)
	}
}

func TestATicketsTimePasses(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.TicketTTL, cfg.Limits.SocketTickets = 50*time.Millisecond, 1
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	k, err := acme.Client().NewTicket(t.Context(), client.NewTicket{})
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(k.ExpiresAt))
	env.Anyone("").WantCode(abi.Unauthenticated).Socket(client.SocketOptions{Ticket: k.Ticket})
	if _, err := acme.Client().NewTicket(t.Context(), client.NewTicket{}); err != nil {
		t.Errorf("after its time: %v", err)
	}
}
