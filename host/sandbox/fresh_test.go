package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// scribbler is a guest that leaves its input everywhere in its memory and
// globals, and tells how many bytes are as the first one of its input.
func scribbler(more func(m *wasmtest.Module)) []byte {
	m := wasmtest.New()
	read, write := m.Carrel("input_read"), m.Carrel("output_write")
	m.Memory(2)
	a, b := m.Global(7), m.GlobalOf(wasmtest.I64, "seen")
	m.Data(100, []byte("the beginning"))
	if more != nil {
		more(m)
	}
	fill := func(f *wasmtest.Func) *wasmtest.Code {
		// All of the memory is the first byte of the input.
		return f.Const(0).Const(0).Const(1).Call(read).Drop().
			Const(0).Const(0).Raw(0x2d, 0, 0).Raw(0x3f, 0).Const(16).Raw(0x74).Raw(0xfc, 11, 0).
			Const(-1).GlobalSet(a).Const64(-1).GlobalSet(b)
	}
	fill(m.Method("scribble")).Const(0)
	fill(m.Method("fail")).Const(5)
	fill(m.Method("trap")).Unreachable()
	fill(m.Method("spin")).Loop().Br(0).End().Unreachable()
	down := m.Func(nil, []byte{wasmtest.I32})
	down.Call(down.Index).Const(1).Add()
	fill(m.Method("overflow")).Call(down.Index)
	grow := m.Method("grow")
	grow.Const(3).Grow().Drop()
	fill(grow).Const(0)
	// find counts the bytes that are as the input's first, and sends the
	// number and the globals.
	find := m.Method("find").Locals(3, wasmtest.I32)
	find.Const(0).Const(0).Const(1).Call(read).Drop().Const(0).Raw(0x2d, 0, 0).Set(2).Const(0).Const(0).Raw(0x3a, 0, 0).
		Const(3).Grow().Drop().
		Loop().Get(1).Get(0).Raw(0x2d, 0, 0).Get(2).Raw(0x46).Add().Set(1).
		Get(0).Const(1).Add().Set(0).Get(0).Raw(0x3f, 0).Const(16).Raw(0x74).Raw(0x49).BrIf(0).End().
		Const(0).Get(1).Store().Const(4).GlobalGet(a).Store().Const(8).GlobalGet(b).Store64().
		Const(0).Const(16).Call(write)
	return m.Bytes()
}

// initialised adds an _initialize that writes, and grows by a page.
func initialised(m *wasmtest.Module) {
	f := m.Func(nil, nil)
	m.Export(abi.InitializeExport, wasmtest.FuncKind, f.Index)
	f.Const(1).Grow().Drop().Const(2*sandbox.PageBytes + 8).Const(0x0102).Store().Const(9).GlobalSet(0)
}

// movable adds an instruction that keeps an instance from being reset.
func movable(m *wasmtest.Module) {
	m.Table(1)
	m.Func(nil, nil).Const(0).Raw(0xd0, 0x70).Raw(0x26, 0) // table.set
}

// sameState compares all that a guest can change.
func sameState(t *testing.T, got, want sandbox.State) {
	t.Helper()
	if len(got.Memory) != len(want.Memory) {
		t.Fatalf("the memory has %d bytes, want %d", len(got.Memory), len(want.Memory))
	}
	if !bytes.Equal(got.Memory, want.Memory) {
		for i := range got.Memory {
			if got.Memory[i] != want.Memory[i] {
				t.Fatalf("byte %d of the memory is %d, want %d", i, got.Memory[i], want.Memory[i])
			}
		}
	}
	if !slices.Equal(got.Globals, want.Globals) {
		t.Fatalf("the globals are %x, want %x", got.Globals, want.Globals)
	}
}

var everyPath = []string{sandbox.PathReset, sandbox.PathImage, sandbox.PathPlain}

// methods are those that this system has.
func methods(t *testing.T) []image.Method {
	t.Helper()
	list := []image.Method{image.Copy}
	for _, how := range []image.Method{image.Madvise, image.PageScan} {
		im, err := image.New([]byte{1}, sandbox.PageBytes, how)
		if err != nil {
			t.Logf("%v is not tested: %v", how, err)
			continue
		}
		if err := im.Close(); err != nil {
			t.Error(err)
		}
		list = append(list, how)
	}
	return list
}

// TestEachCallBeginsAsTheFirst makes hundreds of calls that end in every way,
// and looks at every byte that the next one would begin with.
func TestEachCallBeginsAsTheFirst(t *testing.T) {
	const calls = 320
	for guestName, guest := range map[string]struct {
		wasm    func(t testing.TB) []byte
		exports []string // with what they end in
	}{
		"a small guest": {func(testing.TB) []byte { return scribbler(initialised) },
			[]string{"scribble ok", "find ok", "fail guest_failed", "trap guest_trap", "spin timeout", "grow ok", "overflow guest_trap"}},
		"a guest of Go": {goModule,
			[]string{"echo ok", "churn ok", "churn ok", "crash guest_trap", "spin timeout", "grow ok", "leave guest_trap", "files ok", "deadlock guest_trap", "deep ok"}},
	} {
		t.Run(guestName, func(t *testing.T) {
			wasm := guest.wasm(t)
			s := newSandbox(t, sandbox.Config{})
			all := methods(t)
			for _, how := range all {
				for _, path := range everyPath {
					t.Run(path+" by "+how.String(), func(t *testing.T) {
						sandbox.Use(t, s, how)
						p := sandbox.OpenOn(t, s, wasm, abi.DefaultMemoryMiB, path)
						if got := sandbox.Path(p); got != path {
							t.Fatalf("it runs on the path %s", got)
						}
						want := sandbox.Fresh(t, s, wasm, abi.DefaultMemoryMiB)
						r := rand.New(rand.NewPCG(1, 2))
						n := calls
						if how == image.Copy || how != all[len(all)-1] { // copies are slow, and the last is what is chosen
							n = calls / (8 * min(slowness, 4))
						}
						for i := range n {
							export, ends, _ := strings.Cut(guest.exports[r.IntN(len(guest.exports))], " ")
							limit := time.Minute
							if ends == "timeout" {
								limit = time.Duration(1+r.IntN(3)) * time.Millisecond
							}
							result, err := p.Call(t.Context(), sandbox.Call{Export: export, Input: fmt.Appendf(nil, `{"call":%d}`, i), Limit: limit})
							if got := carrel.CodeOf(err).String(); got != ends {
								t.Fatalf("call %d of %s ended with %v\n%v", i, export, err, result.Log)
							}
							sameState(t, sandbox.Next(t, p), want)
						}
					})
				}
			}
		})
	}
}

// TestAProgramThatCannotBeMadeLeavesNothing has an image fail for a reason that
// is none of the guest's, and none that passes.
func TestAProgramThatCannotBeMadeLeavesNothing(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	wasm := scribbler(initialised)
	if got, err := sandbox.HalfBaked(t, s, wasm); got || err == nil || !strings.Contains(err.Error(), "method -1") {
		t.Errorf("it ends with %v, and the program has something of it: %t", err, got)
	}
	mended := sandbox.Unmappable(s)
	if _, err := s.Open(t.Context(), wasm, sandbox.Setup{}); carrel.CodeOf(err) != abi.Internal {
		t.Errorf("it opens with %v", err)
	}
	mended()
	if n := sandbox.Programs(s); n != 0 {
		t.Errorf("%d programs are left", n)
	}
	p := open(t, s, wasm)
	if got := sandbox.Path(p); got != sandbox.PathReset {
		t.Errorf("then it is %s", got)
	}
	sameState(t, sandbox.Next(t, p), sandbox.Fresh(t, s, wasm, abi.DefaultMemoryMiB))
}

func TestAnInstanceThatCannotBeMadeIsNotTheGuestsFault(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	sandbox.CloseBlank(t, s)
	_, err := s.Admit(t.Context(), sandbox.Candidate{Module: scribbler(initialised)})
	if wantCode(t, err, abi.Internal); !errors.Is(err, image.ErrClosed) {
		t.Errorf("the cause is not in %v", err)
	}
}

func TestThePathIsTheFastestThatIsSafe(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	for caseName, tc := range map[string]struct {
		more func(m *wasmtest.Module)
		path string
	}{
		"memory and globals can be restored":                    {initialised, sandbox.PathReset},
		"a table that can change keeps instances from a second": {movable, sandbox.PathImage},
		"code before the image may have changed the table":      {func(m *wasmtest.Module) { initialised(m); movable(m) }, sandbox.PathPlain},
		"so may a start function":                               {func(m *wasmtest.Module) { movable(m); m.Start(m.Func(nil, nil)) }, sandbox.PathPlain},
		"a segment that can be dropped is as a table":           {func(m *wasmtest.Module) { m.Passive([]byte("x")); m.Func(nil, nil).Raw(0xfc, 9, 1) }, sandbox.PathImage},
		"a start function that changes what can be restored":    {func(m *wasmtest.Module) { f := m.Func(nil, nil); f.Const(3).GlobalSet(0); m.Start(f) }, sandbox.PathReset},
		"an initialisation that fails is told by each call":     {func(m *wasmtest.Module) { f := m.Func(nil, nil); f.Unreachable(); m.Start(f) }, sandbox.PathPlain},
		"a table that only calls go through is no hindrance":    {func(m *wasmtest.Module) { m.Table(1) }, sandbox.PathReset},
	} {
		t.Run(caseName, func(t *testing.T) {
			wasm := scribbler(tc.more)
			p := open(t, s, wasm)
			if got := sandbox.Path(p); got != tc.path {
				t.Fatalf("it is %s, want %s", got, tc.path)
			}
			for range 3 {
				if _, err := p.Call(t.Context(), sandbox.Call{Export: "scribble", Input: []byte{0xA5}}); err != nil && !strings.Contains(err.Error(), "the start function") {
					t.Fatal(err)
				}
			}
			if !strings.Contains(caseName, "fails") {
				sameState(t, sandbox.Next(t, p), sandbox.Fresh(t, s, wasm, abi.DefaultMemoryMiB))
			}
		})
	}
}

// TestPluginsOfTheSameBytesShareNoByte has one plugin write its secret
// wherever it can, and its twin look for it, also in memory that it grows by.
func TestPluginsOfTheSameBytesShareNoByte(t *testing.T) {
	for _, how := range methods(t) {
		for caseName, more := range map[string]func(*wasmtest.Module){
			"reset": initialised, "image": movable, "plain": func(m *wasmtest.Module) { initialised(m); movable(m) },
		} {
			t.Run(caseName+" by "+how.String(), func(t *testing.T) {
				const secret = 0xA5
				s := newSandbox(t, sandbox.Config{Slots: 4})
				sandbox.Use(t, s, how)
				wasm := scribbler(more)
				writer, reader := open(t, s, wasm), open(t, s, wasm)
				if n := sandbox.Programs(s); n != 1 {
					t.Fatalf("they have %d programs", n)
				}
				rounds := 60
				if how == image.Copy {
					rounds = 15
				}
				var group sync.WaitGroup
				for _, export := range []string{"scribble", "grow", "spin", "trap"} {
					group.Go(func() {
						for range rounds {
							_, err := writer.Call(t.Context(), sandbox.Call{Export: export, Input: []byte{secret}, Share: "a", Limit: time.Millisecond})
							if err != nil && carrel.CodeOf(err) != abi.GuestTrap && !errors.Is(err, context.DeadlineExceeded) {
								t.Errorf("%s: %v", export, err)
							}
						}
					})
				}
				first := ""
				for _, p := range []*sandbox.Plugin{reader, writer} {
					for range rounds {
						r, err := p.Call(t.Context(), sandbox.Call{Export: "find", Input: []byte{secret}, Share: "b"})
						if err != nil {
							t.Fatal(err)
						}
						if first == "" {
							first = string(r.Output)
						}
						if n := binaryWord(r.Output); n != 0 {
							t.Fatalf("it found %d bytes of another call", n)
						}
						if string(r.Output) != first {
							t.Fatalf("it found the globals %x, at first %x", r.Output, first)
						}
					}
				}
				group.Wait()
			})
		}
	}
}

func binaryWord(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// TestInstancesWaitForAWhile follows the instances of a plugin after a burst
// of calls.
func TestInstancesWaitForAWhile(t *testing.T) {
	wasm := scribbler(initialised)
	synctest.Test(t, func(t *testing.T) {
		s := newSandbox(t, sandbox.Config{Slots: 3, Idle: 10 * time.Second})
		p := open(t, s, wasm)
		inside, goOn := make(chan struct{}), make(chan struct{})
		caller := open(t, s, caller())
		waits := func(what string, instances, trimmed int) {
			t.Helper()
			if n, m := sandbox.Idle(caller); n != instances || m != trimmed {
				t.Errorf("%s %d instances wait, %d of them trimmed; want %d and %d", what, n, m, instances, trimmed)
			}
		}
		h := &host{do: func(context.Context, abi.Op, []byte) ([]byte, *sandbox.Refusal) {
			inside <- struct{}{}
			<-goOn
			return nil, nil
		}}
		var group sync.WaitGroup
		for range 5 { // more than there are slots: they are in host calls at the same time
			group.Go(func() {
				if _, err := caller.Call(t.Context(), sandbox.Call{Export: "run", Host: h}); err != nil {
					t.Error(err)
				}
			})
		}
		for range 5 {
			<-inside
		}
		waits("during the calls", 0, 0)
		close(goOn)
		group.Wait()
		waits("after the calls", 3, 0)
		time.Sleep(11 * time.Second)
		waits("soon after", 3, 3)
		if _, err := caller.Call(t.Context(), sandbox.Call{Export: "fine"}); err != nil {
			t.Error(err)
		}
		waits("after one more call", 3, 2)
		time.Sleep(55 * time.Second)
		waits("a minute later", 1, 1)
		time.Sleep(30 * time.Second)
		waits("after all", 0, 0)
		if _, err := caller.Call(t.Context(), sandbox.Call{Export: "fine"}); err != nil {
			t.Error(err)
		}
		waits("after a call again", 1, 0)
		if err := errors.Join(caller.Close(), p.Close()); err != nil {
			t.Error(err)
		}
		waits("closed", 0, 0)
	})
}

// TestTheMonotonicClockGoesOn compares what a guest saw of the clock when it
// was initialised with what its calls see.
func TestTheMonotonicClockGoesOn(t *testing.T) {
	m := wasmtest.New()
	write, clock := m.Carrel("output_write"), m.WASI("clock_time_get")
	m.Memory(1)
	f := m.Func(nil, nil)
	m.Export(abi.InitializeExport, wasmtest.FuncKind, f.Index)
	for range 1000 {
		f.Const(1).Const64(0).Const(0).Call(clock).Drop()
	}
	m.Method("run").Const(1).Const64(0).Const(8).Call(clock).Drop().Const(0).Const(16).Call(write)
	s := newSandbox(t, sandbox.Config{})
	for _, path := range everyPath {
		p := sandbox.OpenOn(t, s, m.Bytes(), 1, path)
		for range 3 {
			r, err := p.Call(t.Context(), sandbox.Call{Export: "run"})
			if err != nil {
				t.Fatal(err)
			}
			before, after := binaryWord(r.Output), binaryWord(r.Output[8:])
			if before != 1_000_000 || after <= before || after > before+uint32(time.Second) {
				t.Errorf("%s: the clock showed %d, then %d", path, before, after)
			}
		}
	}
}
