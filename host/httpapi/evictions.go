package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/store"
)

func (a *API) listEvictions(c echo.Context) error {
	who := caller(c)
	if !who.SeesAllMemories() { // records do not say who touched
		return carrel.Fail("httpapi.evictions", abi.Forbidden,
			"this API key's role may not see what ended in all of the tenant; use one of role viewer or owner")
	}
	q, err := query(c, "since", "limit", "after")
	if err != nil {
		return err
	}
	limit, after, err := page(q)
	if err != nil {
		return err
	}
	f := store.EvictionFilter{Tenant: who.Tenant, Limit: limit + 1}
	if f.After, err = numberCursor(after, 0); err != nil {
		return err
	}
	if since, ok := q["since"]; ok {
		if f.Since, err = time.Parse(time.RFC3339, since); err != nil {
			return carrel.Fail("httpapi.evictions", abi.BadRequest,
				"since is a time such as 2026-01-31T12:00:00Z (RFC 3339; in a query a + is written %2B)")
		}
	}
	rows, err := a.cfg.Evictions.ListEvictions(c.Request().Context(), f)
	if err != nil {
		return err
	}
	return a.answer(c, pageOf(rows, limit, recordOf, func(r store.EvictionRecord) string {
		return strconv.FormatInt(r.N, 10)
	}))
}

func recordOf(r store.EvictionRecord) client.EvictionRecord {
	return client.EvictionRecord{
		Key: r.Handle.String(), Plugin: string(r.Plugin), MemoryID: string(r.MemoryID),
		Scope: string(r.Scope), Instance: string(r.Instance), Reason: string(r.Reason),
		Messages: r.Messages, Bytes: r.Bytes, At: r.At,
	}
}

// eraseSubject ends every history that an end user's calls touched.
func (a *API) eraseSubject(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	var in client.Erase
	if err := a.readInto(c, &in); err != nil {
		return err
	}
	subject, err := carrel.ParseSubject(in.Subject)
	if err != nil {
		return fault("/subject", "it is 1 to "+strconv.Itoa(carrel.MaxSubjectBytes)+" bytes of UTF-8 without control characters")
	}
	done, err := a.cfg.Scopes.Erase(c.Request().Context(), caller(c).Tenant, subject)
	if err != nil {
		return err
	}
	// Not whom: the log outlives the erasure.
	a.cfg.Log.Info("subject erased", "tenant", caller(c).Tenant, "histories", done.Histories, "request", requestID(c))
	return c.JSON(http.StatusOK, client.Erased{Evicted: evictedOf(done.Evicted), Histories: int64(done.Histories)})
}
