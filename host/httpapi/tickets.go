package httpapi

import (
	"container/list"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

// ticket is what a WebSocket may be opened with, once: a web page can send no
// header with it, and a key must not be in an address.
type ticket struct {
	hash    [32]byte // of the secret, which is kept nowhere
	who     carrel.Caller
	session carrel.SessionID // to be attached to, or ""
	origin  string           // in small letters; "" = of no web page
	expires time.Time
}

// tickets are those that nobody has used yet. It is safe for concurrent use.
type tickets struct {
	most int           // of one tenant
	life time.Duration // of each
	now  func() time.Time

	mu      sync.Mutex // guards what follows
	byHash  map[[32]byte]*list.Element
	order   *list.List // of ticket, as they were made, which is as they expire
	tenants map[carrel.TenantID]int
}

func newTickets(most int, life time.Duration, now func() time.Time) *tickets {
	return &tickets{
		most: most, life: life, now: now,
		byHash: map[[32]byte]*list.Element{}, order: list.New(), tenants: map[carrel.TenantID]int{},
	}
}

// issue makes a ticket and returns its secret: 256 random bits. Errors:
// quota_exceeded if the tenant has too many that nobody has used.
func (s *tickets) issue(t ticket) (secret string, expires time.Time, err error) {
	var b [32]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", time.Time{}, fmt.Errorf("make a ticket: %w", err)
	}
	secret = "carrel_ticket_" + base64.RawURLEncoding.EncodeToString(b[:])
	t.hash = sha256.Sum256([]byte(secret))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	if s.tenants[t.who.Tenant] >= s.most {
		return "", time.Time{}, carrel.FailLimit("httpapi.tickets", abi.QuotaExceeded, "socketTickets", fmt.Sprintf(
			"%d tickets of this tenant wait for their WebSocket; the host's operator can raise `limits.socketTickets`", s.most))
	}
	t.expires = s.now().Add(s.life)
	s.byHash[t.hash] = s.order.PushBack(t)
	s.tenants[t.who.Tenant]++
	return secret, t.expires, nil
}

// expire forgets the tickets whose time has passed. s.mu is held.
func (s *tickets) expire() {
	now := s.now()
	for e := s.order.Front(); e != nil && !now.Before(e.Value.(ticket).expires); e = s.order.Front() { //nolint:forcetypeassert // only such are put in
		s.take(e)
	}
}

func (s *tickets) take(e *list.Element) ticket {
	t := s.order.Remove(e).(ticket) //nolint:forcetypeassert // only such are put in
	delete(s.byHash, t.hash)
	if s.tenants[t.who.Tenant]--; s.tenants[t.who.Tenant] == 0 {
		delete(s.tenants, t.who.Tenant)
	}
	return t
}

// use takes a ticket, whatever becomes of it: unauthenticated if there is none
// or its time has passed.
func (s *tickets) use(secret string) (ticket, error) {
	hash := sha256.Sum256([]byte(secret))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	e, ok := s.byHash[hash]
	if !ok {
		return ticket{}, carrel.Fail("httpapi.tickets", abi.Unauthenticated,
			"the ticket is unknown, used, or its time has passed; ask for another with POST /api/v1/ws-tickets")
	}
	return s.take(e), nil
}

func (a *API) issueTicket(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	var in client.NewTicket
	if err := a.readInto(c, &in); err != nil {
		return err
	}
	t := ticket{who: caller(c), origin: strings.ToLower(in.Origin)}
	if in.Origin == "" {
		t.origin = strings.ToLower(c.Request().Header.Get(echo.HeaderOrigin))
	} else if u, err := url.Parse(in.Origin); err != nil || u.Scheme == "" || u.Host == "" || in.Origin != u.Scheme+"://"+u.Host {
		return fault("/origin", "it is the origin of a web page, such as https://app.example")
	}
	if in.Session != "" {
		var err error
		if t.session, err = carrel.ParseSessionID(in.Session); err != nil {
			return err
		}
		if err := a.mayAttach(c, t.who, t.session); err != nil {
			return err
		}
	}
	secret, expires, err := a.tickets.issue(t)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, client.Ticket{Ticket: secret, ExpiresAt: expires.UTC()})
}

// mayAttach checks that a session is the caller's and open: not_found,
// session_closed.
func (a *API) mayAttach(c echo.Context, who carrel.Caller, id carrel.SessionID) error {
	_, leave, err := a.cfg.Scopes.Enter(c.Request().Context(), who, id)
	if err != nil {
		return err
	}
	leave()
	return nil
}
