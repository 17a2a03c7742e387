package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"regexp"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/plugins"
)

// respondAsync is the preference (RFC 7240) of clients that do not wait.
const respondAsync = "respond-async"

const routeAdmission = "/api/v1/versions/"

// asyncPreferred finds respond-async among a line's preferences, which are
// apart by commas outside of strings. It has no value, and may have parameters.
var asyncPreferred = regexp.MustCompile(
	`(?i)^(?:(?:[^",]|"(?:[^"\\]|\\.)*")*,)*[ \t]*respond-async[ \t]*(?:=[ \t]*(?:""[ \t]*)?)?(?:[;,]|$)`)

// prefersAsync reads Prefer. Other preferences are ignored: RFC 7240 has that
// of servers that do not know them.
func prefersAsync(h http.Header) bool {
	return slices.ContainsFunc(h["Prefer"], asyncPreferred.MatchString)
}

// enterUpload waits until one of the tenant's modules may be admitted.
func (a *API) enterUpload(t carrel.TenantID) func(context.Context) (leave func(), err error) {
	return func(ctx context.Context) (func(), error) {
		if err := a.uploads.acquire(ctx, t, 1); err != nil {
			return nil, err
		}
		return func() { a.uploads.release(t, 1) }, nil
	}
}

// newUploads has a place for each module that is admitted at once. A tenant
// never has the last one, unless it is the only one: admissions may take long.
// The sandbox has fewer places, to compile; these are for the whole of it,
// which also has the module read, initialised and warmed up, each in memory of
// its own.
func newUploads(l Limits) *budget { return newBudget(int64(l.Uploads), max(int64(l.Uploads)-1, 1)) }

// submit begins to admit a module and answers with how far that is. It goes on
// without the client; what the body took of the budget is given back at its
// end.
func (a *API) submit(c echo.Context, u plugins.Upload) error {
	s, err := a.cfg.Catalog.Submit(c.Request().Context(), u)
	if err != nil {
		return err
	}
	x := exchangeOf(c)
	body, module, who, id, start := x.body, x.module, caller(c), x.id, a.cfg.Now()
	x.body, x.module = 0, 0
	ctx := context.WithoutCancel(c.Request().Context())
	a.background.Go(func() {
		defer a.releaseBody(who.Tenant, body, module)
		_, err := s.Wait(ctx)
		a.logFailure(ctx, id, err)
		p := s.Progress()
		attrs := []slog.Attr{
			slog.String("request", id), slog.Duration("took", a.cfg.Now().Sub(start)),
			slog.String("tenant", string(who.Tenant)), slog.String("key", string(who.Key)),
			slog.String("digest", p.Digest.String()),
		}
		if p.Plugin != "" {
			attrs = append(attrs, slog.String("plugin", string(p.Plugin)))
		}
		if err != nil {
			attrs = append(attrs, slog.String("code", carrel.CodeOf(err).String()))
		}
		a.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "admission", attrs...)
	})
	p := s.Progress()
	h := c.Response().Header()
	h.Set("Preference-Applied", respondAsync)
	h.Set(echo.HeaderLocation, routeAdmission+p.Digest.String())
	return c.JSON(http.StatusAccepted, admissionOf(p))
}

func (a *API) getAdmission(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	d, err := carrel.ParseDigest(param(c, "digest"))
	if err != nil {
		return err
	}
	p, err := a.cfg.Catalog.Progress(c.Request().Context(), caller(c).Tenant, d)
	if err != nil {
		return err
	}
	out := admissionOf(p)
	out.Quarantined = a.quarantined(d)
	return a.answer(c, out)
}

func admissionOf(p plugins.Progress) client.Admission {
	out := client.Admission{
		Digest: p.Digest.String(), State: string(p.State), Since: p.Since.UTC(), Stages: []client.AdmissionStage{},
		Plugin: string(p.Plugin), N: p.N,
	}
	for _, s := range p.Stages {
		out.Stages = append(out.Stages, client.AdmissionStage{Stage: string(s.Stage), Took: s.Took.String()})
	}
	if p.Refused != nil {
		problem := problemOf(p.Refused, p.Request)
		out.Problem = &problem
	}
	return out
}
