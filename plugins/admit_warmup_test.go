package plugins_test

import (
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/plugins/manifest"
)

const orderParams = `"params":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`

// withWarmup is a manifest of a handler, a chat method and a warm-up with
// these members.
func withWarmup(members string) string {
	return withPlugin(`"services":[{"name":"com.acme.Shop","methods":[` +
		`{"name":"order","kind":"handler","export":"order",` + orderParams + `},` +
		`{"name":"list","kind":"handler","export":"list"},` +
		`{"name":"chat","kind":"chat"` + msgParams + `}]}],"warmup":` + members)
}

// TestAdmissionReportsTheWarmup sends a module whose handler order traps
// unless its input is the params of the warm-up, byte for byte.
func TestAdmissionReportsTheWarmup(t *testing.T) {
	wasm := func() []byte {
		m := wasmtest.New()
		read, length := m.Carrel("input_read"), m.Carrel("input_len")
		m.Memory(1)
		m.Method("order").Call(length).Const(int32(len(`{"n":7}`))).Raw(0x47).If().Unreachable().End().
			Const(0).Const(0).Const(8).Call(read).Drop().Const(4).Load().Const(0x7d_37_3a).Raw(0x47).If().Unreachable().End().Const(0)
		m.Method("list").Const(3)
		return m.Bytes()
	}
	// talks writes a line in _initialize and, before it fails, some in list.
	talks := func() []byte {
		m := wasmtest.New()
		write := m.WASI("fd_write")
		m.Memory(1)
		m.Data(16, []byte("\x40\x00\x00\x00\x06\x00\x00\x00\x46\x00\x00\x00\x19\x00\x00\x00"))
		m.Data(64, []byte("ready\npanic: empty table\nframe\n"))
		says := func(f *wasmtest.Func, at int32) { f.Const(2).Const(at).Const(1).Const(32).Call(write).Drop() }
		begin := m.Func(nil, nil)
		says(begin, 16)
		m.Export(abi.InitializeExport, wasmtest.FuncKind, begin.Index)
		list := m.Method("list")
		says(list, 24)
		list.Unreachable()
		m.Method("order").Const(0)
		return m.Bytes()
	}
	// places is a module that cannot be set back.
	places := func() []byte {
		m := wasmtest.New()
		m.Table(1)
		m.Method("list").Const(0).Raw(0xd0, 0x70, 0x26, 0).Const(0)
		m.Method("order").Const(0)
		return m.Bytes()
	}
	admit := plugins.NewAdmit(manifest.Known{}, newBox(t))
	for name, tc := range map[string]struct {
		build               func() []byte
		members, want, note string
	}{
		"it has the input of a call": {wasm, `{"method":"com.acme.Shop.order","params": {"n": 7}}`, plugins.WarmupKept, ""},
		"it fails":                   {wasm, `{"method":"com.acme.Shop.list"}`, plugins.WarmupDiscarded, `the warm-up com.acme.Shop.list is left out, and calls begin without it: the warm-up failed (it returned 3)`},
		"it traps":                   {wasm, `{"method":"com.acme.Shop.order","params":{"n":8}}`, plugins.WarmupDiscarded, "the warm-up com.acme.Shop.order is left out, and calls begin without it: the guest trapped in the warm-up: unreachable"},
		"what it wrote itself":       {talks, `{"method":"com.acme.Shop.list"}`, plugins.WarmupDiscarded, "trapped in the warm-up: unreachable; it wrote: panic: empty table | frame"},
		"it has no place": {places, `{"method":"com.acme.Shop.list"}`, plugins.WarmupDiscarded,
			"it: there is no place for a warm-up's state: each call begins with what the module's data says, since an instance of this module cannot be set back to a state that it had (function 0 (list) writes to a table"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := admit(t.Context(), plugins.Candidate{Module: module.AppendCustom(tc.build(), abi.ManifestSection, []byte(withWarmup(tc.members)))})
			if err != nil {
				t.Fatal(err)
			}
			notes := strings.Join(a.Report.Notes, "\n")
			if a.Report.Warmup != tc.want || !strings.Contains(notes, tc.note) || (notes == "") != (tc.note == "") {
				t.Errorf("got %q and %q", a.Report.Warmup, notes)
			}
		})
	}
}
