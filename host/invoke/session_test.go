package invoke_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/host/scope"
)

// session opens an HTTP session for the caller of call.
func (e *env) session() carrel.SessionID {
	e.t.Helper()
	s, err := e.scopes.OpenSession(e.t.Context(), scope.NewSession{Owner: e.call("p/Req.chat").Caller})
	if err != nil {
		e.t.Fatal(err)
	}
	return s.ID
}

// in makes a call of the plugin g in an HTTP session.
func (e *env) in(id carrel.SessionID, address string, params ...string) invoke.Call {
	c := e.call("g/"+address, params...)
	c.Session = id
	return c
}

// Scenario 4, in an HTTP session.
func TestCallsInASession(t *testing.T) {
	e := newGuestEnv(t, nil)
	id := e.session()
	o := e.wantSent(e.in(id, "Ses.chat", "msg", "U1"), "A1", "user:U1")
	if string(o.MemoryID) != string(id)+"#Ses.chat" || len(o.Evicted) != 0 {
		t.Errorf("got %+v", o)
	}
	e.wantSent(e.in(id, "Ses.chat", "msg", "U2"), "A2", "user:U1 assistant:A1 user:U2")
	for range 2 { // a request-scoped service has the session's id, and starts empty each time
		o = e.wantSent(e.in(id, "Req.chat", "msg", "U"), "A", "user:U")
		if string(o.MemoryID) != string(id)+"#Req.chat" || len(o.Evicted) != 1 {
			t.Errorf("got %+v", o)
		}
	}
	c := e.in(id, "Ses.chat", "msg", "U3")
	c.Socket = e.socket() // a call names the session that it is made in
	e.wantSent(c, "A3", "user:U1 assistant:A1 user:U2 assistant:A2 user:U3")
	c = e.in("", "Ses.chat", "msg", "U4")
	c.Socket = e.socket()
	e.wantSent(c, "A4", "user:U4")
	c.Socket.Close(t.Context())
	_, closed, err := e.scopes.CloseSession(t.Context(), c.Caller, id)
	if err != nil || len(closed.Evicted) != 1 || closed.Evicted[0].Messages != 6 {
		t.Errorf("the session's end evicted %+v, %v", closed, err)
	}
	e.wantStored()
	e.refused(e.in(id, "Ses.chat", "msg", "U"), abi.SessionClosed, "")
	e.refused(e.in(id, "Req.chat", "msg", "U"), abi.SessionClosed, "")
}

func TestASessionOfSomebodyElse(t *testing.T) {
	e := newGuestEnv(t, nil)
	id := e.session()
	for name, change := range map[string]func(*carrel.Caller){
		"another key's":     func(c *carrel.Caller) { c.Key = "key_2" },
		"another subject's": func(c *carrel.Caller) { c.Subject = "bob" },
		"another tenant's":  func(c *carrel.Caller) { c.Tenant = other },
		"a caller's, for the tenant's owner": func(c *carrel.Caller) {
			c.Key, c.Role = "key_9", carrel.RoleOwner
		},
	} {
		t.Run(name, func(*testing.T) {
			c := e.in(id, "Ses.chat", "msg", "U")
			change(&c.Caller)
			e.refused(c, abi.NotFound, "")
		})
	}
	e.refused(e.in(e.socket().ID(), "Ses.chat", "msg", "U"), abi.NotFound, "") // a socket's own
	e.wantStored()
}

// The session ends, by hand or by its max TTL, while a turn of it runs.
func TestASessionThatEndsDuringATurn(t *testing.T) {
	for name, end := range map[string]func(e *env, c invoke.Call){
		"it is closed": func(e *env, c invoke.Call) {
			if _, closed, err := e.scopes.CloseSession(e.t.Context(), c.Caller, c.Session); err != nil || len(closed.Evicted) != 1 {
				e.t.Errorf("got %+v, %v", closed, err)
			}
		},
		"its max TTL passes": func(e *env, c invoke.Call) {
			<-time.After(time.Hour)
			e.refused(e.in(c.Session, "Ses.chat", "msg", "late"), abi.SessionClosed, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newGuestEnv(t, func(c *invoke.Config) { c.Limits.Timeout = 2 * time.Hour })
				id := e.session()
				e.run(e.in(id, "Ses.chat", "msg", "U1"), "A1")
				c := e.in(id, "Ses.chat", "msg", "U2")
				held, done := e.hold(c)
				end(e, c)
				held.say("A2")
				wantError(t, (<-done).err, abi.ScopeClosed, "")
				e.wantStored()
			})
		})
	}
}

// A turn that runs keeps its session from being idle, for as long as it takes.
func TestATurnThatOutlastsTheIdleTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newGuestEnv(t, func(c *invoke.Config) { c.Limits.Timeout = 2 * time.Hour })
		id := e.session()
		held, done := e.hold(e.in(id, "Ses.chat", "msg", "U1"))
		<-time.After(30 * time.Minute)
		held.say("A1")
		if o := <-done; o.err != nil {
			t.Fatal(o.err)
		}
		<-time.After(59 * time.Second)
		e.wantSent(e.in(id, "Ses.chat", "msg", "U2"), "A2", "user:U1 assistant:A1 user:U2")
		<-time.After(time.Minute)
		e.refused(e.in(id, "Ses.chat", "msg", "U3"), abi.SessionClosed, "")
		e.wantStored()
	})
}
