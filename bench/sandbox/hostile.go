package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

const (
	attacked     = 200 * time.Millisecond // after which a hostile guest has to stop
	attackFor    = 12 * time.Second       // after which its process is ended
	attacksAlone = 10                     // one after the other
	attacksAll   = 3                      // with every slot taken
)

// attackers are guests whose export does not end in a lifetime.
func attackers() []struct {
	name, what string
	wasm       []byte
} {
	return []struct {
		name, what string
		wasm       []byte
	}{
		{"spin", "a loop", spin()},
		{"recursion", "an exponential recursion", recursion()},
		{"fill", "memory.fill of 30 MiB, in straight line", bulk(0x0b, 0)},
		{"copy", "memory.copy of 30 MiB, in straight line", bulk(0x0a, 0, 0)},
	}
}

func spin() []byte {
	m := wasmtest.New()
	m.Memory(1)
	m.Method(total).Loop().Br(0).End().Unreachable()
	return m.Bytes()
}

// recursion is fib(80), which has no loop.
func recursion() []byte {
	m := wasmtest.New()
	m.Memory(1)
	fib := m.Func([]byte{wasmtest.I32}, []byte{wasmtest.I32})
	fib.Get(0).Const(2).Raw(0x48). // i32.lt_s
					Raw(0x04, wasmtest.I32).Get(0).
					Else().Get(0).Const(1).Sub().Call(fib.Index).Get(0).Const(2).Sub().Call(fib.Index).Add().
					End()
	m.Method(total).Const(80).Call(fib.Index)
	return m.Bytes()
}

// bulk is many times the same operation on 30 MiB of memory.
func bulk(op byte, memories ...byte) []byte {
	const pages, times = 480, 10_000
	m := wasmtest.New()
	m.Memory(pages + 1)
	f := m.Method(total)
	for range times {
		f.Const(0).Const(1).Const(pages<<16).Raw(0xfc, op).Raw(memories...)
	}
	f.Const(0)
	return m.Bytes()
}

// stops is what the process of a hostile guest saw.
type stops struct {
	Alone []time.Duration // from the deadline until the call returned
	All   []time.Duration // the same with every slot taken
	Gap   time.Duration   // the longest between two heartbeats
}

// hostile runs each attacker in a process of its own: what does not stop
// freezes it.
func (b *bench) hostile(ctx context.Context) error {
	idle, err := b.observe(ctx, "carrel", "none")
	if err != nil {
		return err
	}
	for _, a := range attackers() {
		ours, err := b.observe(ctx, "carrel", a.name)
		if err != nil {
			return err
		}
		peer, err := b.observe(ctx, "wazero", a.name)
		if err != nil {
			return err
		}
		b.add("stop "+a.what+", after its deadline", ours.stopping(), "wazero fresh, made to look at the context: "+peer.stopping(), "", "≤ 10 ms")
		b.add("the longest gap of the process's heartbeat meanwhile", ours.beating(), "wazero: "+peer.beating()+"; without a guest: "+idle.beating(), "", "≤ 250 ms")
	}
	return nil
}

func (s *stops) stopping() string {
	if s == nil {
		return fmt.Sprintf("**not** within %v; its process was ended", attackFor)
	}
	return fmt.Sprintf("median %s, at most %s; with every slot taken at most %s", shown(median(s.Alone)), shown(longest(s.Alone)), shown(longest(s.All)))
}

func (s *stops) beating() string {
	if s == nil {
		return "**frozen**"
	}
	return shown(s.Gap)
}

func longest(all []time.Duration) time.Duration {
	most := all[0]
	for _, d := range all {
		most = max(most, d)
	}
	return most
}

// observe runs an attacker in a process of its own; nil if that had to be
// ended.
func (b *bench) observe(ctx context.Context, engine, name string) (*stops, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, attackFor)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(limited, self, "-hostile", name, "-engine", engine) //nolint:gosec // this program itself
	cmd.Stderr = &said
	// One thread more than there are CPUs, as `carrel serve` has.
	cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", runtime.NumCPU()+1))
	out, err := cmd.Output()
	if limited.Err() != nil && ctx.Err() == nil {
		return nil, nil //nolint:nilnil // that is the result
	}
	if err != nil {
		return nil, fmt.Errorf("the guest %q in %s: %w: %s", name, engine, err, said.Bytes())
	}
	s := new(stops)
	if err := json.Unmarshal(out, s); err != nil {
		return nil, fmt.Errorf("the guest %q in %s: %w", name, engine, err)
	}
	if len(s.Alone) == 0 || len(s.All) == 0 {
		return nil, errors.New("a process of a hostile guest saw nothing")
	}
	return s, nil
}
