package module_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// TestRewriteRefuses what an engine would refuse in the original and accept
// in the rewritten module, where the index names something of the host's.
func TestRewriteRefuses(t *testing.T) {
	guest := func(body string, more ...string) []byte {
		return wasm(append([]string{section(1, vec(fn("", ""))), section(3, vec("\x00"))}, append(more, section(10, vec(name("\x00"+body+"\x0b"))))...)...)
	}
	for caseName, tc := range map[string]struct {
		in      []byte
		message string
	}{
		"a call of no function":              {guest("\x10\x01"), "it calls 1, which is not there"},
		"a call_indirect of no type":         {guest("\x41\x00\x11\x01\x00"), "it calls 1, which is not there"},
		"a reference to no function":         {guest("\xd2\x01\x1a"), "function 1 is not there"},
		"a global to get that is not there":  {guest("\x23\x00\x1a"), "global 0 is not there"},
		"a global to set that is not there":  {guest("\x41\x00\x24\x01"), "global 1 is not there"},
		"a branch beyond the body":           {guest("\x0c\x01"), "it branches to label 1 of 1"},
		"a branch on a condition beyond it":  {guest("\x02\x40\x41\x00\x0d\x02\x0b"), "it branches to label 2 of 2"},
		"a table of branches beyond it":      {guest("\x41\x00\x0e\x01\x00\x01"), "it branches to label 1 of 1"},
		"a branch beyond it in dead code":    {guest("\x00\x0c\x01"), "it branches to label 1 of 1"},
		"a local to get that is not there":   {guest("\x20\x00\x1a"), "it uses local 0 of 0"},
		"a local to set that is not there":   {guest("\x41\x00\x21\x00"), "it uses local 0 of 0"},
		"a local to tee that is not there":   {guest("\x41\x00\x22\x03\x1a"), "it uses local 3 of 0"},
		"an export of no function":           {guest("", section(7, vec(name("e")+"\x00\x01"))), "function 1 is not there"},
		"an export of no global":             {guest("", section(7, vec(name("e")+"\x03\x00"))), "global 0 is not there"},
		"an element of no function":          {guest("", section(4, vec("\x70\x00\x01")), section(9, vec("\x00\x41\x00\x0b\x01\x01"))), "function 1 is not there"},
		"an element expression of none":      {guest("", section(4, vec("\x70\x00\x01")), section(9, vec("\x04\x41\x00\x0b\x01\xd2\x01\x0b"))), "function 1 is not there"},
		"an element's offset by no global":   {guest("", section(4, vec("\x70\x00\x01")), section(9, vec("\x00\x23\x01\x0b\x00"))), "global 1 is not there"},
		"an element's offset by a global":    {guest("", section(4, vec("\x70\x00\x01")), section(6, vec("\x7f\x00\x41\x00\x0b")), section(9, vec("\x00\x23\x00\x0b\x00"))), "element segment 0 is not an i32.const"},
		"a start function that is not there": {guest("", section(8, "\x01")), "function 1 is not there"},
		"a start function with results": {wasm(section(1, vec(fn("", i32))), section(3, vec("\x00")), section(8, "\x00"),
			section(10, vec(name("\x00\x41\x00\x0b")))), "has params or results"},
		"data without a memory":         {wasm(section(11, vec("\x00\x41\x00\x0b\x01a"))), "there is none"},
		"data beyond the memory":        {wasm(section(5, vec("\x00\x01")), section(11, vec("\x00\x41\xff\xff\x03\x0b\x02ab"))), "beyond the memory's 1 pages"},
		"data at a negative address":    {wasm(section(5, vec("\x00\x01")), section(11, vec("\x00\x41\x7f\x0b\x02ab"))), "beyond the memory"},
		"data at a global's address":    {wasm(section(5, vec("\x00\x01")), section(6, vec("\x7f\x00\x41\x00\x0b")), section(11, vec("\x00\x23\x00\x0b\x01a"))), "not an i32.const"},
		"data at an address of 64 bits": {wasm(section(5, vec("\x00\x01")), section(11, vec("\x00\x42\x00\x0b\x01a"))), "not an i32.const"},
	} {
		t.Run(caseName, func(t *testing.T) {
			_, err := rewrite(tc.in, defaultOptions())
			wantError(t, err, abi.InvalidModule, "", tc.message)
			if _, err := newRunner(t, engines()["interpreter"]).original(t, tc.in); err == nil {
				t.Error("an engine takes the original")
			}
		})
	}
}

func TestRewriteLimits(t *testing.T) {
	o := defaultOptions()
	o.MaxPages, o.TableMax = 2, 3
	_, err := rewrite(wasm(section(5, vec("\x00\x03"))), o)
	wantError(t, err, abi.LimitExceeded, "module.memoryMin", "at most 2 are allowed")
	_, err = rewrite(wasm(section(4, vec("\x70\x00\x04"))), o)
	wantError(t, err, abi.LimitExceeded, "module.tableMin", "at most 3 are allowed")
	for _, declared := range []string{"\x00\x01", "\x01\x01\x80\x08"} {
		w := mustRewrite(t, wasm(section(4, vec("\x70"+declared)), section(5, vec(declared))), o)
		if w.MinPages != 1 || w.MaxPages != 2 {
			t.Errorf("got %d to %d pages", w.MinPages, w.MaxPages)
		}
		if !bytes.Contains(w.Code, []byte(section(5, vec("\x01\x01\x02")))) || !bytes.Contains(w.Code, []byte(section(4, vec("\x70\x01\x01\x03")))) {
			t.Errorf("the maximum is not clamped in % x", w.Code)
		}
	}
}

func TestTheSizeOfRewrittenCodeIsBounded(t *testing.T) {
	tiny := bodies(30000, "", "\x00", "\x10\x00") // a call and nothing else
	o := defaultOptions()
	o.GrowthMax = 1000
	_, err := rewrite(tiny, o)
	wantError(t, err, abi.LimitExceeded, "module.rewritten", "(limit module.rewritten)")
	o.GrowthMax = 10 << 20
	w := mustRewrite(t, tiny, o)
	if most := len(tiny)*5/2 + o.GrowthMax; len(w.Code) > most {
		t.Errorf("%d bytes became %d, more than %d", len(tiny), len(w.Code), most)
	}
	o.GrowthMax = len(w.Code) - len(tiny)*5/2
	mustRewrite(t, tiny, o)
	o.GrowthMax--
	_, err = rewrite(tiny, o)
	wantError(t, err, abi.LimitExceeded, "module.rewritten", "too many small functions")
	if n := allocated(func() {
		_, _ = rewrite(bodies(30000, "", "\x00", "\x10\x00"), module.Options{StackBytes: 1, GrowthMax: 1})
	}); n > 1<<24 {
		t.Errorf("it allocated %d bytes for %d", n, len(tiny))
	}
}

// TestChecksAreNoCompileBombs feeds functions that Lint accepts and that take
// minutes to compile if each of their instructions gets a branch.
func TestChecksAreNoCompileBombs(t *testing.T) {
	calls := wasmtest.New()
	f := calls.Func(nil, nil).Locals(4000, i32T)
	for i := range uint32(20_000) {
		f.Call(0).Get(i % 4000).Set(i * 31 % 4000)
	}
	_, err := rewrite(calls.Bytes(), defaultOptions())
	wantError(t, err, abi.LimitExceeded, "function.localsChecks", "split the function")

	fills := wasmtest.New()
	fills.Memory(1)
	f = fills.Func(nil, nil)
	for range 10_000 {
		f.Const(1).Const(2).Const(3).Raw(0xfc, 11, 0).Const(8).Const(1).Const(3).Raw(0xfc, 10, 0, 0)
	}
	fills.Export("run", wasmtest.FuncKind, f.Index)
	w := mustRewrite(t, fills.Bytes(), defaultOptions())
	r := newRunner(t, engines()["compiler"])
	start := time.Now()
	g, err := r.rewritten(t, w)
	if err != nil {
		t.Fatal(err)
	}
	call(t, g, "run")
	if got, _ := g.Memory().Read(0, 12); !bytes.Equal(got, []byte{0, 2, 2, 2, 0, 0, 0, 0, 2, 2, 2, 0}) {
		t.Errorf("the memory is % x", got)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("10,000 fills took %v to compile", d)
	} else {
		t.Logf("10,000 fills took %v to compile", d)
	}
}

// TestRewriteRefusesElementsBeyondTheirTable refuses what engines find only when
// they make an instance, and this one not even then.
func TestRewriteRefusesElementsBeyondTheirTable(t *testing.T) {
	guest := func(tables, elements string) []byte {
		return wasm(section(1, vec(fn("", ""))), section(3, vec("\x00")), section(4, tables), section(9, elements), section(10, vec(name("\x00\x0b"))))
	}
	for caseName, tc := range map[string]struct {
		in      []byte
		message string // "" is none
	}{
		"one in the last place":          {guest(vec("\x70\x00\x02"), vec("\x00\x41\x01\x0b\x01\x00")), ""},
		"none behind it":                 {guest(vec("\x70\x00\x02"), vec("\x00\x41\x02\x0b\x00")), ""},
		"a passive one":                  {guest(vec("\x70\x00\x00"), vec("\x01\x00\x01\x00")), ""},
		"a second one":                   {guest(vec("\x70\x00\x01"), vec("\x00\x41\x00\x0b\x01\x00", "\x00\x41\x01\x0b\x01\x00")), "element segment 1 goes from 1 to 2 in its table, which has 1 elements: build the module with a larger table"},
		"none, at an offset below 0":     {guest(vec("\x70\x00\x01"), vec("\x00\x41\x7f\x0b\x00")), "element segment 0 goes from 4294967295 to 4294967295"},
		"one of two that does not fit":   {guest(vec("\x70\x00\x01"), vec("\x00\x41\x00\x0b\x02\x00\x00")), "element segment 0 goes from 0 to 2"},
		"one beyond the second table":    {guest(vec("\x70\x00\x02", "\x70\x00\x01"), vec("\x02\x01\x41\x01\x0b\x00\x01\x00")), "element segment 0 goes from 1 to 2"},
		"one within the second table":    {guest(vec("\x70\x00\x01", "\x70\x00\x02"), vec("\x02\x01\x41\x01\x0b\x00\x01\x00")), ""},
		"an expression beyond the table": {guest(vec("\x70\x00\x01"), vec("\x04\x41\x01\x0b\x01\xd2\x00\x0b")), "element segment 0 goes from 1 to 2"},
	} {
		t.Run(caseName, func(t *testing.T) {
			m, err := module.Read(tc.in, module.DefaultLimits())
			if err == nil {
				err = module.Lint(m, module.DefaultLimits())
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = module.Rewrite(m, module.Options{})
			if tc.message == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantError(t, err, abi.InvalidModule, "", tc.message)
		})
	}
}
