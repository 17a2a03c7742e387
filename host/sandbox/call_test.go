package sandbox_test

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// counter is a guest that counts its calls in a global and in memory, and has
// an _initialize and a carrel_wake that count too.
func counter() *wasmtest.Module {
	m := wasmtest.New()
	write := m.Carrel("output_write")
	m.Memory(1)
	g := m.Global(0)
	add := func(f *wasmtest.Func, n int32) {
		f.GlobalGet(g).Const(n).Add().GlobalSet(g)
		f.Const(4).Const(4).Load().Const(n).Add().Store()
	}
	initialize := m.Func(nil, nil)
	m.Export(abi.InitializeExport, wasmtest.FuncKind, initialize.Index)
	add(initialize, 100)
	wake := m.Method(abi.WakeExport)
	// Only what is initialised can wake.
	wake.GlobalGet(g).Const(100).Raw(0x47).If().Unreachable().End()
	add(wake, 10)
	wake.Const(0)
	run := m.Method("run")
	add(run, 1)
	run.Const(0).GlobalGet(g).Store().Const(0).Const(8).Call(write)
	return m
}

func TestNoStateSurvivesACall(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	p := open(t, s, counter().Bytes())
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 20 {
				r, err := p.Call(t.Context(), sandbox.Call{Export: "run"})
				if err != nil {
					t.Error(err)
					return
				}
				if a, b := binary.LittleEndian.Uint32(r.Output), binary.LittleEndian.Uint32(r.Output[4:]); a != 111 || b != 111 {
					t.Errorf("the global was %d, the memory %d", a, b)
				}
			}
		})
	}
	group.Wait()
}

func TestCallsOfWhatCannotBeCalled(t *testing.T) {
	m := counter()
	m.Func([]byte{wasmtest.I32}, []byte{wasmtest.I32}).Get(0)
	m.Export("with_param", wasmtest.FuncKind, 4)
	p := open(t, newSandbox(t, sandbox.Config{}), m.Bytes())
	if got := strings.Join(p.Exports(), " "); got != "run" {
		t.Errorf("the exports are %q", got)
	}
	for _, name := range []string{"", "none", "memory", abi.InitializeExport, abi.WakeExport, "with_param"} {
		_, err := p.Call(t.Context(), sandbox.Call{Export: name})
		wantCode(t, err, abi.NotFound)
	}
}

func TestReturnCodes(t *testing.T) {
	text := `{"code":"late","message":"too late"}`
	build := func(returns int32, set, inWake bool) []byte {
		m := wasmtest.New()
		errorSet := m.Carrel("error_set")
		m.Memory(1)
		m.Data(0, []byte(text))
		body := func(f *wasmtest.Func) {
			if set {
				f.Const(0).Const(int32(len(text))).Call(errorSet).Drop()
			}
			f.Const(returns)
		}
		if inWake {
			body(m.Method(abi.WakeExport))
			m.Method("run").Unreachable()
		} else {
			body(m.Method("run"))
		}
		return m.Bytes()
	}
	s := newSandbox(t, sandbox.Config{})
	for caseName, tc := range map[string]struct {
		wasm      []byte
		code      abi.Code
		guestCode string
		message   string
	}{
		"0 is success":                              {build(0, false, false), abi.OK, "", ""},
		"7 without an error":                        {build(7, false, false), abi.GuestFailed, "", `the export "run" returned 7`},
		"-1 without an error":                       {build(-1, false, false), abi.GuestFailed, "", "returned -1"},
		"0 with an error fails":                     {build(0, true, false), abi.GuestFailed, "late", "too late"},
		"7 with an error is the error":              {build(7, true, false), abi.GuestFailed, "late", "too late"},
		"carrel_wake that fails ends the call":      {build(7, false, true), abi.GuestFailed, "", `the export "carrel_wake" returned 7`},
		"carrel_wake with an error ends it as well": {build(0, true, true), abi.GuestFailed, "late", "too late"},
	} {
		t.Run(caseName, func(t *testing.T) {
			_, err := open(t, s, tc.wasm).Call(t.Context(), sandbox.Call{Export: "run"})
			wantCode(t, err, tc.code)
			if err != nil {
				if e := asError(t, err); e.GuestCode != tc.guestCode || !strings.Contains(e.Msg, tc.message) {
					t.Errorf("got %q, %q", e.GuestCode, e.Msg)
				}
			}
		})
	}
}

// caller is a guest that makes one host call and returns its answer's length
// as its output.
func caller() []byte {
	m := wasmtest.New()
	call, write := m.Carrel("call"), m.Carrel("output_write")
	m.Memory(1)
	m.Data(0, []byte("op"))
	m.Method("run").Const(8).Const(0).Const(2).Const(0).Const(0).Call(call).Store64().Const(8).Const(8).Call(write)
	m.Method("spin").Loop().Br(0).End().Unreachable()
	m.Method("fine").Const(0)
	return m.Bytes()
}

func TestAGuestThatWaitsKeepsNoSlot(t *testing.T) {
	s := newSandbox(t, sandbox.Config{Slots: 1})
	p := open(t, s, caller())
	depth := 0
	var h *host
	h = &host{do: func(ctx context.Context, _ abi.Op, _ []byte) ([]byte, *sandbox.Refusal) {
		if depth++; depth <= 8 {
			// A call of the same plugin inside the call needs the one slot.
			if _, err := p.Call(ctx, sandbox.Call{Export: "run", Host: h}); err != nil {
				return nil, &sandbox.Refusal{Errno: abi.EIO, Message: err.Error()}
			}
		}
		return []byte("ok"), nil
	}}
	r, err := p.Call(t.Context(), sandbox.Call{Export: "run", Host: h})
	if err != nil || binary.LittleEndian.Uint64(r.Output) != 1<<32|2 || depth != 9 {
		t.Errorf("got %x, %v at depth %d", r.Output, err, depth)
	}
}

func TestWaitingForASlotEndsWithTheContext(t *testing.T) {
	s := newSandbox(t, sandbox.Config{Slots: 1})
	p := open(t, s, caller())
	inside, release := make(chan struct{}), make(chan struct{})
	h := &host{do: func(context.Context, abi.Op, []byte) ([]byte, *sandbox.Refusal) {
		close(inside)
		<-release
		return nil, nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() {
		_, err := p.Call(ctx, sandbox.Call{Export: "run", Host: h})
		waiting <- err
	}()
	<-inside
	// The slot is free, so a spinning guest can take it.
	spinning, stop := context.WithCancel(t.Context())
	spun := make(chan error, 1)
	go func() {
		_, err := p.Call(spinning, sandbox.Call{Export: "spin"})
		spun <- err
	}()
	// Nobody else gets it now.
	for {
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := p.Call(short, sandbox.Call{Export: "fine"})
		cancel()
		if err != nil {
			wantCode(t, err, abi.Timeout)
			break
		}
	}
	cancel()
	close(release)
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("the guest that wanted its slot back: %v", err)
	}
	stop()
	if err := <-spun; !errors.Is(err, context.Canceled) {
		t.Errorf("the guest that spun: %v", err)
	}
	if _, err := p.Call(t.Context(), sandbox.Call{Export: "fine"}); err != nil {
		t.Error(err)
	}
}

func TestTheCauseOfACancellationIsKept(t *testing.T) {
	p := open(t, newSandbox(t, sandbox.Config{}), caller())
	ctx, cancel := context.WithCancelCause(t.Context())
	h := &host{do: func(context.Context, abi.Op, []byte) ([]byte, *sandbox.Refusal) {
		cancel(carrel.Fail("test", abi.Draining, "restarting"))
		return nil, nil
	}}
	_, err := p.Call(ctx, sandbox.Call{Export: "run", Host: h})
	if !errors.Is(err, context.Canceled) || carrel.CodeOf(err) != abi.Draining {
		t.Errorf("got %v", err)
	}
}

func TestCloseWaitsForCalls(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	p := open(t, s, caller())
	inside, release := make(chan struct{}), make(chan struct{})
	h := &host{do: func(context.Context, abi.Op, []byte) ([]byte, *sandbox.Refusal) {
		close(inside)
		<-release
		return []byte("ok"), nil
	}}
	called := make(chan error, 1)
	go func() {
		_, err := p.Call(t.Context(), sandbox.Call{Export: "run", Host: h})
		called <- err
	}()
	<-inside
	closed := make(chan error, 2)
	for range 2 {
		go func() { closed <- p.Close() }()
	}
	for {
		if _, err := p.Call(t.Context(), sandbox.Call{Export: "fine"}); err != nil {
			wantCode(t, err, abi.Draining)
			break
		}
	}
	select {
	case err := <-closed:
		t.Errorf("Close did not wait for the call: %v", err)
	default:
	}
	close(release)
	if err := <-called; err != nil {
		t.Errorf("the call that ran while the plugin was closed: %v", err)
	}
	for range 2 {
		if err := <-closed; err != nil {
			t.Error(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Errorf("closing it again: %v", err)
	}
}

func TestEqualPluginsShareTheirCode(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	a, b := open(t, s, caller()), open(t, s, caller())
	larger, err := s.Open(t.Context(), caller(), sandbox.Setup{MemoryMiB: 64})
	if err != nil {
		t.Fatal(err)
	}
	if n := sandbox.Programs(s); n != 2 {
		t.Errorf("three plugins of two memory sizes have %d programs", n)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Call(t.Context(), sandbox.Call{Export: "fine"}); err != nil {
		t.Errorf("after its twin was closed: %v", err)
	}
	if err := errors.Join(b.Close(), a.Close()); err != nil {
		t.Fatal(err)
	}
	if n := sandbox.Programs(s); n != 1 {
		t.Errorf("one plugin has %d programs", n)
	}
	if _, err := larger.Call(t.Context(), sandbox.Call{Export: "fine"}); err != nil {
		t.Error(err)
	}
}

func TestConcurrentOpeningOfTheSame(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 5 {
				p, err := s.Open(t.Context(), counter().Bytes(), sandbox.Setup{})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := p.Call(t.Context(), sandbox.Call{Export: "run"}); err != nil {
					t.Error(err)
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := sandbox.Programs(s); n != 0 {
		t.Errorf("%d programs are left", n)
	}
}

func TestAClosedSandbox(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	p := open(t, s, caller())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := p.Call(t.Context(), sandbox.Call{Export: "fine"})
	wantCode(t, err, abi.Draining)
	_, err = s.Open(t.Context(), caller(), sandbox.Setup{})
	wantCode(t, err, abi.Draining)
	_, err = s.Admit(t.Context(), sandbox.Candidate{Module: caller()})
	wantCode(t, err, abi.Draining)
}
