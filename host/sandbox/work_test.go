package sandbox_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	corpus "github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// The memory of a worker: what is written is at workAt, of workBytes.
const (
	workAt    = sandbox.PageBytes
	workBytes = 17 << 20
)

// worker is a guest that fills its memory and makes one call of an import
// after a host call for a result.
func worker(fill byte, wasi bool, function string, data string, args ...int32) []byte {
	m := wasmtest.New()
	call := m.Carrel("call")
	add := m.Carrel
	if wasi {
		add = m.WASI
	}
	index := add(function)
	m.Memory(1 + workBytes/sandbox.PageBytes)
	m.Data(0, []byte("context"))
	m.Data(8, []byte(data))
	f := m.Method("run")
	f.Const(workAt).Const(int32(fill)).Const(workBytes).Raw(0xfc, 11, 0)
	f.Const(0).Const(7).Const(0).Const(0).Call(call).Drop()
	for _, a := range args {
		f.Const(a)
	}
	f.Call(index).Drop().Const(0)
	return m.Bytes()
}

// looked counts how often somebody looks whether it has ended.
type looked struct {
	context.Context //nolint:containedctx // it is one itself

	times atomic.Int64
}

func (c *looked) Err() error {
	c.times.Add(1)
	return c.Context.Err()
}

// holding is a host whose results have so many bytes.
func holding(n int) *host {
	return &host{
		do:    func(context.Context, abi.Op, []byte) ([]byte, *sandbox.Refusal) { return make([]byte, n), nil },
		knows: func(string) bool { return false },
	}
}

// large are single calls of imports that have the host do much, by how much it
// is, in bytes or whatever else there are many of.
var large = map[string]struct {
	most  int32
	fill  byte
	guest func(fill byte, n int32) []byte
	units float64 // of each
	looks int64   // at least
}{
	"random":       {abi.MaxRandomBytes, 0, func(fill byte, n int32) []byte { return worker(fill, false, "random", "", workAt, n) }, 2, 1},
	"random_get":   {1 << 20, 0, func(fill byte, n int32) []byte { return worker(fill, true, "random_get", "", workAt, n) }, 2, 8},
	"input_read":   {16 << 20, 0, func(fill byte, n int32) []byte { return worker(fill, false, "input_read", "", workAt, 0, n) }, 1. / 8, 8},
	"output_write": {1 << 20, 0, func(fill byte, n int32) []byte { return worker(fill, false, "output_write", "", workAt, n) }, 1. / 8, 1},
	"read":         {16<<20 - 8, 0, func(fill byte, n int32) []byte { return worker(fill, false, "read", "", 1, 0, workAt, n) }, 1. / 8, 8},
	"log":          {64 << 10, 'x', func(fill byte, n int32) []byte { return worker(fill, false, "log", "", 1, workAt, n) }, 4, 1},
	"log of bytes that no character begins with": {64 << 10, 0x80, func(fill byte, n int32) []byte { return worker(fill, false, "log", "", 1, workAt, 2*n) }, 4, 1},
	"call":      {abi.MaxRequestBytes, '1', func(fill byte, n int32) []byte { return worker(fill, false, "call", "", 0, 7, workAt, n) }, 4, 1},
	"error_set": {abi.MaxGuestErrorBytes, '[', func(fill byte, n int32) []byte { return worker(fill, false, "error_set", "", workAt, n) }, 4, 1},
	"fd_write of text": {1 << 20, 'x', func(fill byte, n int32) []byte {
		return worker(fill, true, "fd_write", words(workAt, uint32(n)), 1, 8, 1, 16)
	}, 4, 32},
	"fd_write of lines": {1 << 20, '\n', func(fill byte, n int32) []byte {
		return worker(fill, true, "fd_write", words(workAt, uint32(n)), 1, 8, 1, 16)
	}, 4 + 256, 256},
	"vectors of fd_write": {1024, 0, func(fill byte, n int32) []byte {
		return worker(fill, true, "fd_write", "", 1, workAt, n, 16)
	}, 8, 0},
	"poll_oneoff": {1024, 0, func(fill byte, n int32) []byte {
		return worker(fill, true, "poll_oneoff", "", workAt, workAt+workBytes/2, max(n, 1), 16)
	}, 64, 0},
}

// TestTheHostLooksAtTheTimeWhileItWorks compares one call of an import with
// one that has it do nothing: what the host does more is charged, and it looks
// more often whether the guest's time is over.
func TestTheHostLooksAtTheTimeWhileItWorks(t *testing.T) {
	s := newSandbox(t, sandbox.Config{LogBytes: 64 << 20})
	for caseName, tc := range large {
		t.Run(caseName, func(t *testing.T) {
			do := func(n int32) (fuel, looks int64) {
				t.Helper()
				p := open(t, s, tc.guest(tc.fill, n))
				defer closing(t, p)
				ctx := &looked{Context: t.Context()}
				r, err := p.Call(ctx, sandbox.Call{Export: "run", Input: make([]byte, 16<<20), Host: holding(16<<20 - 8)})
				if err != nil {
					t.Fatal(err)
				}
				return r.Fuel, ctx.times.Load()
			}
			fuel, looks := do(tc.most)
			least, few := do(0)
			n := float64(tc.most)
			if caseName == "poll_oneoff" {
				n-- // there is no poll of nothing
			}
			if want := int64(n * tc.units); fuel-least != want {
				t.Errorf("it was charged %d units, want %d", fuel-least, want)
			}
			if looks-few < tc.looks {
				t.Errorf("the host looked %d times, want %d", looks-few, tc.looks)
			}
		})
	}
}

// ending is a source of randomness that ends a call after some bytes.
type ending struct {
	after, gave int
	end         func()
}

func (e *ending) Read(b []byte) (int, error) {
	if e.gave += len(b); e.gave >= e.after {
		e.end()
	}
	return len(b), nil
}

func TestWhatTheHostDoesEndsWithTheCall(t *testing.T) {
	const after, most = 256 << 10, 1 << 20
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	source := &ending{after: after, end: cancel}
	s := newSandbox(t, sandbox.Config{Random: source})
	_, err := open(t, s, worker(0, true, "random_get", "", workAt, most)).Call(ctx, sandbox.Call{Export: "run", Host: echo()})
	wantCode(t, err, abi.Canceled)
	if source.gave < after || source.gave > after+128<<10 {
		t.Errorf("it got %d bytes, its call ended after %d", source.gave, after)
	}
}

// TestAFullLogCostsNothing checks that what is dropped is not looked at.
func TestAFullLogCostsNothing(t *testing.T) {
	const most = 1000
	for caseName, fill := range map[string]byte{"text": 'x', "lines": '\n', "bytes that are no text": 0xff} {
		t.Run(caseName, func(t *testing.T) {
			s := newSandbox(t, sandbox.Config{LogBytes: most})
			do := func(n uint32) int64 {
				t.Helper()
				r, err := open(t, s, worker(fill, true, "fd_write", words(workAt, n), 1, 8, 1, 16)).Call(t.Context(), sandbox.Call{Export: "run", Host: echo()})
				if err != nil {
					t.Fatal(err)
				}
				return r.Fuel
			}
			if more := do(1<<20) - do(0); more > (most+1)*(4+256/16) {
				t.Errorf("it was charged %d units for a log of %d bytes", more, most)
			}
		})
	}
}

func TestAWriteTakesAMebibyteAtOnce(t *testing.T) {
	const all = 1<<20 + 5
	m := wasmtest.New()
	write, output := m.WASI("fd_write"), m.Carrel("output_write")
	m.Memory(18)
	text := bytes.Repeat([]byte("x"), all)
	text[1<<20-2] = '\n'
	m.Data(0, []byte(words(workAt, all-9, 100, 9)))
	m.Data(100, text[all-9:])
	m.Data(workAt, text[:all-9])
	run := m.Method("run")
	run.Const(1).Const(0).Const(2).Const(32).Call(write).Drop()
	run.Const(32).Const(4).Call(output).Drop()
	// What a library does with the rest.
	run.Const(16).Const(100 + 9 - 5).Store().Const(20).Const(5).Store()
	run.Const(1).Const(16).Const(1).Const(32).Call(write).Drop()
	run.Const(32).Const(4).Call(output)
	r, err := open(t, newSandbox(t, sandbox.Config{LogBytes: 2 << 20}), m.Bytes()).Call(t.Context(), sandbox.Call{Export: "run"})
	if err != nil {
		t.Fatal(err)
	}
	if first, second := binary.LittleEndian.Uint32(r.Output), binary.LittleEndian.Uint32(r.Output[4:]); first != 1<<20 || second != 5 {
		t.Errorf("it took %d and %d bytes", first, second)
	}
	if len(r.Log) != 3 || r.Log[1].Text != "x"+"xxxxx" || !strings.Contains(r.Log[2].Text, "1 lines or parts of lines were dropped") {
		t.Errorf("the log has %d lines, the last of them %.80v", len(r.Log), r.Log[1:])
	}
}

func TestALineIsCutWhateverTheRoom(t *testing.T) {
	s := newSandbox(t, sandbox.Config{LogBytes: 64 << 20})
	for caseName, tc := range map[string]struct {
		wasi     bool
		function string
		data     string
		args     []int32
	}{
		"with log":    {false, "log", "", []int32{1, workAt, 16 << 20}},
		"with stderr": {true, "fd_write", words(workAt, 1<<20), []int32{2, 8, 1, 16}},
	} {
		t.Run(caseName, func(t *testing.T) {
			r, err := open(t, s, worker('x', tc.wasi, tc.function, tc.data, tc.args...)).Call(t.Context(), sandbox.Call{Export: "run", Host: echo()})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Log) != 2 || len(r.Log[0].Text) != 64<<10 || !strings.Contains(r.Log[1].Text, "were dropped") {
				t.Errorf("the log has %d lines, the first of %d bytes", len(r.Log), len(r.Log[0].Text))
			}
		})
	}
}

// TestAFeatureIsJudgedByItsLengthFirst sends names that are both too long and
// no text.
func TestAFeatureIsJudgedByItsLengthFirst(t *testing.T) {
	no := strings.Repeat("\xff", abi.MaxOpBytes+1)
	p := &probe{data: map[int32]string{0: no}, host: echo(), steps: []step{
		{"feature", []int64{0, abi.MaxOpBytes + 1}}, {"feature", []int64{0, abi.MaxOpBytes}}, {"feature", []int64{0, probeBytes}}}}
	got := p.run(t).values
	if len(got) != 3 || got[0] != 0 || got[1] != -int64(abi.EINVAL) || got[2] != 0 {
		t.Errorf("got %d", got)
	}
}

// TestAnErrorOfManyValuesIsNotTakenApart counts what the host allocates.
func TestAnErrorOfManyValuesIsNotTakenApart(t *testing.T) {
	const times, each = 100, 100 << 10
	text := `{"code":"x","message":[` + strings.Repeat("1,", 16_000) + `1]}`
	m := wasmtest.New()
	set := m.Carrel("error_set")
	m.Memory(2)
	m.Data(0, []byte(text))
	run := m.Method("run")
	for range times {
		run.Const(0).Const(int32(len(text))).Call(set).Drop()
	}
	run.Const(0)
	p := open(t, newSandbox(t, sandbox.Config{}), m.Bytes())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := p.Call(t.Context(), sandbox.Call{Export: "run"}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / times; n > each {
		t.Errorf("each took %d bytes", n)
	}
}

// TestAttacksAtTheBoundsOfImports has the host do as much as it does at once,
// again and again, until the fuel or the time is over.
func TestAttacksAtTheBoundsOfImports(t *testing.T) {
	const (
		fuel  = 20_000_000
		limit = 10 * time.Millisecond
		more  = slowness * 50 * time.Millisecond // that the process may compute
	)
	cheap := newSandbox(t, sandbox.Config{Fuel: fuel})
	timed := newSandbox(t, sandbox.Config{})
	for _, a := range corpus.AtBounds() {
		t.Run(a.Name, func(t *testing.T) {
			wasm := a.Plugin()
			call := sandbox.Call{Export: a.Method, Input: make([]byte, 1<<20), Host: &watchful{}}
			p := open(t, cheap, wasm)
			r, err := p.Call(t.Context(), call)
			// The largest request is charged at once.
			if code := carrel.CodeOf(err); code != abi.FuelExhausted || r.Fuel > fuel+5<<20 {
				t.Errorf("it used %d units and ended with %v", r.Fuel, err)
			}
			closing(t, p)
			p = open(t, timed, wasm)
			defer closing(t, p)
			call.Limit = limit
			start := used()
			_, err = p.Call(t.Context(), call)
			took := used() - start
			wantCode(t, err, abi.Timeout)
			t.Logf("the process computed for %v of %v", took, limit)
			if took > limit+more {
				t.Errorf("the process computed for %v of %v", took, limit)
			}
		})
	}
}
