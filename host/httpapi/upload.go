package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/plugins"
)

// upload takes in a module: application/wasm, or multipart/form-data with the
// parts module and, for a module without one, manifest.
func (a *API) upload(c echo.Context) error {
	q, err := query(c, "activate", "dryRun")
	if err != nil {
		return err
	}
	u := plugins.Upload{Tenant: caller(c).Tenant}
	if u.Activate, err = boolean(q, "activate", true); err != nil {
		return err
	}
	if u.DryRun, err = boolean(q, "dryRun", false); err != nil {
		return err
	}
	if u.Module, err = a.readModule(c); err != nil {
		return err
	}
	u.Enter, u.Request = a.enterUpload(u.Tenant), requestID(c)
	if prefersAsync(c.Request().Header) {
		return a.submit(c, u)
	}
	done, err := a.cfg.Catalog.Upload(c.Request().Context(), u)
	if err != nil {
		return err
	}
	code := http.StatusOK
	if done.Created {
		code = http.StatusCreated
	}
	v := versionOf(done.Version, done.Plugin.Active)
	v.Manifest, v.Report = done.Version.Manifest, done.Version.Report
	return c.JSON(code, client.Uploaded{Plugin: string(done.Version.Plugin), Version: v, DryRun: u.DryRun})
}

// readModule returns the module's bytes, with the manifest embedded if it came
// apart.
func (a *API) readModule(c echo.Context) ([]byte, error) {
	kind, params, err := mime.ParseMediaType(c.Request().Header.Get(echo.HeaderContentType))
	if err != nil || kind != "application/wasm" && kind != "multipart/form-data" {
		return nil, carrel.Fail("httpapi.upload", abi.UnsupportedMediaType,
			"send the module as `Content-Type: application/wasm` (curl: --data-binary @FILE.wasm -H 'Content-Type: application/wasm'), or as multipart/form-data")
	}
	if err := a.takeModule(c); err != nil {
		return nil, err
	}
	body, err := a.readBody(c, a.cfg.Limits.ModuleBytes, "moduleBytes")
	if err != nil || kind == "application/wasm" {
		return body, err
	}
	parts, err := readParts(body, params["boundary"])
	if err != nil {
		return nil, err
	}
	wasm, ok := parts["module"]
	if !ok {
		return nil, carrel.Fail("httpapi.upload", abi.BadRequest, "the form has no part `module`")
	}
	manifest, ok := parts["manifest"]
	if !ok {
		return wasm, nil
	}
	return plugins.Embed(wasm, manifest, a.cfg.Module)
}

// takeModule takes room among uploads for a body that readBody will not refuse
// for its size.
func (a *API) takeModule(c echo.Context) error {
	l, size := a.cfg.Limits, c.Request().ContentLength
	if size < 0 {
		size = l.ModuleBytes
	}
	if size > l.ModuleBytes {
		return nil
	}
	if err := a.awaitRoom(c, a.modules, size); err != nil {
		return a.arrivals.failure(carrel.FailLimit("httpapi.upload", abi.Overloaded, "bodyBytes", fmt.Sprintf(
			"modules of %d bytes in all are being admitted, or of %d of this tenant; the host's operator can raise `limits.bodyBytes`",
			max(l.BodyBytes/2, l.ModuleBytes), a.modules.most)))
	}
	exchangeOf(c).module = size
	return nil
}

// readParts reads a form of the parts module and manifest, each once.
func readParts(body []byte, boundary string) (map[string][]byte, error) {
	const op = "httpapi.upload"
	form := multipart.NewReader(bytes.NewReader(body), boundary)
	parts := map[string][]byte{}
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return nil, &carrel.Error{Op: op, Code: abi.BadRequest, Msg: "the multipart form is malformed", Err: err}
		}
		name := part.FormName()
		if _, twice := parts[name]; twice || name != "module" && name != "manifest" {
			return nil, carrel.Fail(op, abi.BadRequest, fmt.Sprintf("the form has a part %.40q that is unknown or there twice; it takes `module` and `manifest`", name))
		}
		if parts[name], err = io.ReadAll(part); err != nil {
			return nil, &carrel.Error{Op: op, Code: abi.BadRequest, Msg: "the multipart form is malformed", Err: err}
		}
	}
}
