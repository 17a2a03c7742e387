package plugins_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/plugins"
)

// speaker is a plugin whose _initialize writes one text to stderr and whose
// warm-up another, and then traps.
func speaker(begins, warms string) []byte {
	m := wasmtest.New()
	write := m.WASI("fd_write")
	m.Memory(4)
	says := func(f *wasmtest.Func, at int32, text string) {
		m.Data(at, binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(at)+8), uint32(len(text))))
		m.Data(at+8, []byte(text))
		f.Const(2).Const(at).Const(1).Const(0).Call(write).Drop()
	}
	begin := m.Func(nil, nil)
	says(begin, 16, begins)
	m.Export(abi.InitializeExport, wasmtest.FuncKind, begin.Index)
	run := m.Method("run")
	says(run, 128<<10, warms)
	run.Unreachable()
	return withManifest(string(m.Bytes()), `{"abi":"carrel/v1","name":"a","version":"1","warmup":{"method":"S.run"},`+
		`"services":[{"name":"S","methods":[{"name":"run","kind":"handler","export":"run"}]}]}`)
}

func TestAPluginsLogHasItsAdmission(t *testing.T) {
	const trap = "3 the guest trapped in the warm-up: unreachable"
	long := "2 " + strings.Repeat("y", plugins.MaxLogLineBytes) + "…"
	many := strings.Repeat("line\n", 200)
	for name, tc := range map[string]struct {
		begins, warms string
		want          []string // levels and texts
	}{
		"in the order in which it was written": {"ready\n", "learning\n", []string{"2 ready", "2 learning", trap}},
		"no more lines than it takes": {many, many, append(append([]string{fmt.Sprintf("2 %d lines of this admission before these are left out", 401-plugins.MaxAdmissionLines)},
			strings.Split(strings.TrimSuffix(strings.Repeat("2 line\n", plugins.MaxAdmissionLines-1), "\n"), "\n")...), trap)},
		"no more bytes than it takes": {strings.Repeat("x", 20_000) + "\n", strings.Repeat(strings.Repeat("y", 7000)+"\n", 4),
			[]string{"2 2 lines of this admission before these are left out", long, long, long, trap}},
	} {
		t.Run(name, func(t *testing.T) {
			log := newLog(t, 1000)
			l := newLibrary(t, func(c *plugins.Config) { c.Log = log })
			u := plugins.Upload{Tenant: acme, Module: speaker(tc.begins, tc.warms), Activate: true, Request: "req_1", DryRun: true}
			for _, dry := range []bool{true, false} {
				u.DryRun = dry
				if _, err := l.Upload(t.Context(), u); err != nil {
					t.Fatal(err)
				}
				if got := log.After(acme, "a", 0, 10); dry && len(got) > 0 {
					t.Errorf("a dry run wrote %v", got)
				}
			}
			var got []string
			for _, e := range log.After(acme, "a", 0, 1000) {
				first, _, _ := strings.Cut(e.Text, "\n") // a trap has its stack
				got = append(got, fmt.Sprint(e.Level, " ", first))
				if e.Method != plugins.AdmissionMethod || e.Request != carrel.RequestID("req_1") || e.At.IsZero() {
					t.Errorf("got %+v", e)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("got  %.60q\nwant %.60q", got, tc.want)
			}
		})
	}
}
