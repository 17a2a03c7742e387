package hostile

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// Attack is a plugin of which a method attacks when it is called, and the
// method Fine must work before and after.
type Attack struct {
	Name   string          // a sentence, unique among all
	Method string          // that attacks
	Calls  int             // how many calls of it are made at once
	Ends   []abi.Code      // how a call may end
	Limit  string          // the limit that such an end names, but abi.OK and where it may end in several ways; or ""
	Plugin func() []byte   // makes it, of the name Plugin; the caller owns it
	Others []func() []byte // plugins that it calls
}

// The names of plugins.
const (
	Plugin     = "attack"
	Accomplice = "accomplice"
)

// Patience is how long a call of an attack may take by its manifest.
const Patience = 300 * time.Millisecond

// timeoutLimit is what ends a call after Patience.
const timeoutLimit = "limits.timeout"

// Attacks returns the attacks at run time. The caller owns the result.
func Attacks() []Attack {
	return slices.Concat(spins(), stacks(), straightLines(), hostFloods(), wasiAttacks(), ends(), memories(), nested(), badArguments(), crowds(), asking(), unseen(), chases(), leftovers(), AtBounds())
}

// attack is an attack of one call.
func attack(name string, end abi.Code, build func(m *wasmtest.Module) (run func(f *wasmtest.Func))) Attack {
	a := Attack{Name: name, Method: Run, Calls: 1, Ends: []abi.Code{end}, Plugin: func() []byte { return attacking(Plugin, "", build) }}
	if end == abi.Timeout {
		a.Limit = timeoutLimit
	}
	return a
}

// attacking assembles a plugin. run writes the method Run, without its end
// value: what comes after the attack returns 0.
func attacking(name, more string, build func(m *wasmtest.Module) (run func(f *wasmtest.Func))) []byte {
	m := wasmtest.New()
	run := build(m)
	f := m.Method(Run)
	run(f)
	f.Const(0)
	m.Method(Fine).Const(0)
	m.Custom(abi.ManifestSection, Manifest(name, Patience.String(), more, Run, Fine))
	return m.Bytes()
}

// only is for attacks that need nothing but their code.
func only(run func(f *wasmtest.Func)) func(*wasmtest.Module) func(*wasmtest.Func) {
	return func(*wasmtest.Module) func(*wasmtest.Func) { return run }
}

// Worker is an honest plugin: Fine returns at once, and Busy computes for
// about as long as an attack may.
func Worker(name string) []byte {
	m := wasmtest.New()
	now := m.Carrel("now_ns")
	m.Memory(1)
	f := m.Method(Busy).Locals(1, wasmtest.I64).Locals(1, wasmtest.I32)
	f.Call(now).Const64(int64(Patience)).Raw(0x7c).Set(0) // i64.add
	f.Loop()
	f.Const(100_000).Set(1)
	f.Loop().Get(1).Const(1).Sub().Raw(0x22, 1).BrIf(0).End() // local.tee
	f.Call(now).Get(0).Raw(0x53).BrIf(0).End()                // i64.lt_s
	f.Const(0)
	m.Method(Fine).Const(0)
	m.Custom(abi.ManifestSection, Manifest(name, "20s", "", Busy, Fine))
	return m.Bytes()
}

// Stuck is a plugin that never gets through its initialisation.
func Stuck(name string) []byte {
	m := wasmtest.New()
	m.Memory(1)
	f := m.Func(nil, nil)
	f.Loop().Br(0).End()
	m.Export(abi.InitializeExport, wasmtest.FuncKind, f.Index)
	m.Method(Fine).Const(0)
	m.Custom(abi.ManifestSection, Manifest(name, "60s", "", Fine))
	return m.Bytes()
}

// deep is how many levels exponential recursion has: it takes years.
const deep = 60

// exponential adds a function (i32) that calls itself twice for each level
// and has no loop. each, if not nil, writes what it does besides.
func exponential(m *wasmtest.Module, each func(f *wasmtest.Func)) uint32 {
	f := m.Func([]byte{wasmtest.I32}, nil)
	if each != nil {
		each(f)
	}
	f.Get(0).If()
	for range 2 {
		f.Get(0).Const(1).Sub().Call(f.Index)
	}
	f.End()
	return f.Index
}

// subscription is one of WASI's poll to the monotonic clock, for that many
// nanoseconds.
func subscription(ns uint64) []byte {
	s := make([]byte, 48)
	s[16] = 1
	binary.LittleEndian.PutUint64(s[24:], ns)
	return s
}

// dear is an attack that may use up its fuel before its time.
func dear(a Attack) Attack {
	a.Ends = []abi.Code{abi.Timeout, abi.FuelExhausted}
	return a
}

func spins() []Attack {
	loop := func(name string, build func(m *wasmtest.Module) func(f *wasmtest.Func)) Attack {
		return attack(name, abi.Timeout, func(m *wasmtest.Module) func(f *wasmtest.Func) {
			body := build(m)
			return func(f *wasmtest.Func) {
				f.Loop()
				body(f)
				f.Br(0).End()
			}
		})
	}
	return []Attack{
		loop("it spins", only(func(*wasmtest.Func) {})),
		loop("it spins with a host call in the loop", func(m *wasmtest.Module) func(*wasmtest.Func) {
			now := m.Carrel("now_ns")
			return func(f *wasmtest.Func) { f.Call(now).Drop() }
		}),
		loop("it spins in calls of a function", func(m *wasmtest.Module) func(*wasmtest.Func) {
			g := m.Func(nil, nil)
			return func(f *wasmtest.Func) { f.Call(g.Index) }
		}),
		loop("it spins in calls through a table", func(m *wasmtest.Module) func(*wasmtest.Func) {
			g := m.Func(nil, nil)
			m.Table(1)
			m.Elements(0, g.Index)
			typ := m.Type(nil, nil)
			return func(f *wasmtest.Func) { f.Const(0).CallIndirect(typ) }
		}),
		loop("it spins around a nest of loops", only(func(f *wasmtest.Func) { f.Raw([]byte(nest(100))...) })),
		loop("it spins through a branch table", only(func(f *wasmtest.Func) { f.Block().Const(0).Raw(0x0e, 1, 0, 1).End() })),
	}
}

func stacks() []Attack {
	overflows := func(name string, build func(m *wasmtest.Module) func(f *wasmtest.Func)) Attack {
		a := attack(name, abi.GuestTrap, build)
		a.Limit = "sandbox.stack"
		return a
	}
	return []Attack{
		attack("it recurses exponentially, without a loop", abi.Timeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
			twice := exponential(m, nil)
			return func(f *wasmtest.Func) { f.Const(deep).Call(twice) }
		}),
		attack("it recurses exponentially through a table", abi.Timeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
			typ := m.Type([]byte{wasmtest.I32}, nil)
			g := m.Func([]byte{wasmtest.I32}, nil)
			m.Table(1)
			m.Elements(0, g.Index)
			g.Get(0).If()
			for range 2 {
				g.Get(0).Const(1).Sub().Const(0).CallIndirect(typ)
			}
			g.End()
			return func(f *wasmtest.Func) { f.Const(deep).Call(g.Index) }
		}),
		attack("it unwinds a deep recursion again and again", abi.Timeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
			g := m.Func([]byte{wasmtest.I32}, nil)
			g.Get(0).If().Get(0).Const(1).Sub().Call(g.Index).End()
			return func(f *wasmtest.Func) { f.Loop().Const(10_000).Call(g.Index).Br(0).End() }
		}),
		overflows("it recurses without an end", func(m *wasmtest.Module) func(*wasmtest.Func) {
			g := m.Func(nil, []byte{wasmtest.I32})
			g.Call(g.Index).Const(1).Add()
			return func(f *wasmtest.Func) { f.Call(g.Index).Drop() }
		}),
		overflows("it recurses with four thousand locals in each frame", func(m *wasmtest.Module) func(*wasmtest.Func) {
			g := m.Func(nil, []byte{wasmtest.I32}).Locals(4000, wasmtest.V128)
			g.Call(g.Index).Const(1).Add()
			return func(f *wasmtest.Func) { f.Call(g.Index).Drop() }
		}),
		overflows("two functions recurse through a table", func(m *wasmtest.Module) func(*wasmtest.Func) {
			typ := m.Type(nil, []byte{wasmtest.I32})
			g, h := m.Func(nil, []byte{wasmtest.I32}), m.Func(nil, []byte{wasmtest.I32})
			m.Table(2)
			m.Elements(0, g.Index, h.Index)
			g.Const(1).CallIndirect(typ).Const(1).Add()
			h.Const(0).CallIndirect(typ).Const(1).Add()
			return func(f *wasmtest.Func) { f.Call(g.Index).Drop() }
		}),
	}
}

// straightLines are attacks without a loop: each does its work in a function
// that recurses exponentially, so that only checks at entries can stop it.
func straightLines() []Attack {
	const pages = 1024
	recurses := func(name string, build func(m *wasmtest.Module) func(f *wasmtest.Func)) Attack {
		return attack(name+", without a loop", abi.Timeout, func(m *wasmtest.Module) func(f *wasmtest.Func) {
			twice := exponential(m, build(m))
			return func(f *wasmtest.Func) { f.Const(deep).Call(twice) }
		})
	}
	bulk := func(op []byte, args ...int32) func(m *wasmtest.Module) func(f *wasmtest.Func) {
		return func(m *wasmtest.Module) func(*wasmtest.Func) {
			m.Memory(pages / 4)
			return func(f *wasmtest.Func) {
				for range 1000 {
					for _, a := range args {
						f.Const(a)
					}
					f.Raw(op...)
				}
			}
		}
	}
	fill, copies := []byte{0xfc, 11, 0}, []byte{0xfc, 10, 0, 0}
	const all = pages / 4 << 16
	calls := func(name string, args ...int32) func(m *wasmtest.Module) func(f *wasmtest.Func) {
		return func(m *wasmtest.Module) func(*wasmtest.Func) {
			index := m.Carrel(name)
			m.Memory(2)
			return func(f *wasmtest.Func) {
				for range 100 {
					for _, a := range args {
						f.Const(a)
					}
					f.Call(index).Drop()
				}
			}
		}
	}
	return []Attack{
		recurses("it fills 16 MiB a thousand times", bulk(fill, 0, 1, all)),
		recurses("it fills 16 bytes a thousand times", bulk(fill, 0, 1, 16)),
		recurses("it copies 8 MiB a thousand times", bulk(copies, 0, all/2, all/2)),
		recurses("it copies memory onto itself by a byte", bulk(copies, 1, 0, all-1)),
		recurses("it copies 100 bytes a thousand times", bulk(copies, 0, 64, 100)),
		dear(recurses("it grows its memory by nothing", bulk([]byte{0x40, 0, 0x1a}, 0))),
		dear(recurses("it grows its memory by more than there is", bulk([]byte{0x40, 0, 0x1a}, 65535))),
		recurses("it copies a table of 65,536", func(m *wasmtest.Module) func(*wasmtest.Func) {
			m.Table(65536)
			return func(f *wasmtest.Func) {
				for range 1000 {
					f.Const(0).Const(1).Const(65535).Raw(0xfc, 14, 0, 0)
				}
			}
		}),
		recurses("it initialises a table", func(m *wasmtest.Module) func(*wasmtest.Func) {
			m.Table(4096)
			segment := m.PassiveElements(make([]uint32, 4096)...)
			return func(f *wasmtest.Func) {
				for range 1000 {
					f.Const(0).Const(0).Const(4096).Raw(0xfc, 12).Raw(wasmtest.U32(segment)...).Raw(0)
				}
			}
		}),
		recurses("it asks for 64 KiB of randomness", calls("random", 0, 65536)),
		recurses("it logs", calls("log", 1, 0, 65536)),
		recurses("it asks for the time", func(m *wasmtest.Module) func(*wasmtest.Func) {
			now := m.Carrel("now_ns")
			return func(f *wasmtest.Func) {
				for range 100 {
					f.Call(now).Drop()
				}
			}
		}),
	}
}
