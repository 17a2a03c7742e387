package sandbox_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// warmed is a setup with a warm-up.
func warmed(export, input string) sandbox.Setup {
	return sandbox.Setup{MemoryMiB: abi.DefaultMemoryMiB, Warmup: &sandbox.Warmup{Export: export, Input: []byte(input)}}
}

// admit admits a module that is to be opened with a setup.
func admit(t *testing.T, s *sandbox.Sandbox, wasm []byte, setup sandbox.Setup) sandbox.Report {
	t.Helper()
	r, err := s.Admit(t.Context(), sandbox.Candidate{Module: wasm, Plan: func(sandbox.Report) (sandbox.Setup, error) { return setup, nil }})
	if err != nil {
		t.Fatalf("%v\n%v", err, r.Log)
	}
	return r
}

func openWith(t *testing.T, s *sandbox.Sandbox, wasm []byte, setup sandbox.Setup) *sandbox.Plugin {
	t.Helper()
	p, err := s.Open(t.Context(), wasm, setup)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEachCallBeginsAsTheWarmupLeftIt makes hundreds of calls that end in every
// way, and looks at every byte that the next one would begin with.
func TestEachCallBeginsAsTheWarmupLeftIt(t *testing.T) {
	const calls = 320
	for name, guest := range map[string]struct {
		wasm    func(t testing.TB) []byte
		setup   sandbox.Setup
		exports []string // with what they end in
	}{
		"a small guest that grows": {func(testing.TB) []byte { return scribbler(initialised) }, warmed("grow", "\x5a"),
			[]string{"scribble ok", "find ok", "fail guest_failed", "trap guest_trap", "spin timeout", "grow ok", "overflow guest_trap"}},
		// In churn the guest finds out whether another call of it came before.
		"a guest of Go with goroutines, timers and a collector": {goModule, warmed("json", benchInput),
			[]string{"echo ok", "json ok", "churn ok", "crash guest_trap", "spin timeout", "grow ok", "leave guest_trap", "files ok", "deadlock guest_trap", "deep ok"}},
	} {
		t.Run(name, func(t *testing.T) {
			wasm := guest.wasm(t)
			s := newSandbox(t, sandbox.Config{})
			all := methods(t)
			for _, how := range all {
				t.Run(how.String(), func(t *testing.T) {
					sandbox.Use(t, s, how)
					if r := admit(t, s, wasm, guest.setup); r.Warmup == nil || !r.Warmup.Kept || r.Warmup.Err != nil {
						t.Fatalf("got %+v\n%v", r.Warmup, r.Log)
					}
					p := openWith(t, s, wasm, guest.setup)
					want := sandbox.Warmed(t, s, wasm, guest.setup)
					sameState(t, sandbox.Next(t, p), want)
					r := rand.New(rand.NewPCG(3, 4))
					n := calls
					if how == image.Copy || how != all[len(all)-1] { // copies are slow, and the last is what is chosen
						n = calls / (8 * min(slowness, 4))
					}
					for i := range n {
						export, ends, _ := strings.Cut(guest.exports[r.IntN(len(guest.exports))], " ")
						input, limit := fmt.Appendf(nil, `{"call":%d}`, i), time.Minute
						if export == "json" {
							input = []byte(benchInput)
						}
						if ends == "timeout" {
							limit = time.Duration(1+r.IntN(3)) * time.Millisecond
						}
						result, err := p.Call(t.Context(), sandbox.Call{Export: export, Input: input, Limit: limit})
						if got := carrel.CodeOf(err).String(); got != ends {
							t.Fatalf("call %d of %s ended with %v\n%v", i, export, err, result.Log)
						}
						sameState(t, sandbox.Next(t, p), want)
					}
				})
			}
		})
	}
}

// school is a pupil that is being made: what it imports, and its warm-up.
type school struct {
	*wasmtest.Module
	*wasmtest.Func
	imports map[string]uint32
}

func (s school) ask(name string) uint32 { return s.imports[name] }

// pupil is a guest whose method run writes what its warm-up learn left of the
// word 1000, and 1 more, which run itself adds. learn is nil if it has none.
func pupil(learn func(s school)) []byte {
	s := school{Module: wasmtest.New(), imports: map[string]uint32{}}
	for _, name := range []string{"input_read", "input_len", "output_write", "call", "emit", "open", "error_set", "log"} {
		s.imports[name] = s.Carrel(name)
	}
	s.imports["poll_oneoff"] = s.WASI("poll_oneoff")
	s.Memory(1)
	begin := s.Module.Func(nil, nil)
	s.Export(abi.InitializeExport, wasmtest.FuncKind, begin.Index)
	begin.Const(100).Const(1000).Store()
	if learn != nil {
		s.Func = s.Method("learn")
		learn(s)
	}
	s.Method("run").Const(100).Const(100).Load().Const(1).Add().Store().Const(100).Const(4).Call(s.ask("output_write"))
	return s.Bytes()
}

// learns adds a word to what run writes.
func (s school) learns(word func(c *wasmtest.Code)) {
	s.Const(100).Const(100).Load()
	word(&s.Code)
	s.Add().Store()
}

func runsTo(t *testing.T, p *sandbox.Plugin, want uint32) {
	t.Helper()
	for range 3 {
		r, err := p.Call(t.Context(), sandbox.Call{Export: "run", Host: &host{}})
		if err != nil {
			t.Fatal(err)
		}
		if got := binaryWord(r.Output); got != want {
			t.Fatalf("it is %d, want %d", got, want)
		}
	}
}

func TestAWarmupThatFailsIsLeftOut(t *testing.T) {
	const cold, warm = 1001, 1008 // learn adds 7
	seven := func(c *wasmtest.Code) { c.Const(7) }
	for name, tc := range map[string]struct {
		learn   func(s school)
		export  string
		want    uint32
		message string // of what was discarded
		log     string
	}{
		"it succeeds": {func(s school) { s.learns(seven); s.Const(0) }, "learn", warm, "", ""},
		"it returns a number": {func(s school) { s.learns(seven); s.Const(3) }, "learn", cold,
			`the warm-up failed (it returned 3)`, ""},
		"it traps": {func(s school) { s.learns(seven); s.Unreachable() }, "learn", cold,
			"trapped in the warm-up: unreachable", "unreachable"},
		"it runs out of fuel": {func(s school) { s.learns(seven); s.Loop().Br(0).End().Unreachable() }, "learn", cold,
			"out of fuel: one call can use 1000000 units", "out of fuel"},
		"it has no function":     {nil, "learn", cold, `exports no function "learn"`, ""},
		"it is the wake-up call": {nil, abi.WakeExport, cold, "exports no function", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t, sandbox.Config{Fuel: 1_000_000})
			wasm, setup := pupil(tc.learn), warmed(tc.export, "")
			r := admit(t, s, wasm, setup)
			if r.Warmup == nil || r.Warmup.Kept != (tc.message == "") || r.Warmup.Kept != (r.Warmup.Err == nil) ||
				r.Warmup.Err != nil && !strings.Contains(r.Warmup.Err.Error(), tc.message) {
				t.Errorf("got %+v", r.Warmup)
			}
			if text := fmt.Sprint(r.Log); !strings.Contains(text, tc.log) {
				t.Errorf("the log is %s", text)
			}
			runsTo(t, openWith(t, s, wasm, setup), tc.want)
		})
	}
}

// TestAGoGuestSurvivesItsWarmup has a runtime give up in the warm-up: nothing
// of that is in the state that calls begin with.
func TestAGoGuestSurvivesItsWarmup(t *testing.T) {
	wasm := goModule(t)
	s := newSandbox(t, sandbox.Config{})
	for export, message := range map[string]string{
		"deadlock": "trapped in the warm-up", "crash": "trapped in the warm-up", "leave": "exited with code 3",
	} {
		t.Run(export, func(t *testing.T) {
			setup := warmed(export, "")
			r := admit(t, s, wasm, setup)
			if r.Warmup.Kept || r.Warmup.Err == nil || !strings.Contains(r.Warmup.Err.Error(), message) {
				t.Errorf("got %+v", r.Warmup)
			}
			p := openWith(t, s, wasm, setup)
			for _, export := range []string{"churn", "echo", "churn"} {
				if result, err := p.Call(t.Context(), sandbox.Call{Export: export, Input: []byte("{}")}); err != nil {
					t.Errorf("%s: %v\n%v", export, err, result.Log)
				}
			}
		})
	}
}

// TestWhatAWarmupCanDo calls each import that needs a host, and some that do
// not, and adds what they answer.
func TestWhatAWarmupCanDo(t *testing.T) {
	const enosys = -int32(abi.ENOSYS)
	for name, tc := range map[string]struct {
		learn func(s school)
		added int32
		check func(t *testing.T, r sandbox.Report)
	}{
		"it has the input of a call": {func(s school) {
			s.Const(0).Const(0).Const(4).Call(s.ask("input_read")).Drop()
			s.learns(func(c *wasmtest.Code) { c.Const(0).Load().Call(s.ask("input_len")).Add() })
			s.Const(0)
		}, 0x01020304 + 4, nil},
		"its output has the room of a call's": {func(s school) {
			s.Const(0).Const(sandbox.PageBytes).Call(s.ask("output_write")).Drop()
			s.learns(func(c *wasmtest.Code) { c.Const(0).Const(sandbox.PageBytes).Call(s.ask("output_write")) })
			s.Const(0)
		}, -int32(abi.E2BIG), nil},
		"operations are not to be had": {func(s school) {
			s.Data(200, []byte("context"))
			s.learns(func(c *wasmtest.Code) { c.Const(200).Const(7).Const(0).Const(0).Call(s.ask("call")).Wrap() })
			s.Const(0)
		}, enosys, nil},
		"nothing can be sent": {func(s school) {
			s.learns(func(c *wasmtest.Code) { c.Const(0).Const(0).Const(1).Call(s.ask("emit")) })
			s.Const(0)
		}, enosys, nil},
		"no stream can be opened": {func(s school) {
			s.Data(200, []byte("context"))
			s.learns(func(c *wasmtest.Code) { c.Const(200).Const(7).Const(0).Const(0).Call(s.ask("open")) })
			s.Const(0)
		}, enosys, nil},
		"there is no error to set": {func(s school) {
			s.Data(200, []byte(`{"code":"x","message":"y"}`))
			s.learns(func(c *wasmtest.Code) { c.Const(200).Const(26).Call(s.ask("error_set")) })
			s.Const(0)
		}, enosys, nil},
		"its log is the report's": {func(s school) {
			s.Data(200, []byte("it is warm"))
			s.Const(2).Const(200).Const(10).Call(s.ask("log"))
		}, 0, func(t *testing.T, r sandbox.Report) {
			if !slices.Equal(r.Log, []sandbox.LogLine{{Level: 2, Text: "it is warm"}}) {
				t.Errorf("the log is %v", r.Log)
			}
		}},
		"a flood of lines is cut off": {func(s school) {
			s.Locals(1, wasmtest.I32).Loop().Const(1).Const(0).Const(100).Call(s.ask("log")).Drop().
				Get(0).Const(1).Add().Set(0).Get(0).Const(10_000).Raw(0x48).BrIf(0).End().Const(0)
		}, 0, func(t *testing.T, r sandbox.Report) {
			if len(r.Log) < 2 || len(r.Log) > 20 || !strings.Contains(r.Log[len(r.Log)-1].Text, "sandbox.logBytes") {
				t.Errorf("the log has %d lines", len(r.Log))
			}
		}},
		"what it sleeps for takes no time": {func(s school) {
			// An hour by the monotonic clock.
			s.Data(1024, []byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\xa0\xb8\x30\x46\x03\x00\x00"))
			s.Const(1024).Const(2048).Const(1).Const(3000).Call(s.ask("poll_oneoff"))
		}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t, sandbox.Config{OutputBytes: sandbox.PageBytes + 1, LogBytes: 2000})
			wasm, setup := pupil(tc.learn), warmed("learn", "\x04\x03\x02\x01")
			r := admit(t, s, wasm, setup)
			if !r.Warmup.Kept {
				t.Fatalf("got %+v", r.Warmup)
			}
			if tc.check != nil {
				tc.check(t, r)
			}
			runsTo(t, openWith(t, s, wasm, setup), uint32(1001+tc.added))
		})
	}
}

// TestTheClockGoesOnAfterAWarmup has the warm-up sleep for an hour.
func TestTheClockGoesOnAfterAWarmup(t *testing.T) {
	sleeps := func(s school) {
		s.Data(1024, []byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\xa0\xb8\x30\x46\x03\x00\x00"))
		s.Const(1024).Const(2048).Const(1).Const(3000).Call(s.ask("poll_oneoff"))
	}
	s := newSandbox(t, sandbox.Config{})
	p := openWith(t, s, pupil(sleeps), warmed("learn", ""))
	if got := time.Duration(sandbox.Passed(p)); got < time.Hour || got > time.Hour+time.Second {
		t.Errorf("calls begin %v after the initialisation", got)
	}
}

func TestAWarmupHasToHaveAPlaceForItsState(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	for name, tc := range map[string]struct {
		more          func(m *wasmtest.Module)
		path, message string
	}{
		"each call has a new image":         {movable, sandbox.PathImage, "table.set"},
		"each call initialises itself anew": {func(m *wasmtest.Module) { initialised(m); movable(m) }, sandbox.PathPlain, "initialises the module anew"},
	} {
		t.Run(name, func(t *testing.T) {
			wasm, setup := scribbler(tc.more), warmed("scribble", "\x5a")
			r := admit(t, s, wasm, setup)
			if r.Path != tc.path || r.Warmup == nil || r.Warmup.Kept || r.Warmup.Err == nil || !strings.Contains(r.Warmup.Err.Error(), tc.message) {
				t.Errorf("got %q and %+v", r.Path, r.Warmup)
			}
			sameState(t, sandbox.Next(t, openWith(t, s, wasm, setup)), sandbox.Fresh(t, s, wasm, abi.DefaultMemoryMiB))
		})
	}
}

// A prompt plugin has nothing to warm up.
func TestAPromptPluginHasNoWarmup(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	if r := admit(t, s, module.Prompt([]byte("{}")), sandbox.Setup{}); r.Warmup != nil {
		t.Errorf("got %+v", r.Warmup)
	}
}
