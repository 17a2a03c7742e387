package main

import (
	"os"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// cmdSlow writes a plugin that computes for most of a second when it is
// initialised, which is well within the limit.
func cmdSlow(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: slow FILE")
	}
	const turns = 600_000_000
	m := wasmtest.New()
	m.Memory(1)
	f := m.Func(nil, nil).Locals(1, wasmtest.I32)
	f.Const(turns).Set(0)
	f.Loop().Get(0).Const(1).Sub().Raw(0x22, 0).BrIf(0).End() // local.tee
	m.Start(f)
	m.Method("run").Const(0)
	m.Custom(abi.ManifestSection, []byte(`{"abi":"carrel/v1","name":"slow","version":"1","services":[{"name":"S","methods":[{"name":"run","kind":"handler","export":"run"}]}]}`))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), m.Bytes(), 0o600))
}
