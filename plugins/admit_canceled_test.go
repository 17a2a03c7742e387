package plugins_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/plugins/manifest"
)

// countdown is a context that ends after it was asked for its end so often.
type countdown struct {
	context.Context //nolint:containedctx // it is one itself

	left, asked int
}

func (c *countdown) Err() error {
	c.asked++
	if c.asked > c.left {
		return context.Canceled
	}
	return nil
}

func TestAdmissionEndsBetweenMethodsWithItsContext(t *testing.T) {
	var methods []string
	for i, params := range []string{`{"type":"object"}`, `{"type":"object","title":"1"}`, `{"type":"object","title":"2"}`, `{"bad":{"type":1},"type":2}`} {
		methods = append(methods, fmt.Sprintf(`{"name":"m%d","kind":"handler","export":"x","params":%s}`, i, params))
	}
	wasm := module.Prompt([]byte(withService(`"methods":[` + strings.Join(methods, ",") + `]`)))
	admit := plugins.NewAdmit(manifest.Known{}, newBox(t))
	for left := range 5 { // four methods, and once at the end
		ctx := &countdown{Context: t.Context(), left: left}
		_, err := admit(ctx, plugins.Candidate{Module: wasm})
		if carrel.CodeOf(err) != abi.Canceled || !errors.Is(err, context.Canceled) {
			t.Errorf("after %d methods got %v", left, err)
		}
		if ctx.asked > left+2 {
			t.Errorf("after %d methods the context was asked %d times", left, ctx.asked)
		}
	}
	_, err := admit(&countdown{Context: t.Context(), left: 1000}, plugins.Candidate{Module: wasm})
	if code := carrel.CodeOf(err); code != abi.InvalidManifest {
		t.Errorf("want invalid_manifest, got %v", err)
	}
}

func TestAnUploadWhoseRequestEndsStoresNothing(t *testing.T) {
	l := newLibrary(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.Upload(ctx, plugins.Upload{Tenant: acme, Module: chatModule("p", "1"), Activate: true})
	wantCode(t, err, abi.Canceled)
	if list, err := l.List(t.Context(), acme, "", 10); err != nil || len(list) != 0 {
		t.Errorf("there are %+v, %v", list, err)
	}
}
