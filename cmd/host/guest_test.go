package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// cmdGuest writes a plugin that runs on a path, is named after it, and where
// more is asked for may call its host, has a warm-up, traps, or takes a second or
// so to compile.
func cmdGuest(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: guest PATH FILE [calls|tools|warmup|large|traps]")
	}
	path, power, warmup, functions := args[0], "", "", 0
	switch {
	case len(args) == 2:
	case args[2] == "warmup":
		warmup = `"warmup":{"method":"S.run"},`
	case args[2] == "large":
		functions = 200
	case args[2] == "traps":
	default:
		power = args[2]
	}
	m := wasmtest.New()
	m.Carrel("output_write")
	if power != "" {
		m.Carrel("call")
	}
	m.Memory(2)
	m.Data(100, []byte("hello"))
	first := m.Func(nil, nil)
	switch path {
	case sandbox.PathReset:
		first.Locals(1, wasmtest.I32).Const(100).Set(0).Loop().Get(0).Const(1).Sub().Raw(0x22, 0).BrIf(0).End()
		m.Export(abi.InitializeExport, wasmtest.FuncKind, first.Index)
	case sandbox.PathImage, sandbox.PathPlain:
		m.Table(1)
		first.Const(0).Raw(0xd0, 0x70, 0x26, 0) // table.set
		m.Name(first.Index, "forget")
		if path == sandbox.PathPlain {
			m.Export(abi.InitializeExport, wasmtest.FuncKind, first.Index)
		}
	default:
		ts.Fatalf("there is no guest for the path %q", path)
	}
	if run := m.Method("run"); len(args) == 3 && args[2] == "traps" {
		run.Unreachable()
	} else {
		run.Const(0)
	}
	for range functions {
		f := m.Func(nil, nil).Locals(1, wasmtest.I32)
		for range 1000 {
			f.Get(0).Const(1).Sub().Set(0)
		}
	}
	capabilities := `{}`
	if power == "tools" {
		capabilities = `{"call":["billing/*"]}`
	}
	manifest := fmt.Sprintf(`{"abi":"carrel/v1","name":%q,"version":"1","capabilities":%s,%s`+
		`"services":[{"name":"S","methods":[{"name":"run","kind":"handler","export":"run"}]}]}`, path, capabilities, warmup)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), module.AppendCustom(slices.Clone(m.Bytes()), abi.ManifestSection, []byte(manifest)), 0o600))
}
