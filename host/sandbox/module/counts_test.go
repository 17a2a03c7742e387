package module_test

import (
	"strings"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox/module"
)

func TestCounts(t *testing.T) {
	const i32 = "\x7f"
	for name, tc := range map[string]struct {
		sections []string
		want     module.Counts
	}{
		"nothing":                 {nil, module.Counts{}},
		"tables":                  {[]string{section(4, vec("\x70\x00\x90\x4e", "\x70\x01\x05\x07"))}, module.Counts{TableElements: 10_005}},
		"globals":                 {[]string{section(6, vec(i32+"\x01\x41\x00\x0b", i32+"\x00\x41\x07\x0b"))}, module.Counts{Globals: 2}},
		"elements of two bytes":   {[]string{section(9, vec("\x00\x41\x00\x0b\xe4\x00"+strings.Repeat("\x80\x01", 100)))}, module.Counts{Elements: 100 + 6}},
		"a table section cut off": {[]string{section(4, "\x02\x70\x00\x05\x70\x01\x80")}, module.Counts{TableElements: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := module.Read(wasm(tc.sections...), module.DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Counts(); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}
