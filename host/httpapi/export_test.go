package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/store"
)

// Status returns the HTTP status of a code; 0 if it has none.
func Status(c abi.Code) int { return status[c] }

// Events is a buffer of events without an invocation.
type Events struct{ b *buffer }

// NewEvents returns an empty buffer.
func NewEvents() Events { return Events{newBuffer("", carrel.Caller{}, "", nil)} }

// Add adds an event.
func (e Events) Add(kind, data string, last bool) {
	e.b.add(event{kind: kind, head: []byte(data)}, last)
}

// Send sends the events as they come, to the last, and reports whether that
// was sent.
func (e Events) Send(w http.ResponseWriter, r *http.Request) (bool, error) {
	a := &API{cfg: Config{Limits: Limits{WriteTimeout: time.Minute}, Now: time.Now}}
	return a.sendEvents(echo.New().NewContext(r, w), e.b, 0)
}

// Imported is what an import would store.
type Imported struct {
	Head   client.HistoryHead
	System string
	Turns  []store.NewTurn
}

// ReadHistory reads an import.
func ReadHistory(body []byte, l Limits) (Imported, error) {
	h, err := readHistory(body, l.importLimits())
	return Imported{h.head, h.system, h.turns}, err
}

// Bodies is the room for bodies.
type Bodies struct{ b *budget }

// NewBodies makes room for bodies.
func NewBodies(l Limits) Bodies { return Bodies{newBodies(l)} }

// Acquire takes room for a tenant.
func (b Bodies) Acquire(ctx context.Context, t carrel.TenantID, size int64) error {
	return b.b.acquire(ctx, t, size)
}

// Release gives it back.
func (b Bodies) Release(t carrel.TenantID, size int64) { b.b.release(t, size) }

// Tenants is how many have some of the room, or wait for it.
func (b Bodies) Tenants() int { return len(b.b.tenants) }
