package sandbox_test

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// newSandbox returns a sandbox that the test closes.
func newSandbox(t testing.TB, cfg sandbox.Config) *sandbox.Sandbox {
	t.Helper()
	s, err := sandbox.New(context.Background(), cfg)
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

func open(t testing.TB, s *sandbox.Sandbox, wasm []byte) *sandbox.Plugin {
	t.Helper()
	p, err := s.Open(t.Context(), wasm, sandbox.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func closing(t testing.TB, p *sandbox.Plugin) {
	t.Helper()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// host is a Host made of functions; a nil one is never called.
type host struct {
	do    func(ctx context.Context, op abi.Op, request []byte) ([]byte, *sandbox.Refusal)
	knows func(feature string) bool

	mu   sync.Mutex
	dump []byte
}

const dumpOp = "test.dump"

func (h *host) Do(ctx context.Context, op abi.Op, request []byte) ([]byte, *sandbox.Refusal) {
	if op == dumpOp {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.dump = request
		return nil, nil
	}
	return h.do(ctx, op, request)
}

func (h *host) Knows(feature string) bool { return h.knows(feature) }

// step is one call of an import with these arguments.
type step struct {
	fn   string
	args []int64
}

// The memory of a probe: two pages of test data, one for results and the
// module's own strings.
const (
	probeBytes   = 3 * sandbox.PageBytes // all of it
	resultsAt    = 2 * sandbox.PageBytes
	dumpNameAt   = resultsAt + sandbox.PageBytes/2
	mostOfI32    = 1<<32 - 1 // as a pointer or length: 4 GiB - 1
	beyondMemory = probeBytes + 1
)

// probe is a guest that calls imports one after the other and sends their
// answers, and a part of its memory, to its host.
type probe struct {
	module string // abi.Module unless set
	cfg    sandbox.Config
	input  []byte
	data   map[int32]string
	steps  []step
	show   [2]uint32 // pointer and length of what is sent behind the answers
	host   *host
	silent bool // its host calls are used up at the end: it has no values
}

type answers struct {
	values []int64
	memory []byte
	result sandbox.Result
	err    error
}

func (p *probe) bytes() []byte {
	funcs, add := abi.Imports(), (*wasmtest.Module).Carrel
	if p.module == abi.WASIModule {
		funcs, add = abi.WASIImports(), (*wasmtest.Module).WASI
	}
	m := wasmtest.New()
	send := m.Carrel("call")
	signature, index := map[string]abi.Func{}, map[string]uint32{}
	for _, f := range funcs {
		signature[f.Name] = f
	}
	for _, s := range p.steps {
		if _, ok := index[s.fn]; !ok {
			index[s.fn] = add(m, s.fn)
		}
	}
	m.Memory(3)
	m.Data(dumpNameAt, []byte(dumpOp))
	for at, text := range p.data {
		m.Data(at, []byte(text))
	}
	f := m.Method("run").Locals(1, wasmtest.I64)
	for i, s := range p.steps {
		sig := signature[s.fn]
		f.Const(int32(resultsAt + 8*i))
		for j, a := range s.args {
			if sig.Params[j] == abi.I64 {
				f.Const64(a)
			} else {
				f.Unsigned(uint32(a))
			}
		}
		f.Call(index[s.fn])
		switch {
		case len(sig.Results) == 0:
			f.Const64(0)
		case sig.Results[0] == abi.I32:
			f.Raw(0xac) // i64.extend_i32_s
		}
		f.Store64()
	}
	// What is shown is copied behind the answers and sent with them.
	n := uint32(8 * len(p.steps))
	if p.show[1] > 0 {
		f.Const(int32(resultsAt+n)).Unsigned(p.show[0]).Unsigned(p.show[1]).Raw(0xfc, 10, 0, 0)
	}
	f.Const(dumpNameAt).Const(int32(len(dumpOp))).Const(resultsAt).Unsigned(n + p.show[1]).Call(send).Drop()
	f.Const(0)
	return m.Bytes()
}

func (p *probe) run(t *testing.T) answers {
	t.Helper()
	s := newSandbox(t, p.cfg)
	plugin := open(t, s, p.bytes())
	h := p.host
	if h == nil {
		h = &host{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var a answers
	a.result, a.err = plugin.Call(ctx, sandbox.Call{Export: "run", Input: p.input, Host: h})
	if len(h.dump) < 8*len(p.steps) {
		if a.err == nil && !p.silent {
			t.Fatalf("the probe sent %d bytes", len(h.dump))
		}
		return a
	}
	for i := range p.steps {
		a.values = append(a.values, int64(binary.LittleEndian.Uint64(h.dump[8*i:])))
	}
	a.memory = h.dump[8*len(p.steps):]
	return a
}

func wantCode(t *testing.T, err error, code abi.Code) {
	t.Helper()
	if got := carrel.CodeOf(err); got != code {
		t.Errorf("got %v (%v), want %v", err, got, code)
	}
}
