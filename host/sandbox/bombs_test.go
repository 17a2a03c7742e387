package sandbox_test

import (
	"math"
	"os"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	corpus "github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// TestWhatIsSlowToCompileHoldsUpNobody compiles bombs that the linter lets
// pass while another plugin is called: some, or with CARREL_TEST_STRICT all.
func TestWhatIsSlowToCompileHoldsUpNobody(t *testing.T) {
	const most = slowness * time.Second // of one call beside a bomb, on a machine that others use, too
	cfg := inChildren(t)
	cfg.Module = module.DefaultLimits()
	s := newSandbox(t, cfg)
	p := open(t, s, counter().Bytes())
	some := 3
	if os.Getenv("CARREL_TEST_STRICT") != "" {
		some = math.MaxInt
	}
	for _, m := range corpus.Modules() {
		if !m.Slow || m.Code != abi.OK || some == 0 {
			continue
		}
		some--
		b := m.Bytes()
		done := make(chan error, 1)
		start := time.Now()
		go func() {
			_, err := s.Admit(t.Context(), sandbox.Candidate{Module: b})
			done <- err
		}()
		var longest time.Duration
		for running := true; running; {
			begin := time.Now()
			if _, err := p.Call(t.Context(), sandbox.Call{Export: "run"}); err != nil {
				t.Fatal(err)
			}
			longest = max(longest, time.Since(begin))
			select {
			case err := <-done:
				running = false
				if code := carrel.CodeOf(err); code != abi.OK && code != abi.LimitExceeded {
					t.Errorf("%s: %v", m.Name, err)
				}
			default:
			}
		}
		if d := time.Since(start); d > time.Minute {
			t.Errorf("%s took %v", m.Name, d)
		} else if d > time.Second {
			t.Logf("%s: %v, the longest call beside it %v", m.Name, d, longest)
		}
		if longest > most {
			t.Errorf("%s: a call beside it took %v", m.Name, longest)
		}
	}
}
