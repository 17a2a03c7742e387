package hostile_test

import (
	"context"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/plugins/manifest"
)

func newSandbox(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	s, err := sandbox.New(context.Background(), sandbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestEveryLimitOfModulesHasOneThatIsPastIt(t *testing.T) {
	have := map[string]bool{}
	for _, m := range hostile.Modules() {
		have[m.Field] = true
	}
	for f := range reflect.TypeFor[module.Limits]().Fields() {
		if !have[f.Name] {
			t.Errorf("no module is past module.Limits.%s", f.Name)
		}
		delete(have, f.Name)
	}
	delete(have, "")
	if len(have) > 0 {
		t.Errorf("there are no limits %v", have)
	}
}

func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	modules, attacks := hostile.Modules(), hostile.Attacks()
	name := func(n string) {
		if seen[n] || n == "" {
			t.Errorf("the name %q is there twice, or empty", n)
		}
		seen[n] = true
	}
	for _, m := range modules {
		name(m.Name)
	}
	for _, a := range attacks {
		name(a.Name)
		if len(a.Ends) == 0 || a.Calls < 1 {
			t.Errorf("%s: %d calls have %d ends", a.Name, a.Calls, len(a.Ends))
		}
	}
	t.Logf("%d modules, %d attacks", len(modules), len(attacks))
	if len(modules) < 90 || len(attacks) < 25 {
		t.Errorf("there are only %d modules and %d attacks", len(modules), len(attacks))
	}
}

// TestModulesAreWhatTheySay holds each refusal against admission alone, without
// a host around it.
func TestModulesAreWhatTheySay(t *testing.T) {
	admit := plugins.NewAdmit(manifest.Known{}, newSandbox(t))
	for _, m := range hostile.Modules() {
		if m.Slow && os.Getenv("CARREL_TEST_STRICT") == "" || m.Code == abi.TooLarge {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			b := m.Bytes()
			start := time.Now()
			_, err := admit(t.Context(), plugins.Candidate{Module: b})
			if d := time.Since(start); d > time.Second {
				t.Logf("%d bytes took %v", len(b), d)
			}
			if m.Slow && m.Code == abi.OK && carrel.CodeOf(err) == abi.LimitExceeded {
				return
			}
			if got := carrel.CodeOf(err); got != m.Code {
				t.Fatalf("got %v (%v), want %v", got, err, m.Code)
			}
			e, ok := errors.AsType[*carrel.Error](err)
			if ok && (e.Limit != m.Limit || !strings.Contains(e.Msg, m.Limit)) {
				t.Errorf("it names the limit %q, want %q: %v", e.Limit, m.Limit, err)
			}
		})
	}
}

func TestEveryCutIsThroughAnHonestModule(t *testing.T) {
	if _, err := newSandbox(t).Admit(t.Context(), sandbox.Candidate{Module: hostile.Honest()}); err != nil {
		t.Error(err)
	}
}
