package plugins_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/memstore"
)

func TestWhatIsRememberedIsBounded(t *testing.T) {
	var g gates
	l := newLibrary(t, stopping(&g, newClock(), func(c *plugins.Config) {
		c.Admissions = plugins.AdmissionLimits{PerTenant: 3, Total: 4}
	}))
	module := func(n int) []byte { return chatModule("p", fmt.Sprint(n)) }
	running := func(tenant carrel.TenantID, n int) (end func()) {
		t.Helper()
		done := l.submit(t.Context(), plugins.Upload{Tenant: tenant, Module: module(n)})
		c := <-g.began
		return func() {
			c.let <- carrel.Fail("test", abi.InvalidModule, "no")
			<-done
		}
	}
	known := func(tenant carrel.TenantID, n int) bool {
		_, err := l.Progress(t.Context(), tenant, carrel.DigestOf(module(n)))
		return err == nil
	}
	refused := func(tenant carrel.TenantID, code abi.Code, limit string) {
		t.Helper()
		_, err := l.Submit(t.Context(), plugins.Upload{Tenant: tenant, Module: module(-1)})
		if e, ok := errors.AsType[*carrel.Error](err); !ok || e.Code != code || e.Limit != limit {
			t.Errorf("one more: %v, want %v and the limit %s", err, code, limit)
		}
	}
	for n := range 1000 {
		running(acme, n)()
	}
	for n := range 1000 {
		if known(acme, n) != (n >= 997) {
			t.Errorf("whether the %dth is remembered: %v", n, known(acme, n))
		}
	}
	// What runs never goes, what is over makes room for it.
	ends := []func(){running(acme, 1), running(acme, 2), running(acme, 3)}
	refused(acme, abi.QuotaExceeded, "admissions")
	running(other, 1)()
	running(other, 2)()
	if known(other, 1) || !known(other, 2) {
		t.Error("the one that was over first did not make room")
	}
	ends = append(ends, running(other, 3))
	refused(other, abi.Overloaded, "admissionsTotal")
	for _, n := range []int{1, 2, 3} {
		if !known(acme, n) {
			t.Errorf("%d runs, and is not known", n)
		}
	}
	for _, end := range ends {
		end()
	}
	running(acme, 4)()
}

func TestAnAdmissionThatTakesTooLongIsGivenUp(t *testing.T) {
	wasm := chatModule("p", "1")
	box := newBox(t)
	synctest.Test(t, func(t *testing.T) {
		c, err := plugins.NewCatalog(plugins.Config{
			Store: memstore.New(memstore.Config{}), Sandbox: box, Scopes: &scopes{},
			Admit: func(context.Context, plugins.Candidate) (plugins.Admission, error) {
				t.Error("it was judged")
				return plugins.Admission{}, nil
			},
			Limits: store.PluginLimits{Plugins: 1, Versions: 1}, Admissions: plugins.AdmissionLimits{Timeout: time.Minute},
		})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err = c.Upload(t.Context(), plugins.Upload{Tenant: acme, Module: wasm, Enter: func(ctx context.Context) (func(), error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		if e, ok := errors.AsType[*carrel.Error](err); !ok || e.Code != abi.Overloaded || e.Limit != "admissionTimeout" || time.Since(start) != time.Minute {
			t.Errorf("after %v it ended with %v", time.Since(start), err)
		}
		p, err := c.Progress(t.Context(), acme, carrel.DigestOf(wasm))
		if err != nil || p.State != plugins.StateRefused || p.Refused.Limit != "admissionTimeout" {
			t.Errorf("it is %+v, %v", p, err)
		}
		c.Close()
	})
}

func TestADrainWaitsForAdmissionsAsLongAsItMayAndThenEndsThem(t *testing.T) {
	var g gates
	l := newLibrary(t, stopping(&g, newClock(), nil))
	quick, slow := chatModule("p", "1"), chatModule("p", "2")
	first := l.submit(t.Context(), plugins.Upload{Tenant: acme, Module: quick, Activate: true})
	c := <-g.began
	l.StopAccepting()
	_, err := l.Submit(t.Context(), plugins.Upload{Tenant: acme, Module: slow})
	wantCode(t, err, abi.Draining)
	drained := make(chan struct{})
	go func() {
		l.Drain(t.Context())
		close(drained)
	}()
	c.let <- nil
	if end := <-first; end.err != nil {
		t.Error(end.err)
	}
	<-drained

	l = newLibrary(t, stopping(&g, newClock(), nil))
	second := l.submit(t.Context(), plugins.Upload{Tenant: acme, Module: slow, Activate: true})
	<-g.began
	over, cancel := context.WithCancel(t.Context())
	cancel()
	l.Drain(over)
	wantCode(t, (<-second).err, abi.Draining)
	if p := l.progress(acme, slow); p.State != plugins.StateRefused || p.Refused.Code != abi.Draining {
		t.Errorf("it is %+v", p)
	}
}
