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

// cmdGuest writes a plugin that runs on a path, is named after it, and may
// call its host where more is asked for.
func cmdGuest(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: guest PATH FILE [calls|tools]")
	}
	path, power := args[0], ""
	if len(args) == 3 {
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
	m.Method("run").Const(0)
	capabilities := `{}`
	if power == "tools" {
		capabilities = `{"call":["billing/*"]}`
	}
	manifest := fmt.Sprintf(`{"abi":"carrel/v1","name":%q,"version":"1","capabilities":%s,`+
		`"services":[{"name":"S","methods":[{"name":"run","kind":"handler","export":"run"}]}]}`, path, capabilities)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), module.AppendCustom(slices.Clone(m.Bytes()), abi.ManifestSection, []byte(manifest)), 0o600))
}
