package module_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// lint reads and lints, as everything does that runs modules.
func lint(b []byte, limits module.Limits) error {
	m, err := module.Read(b, limits)
	if err != nil {
		return err
	}
	return module.Lint(m, limits)
}

// function is a module of one function with this body, without its end.
func function(body string) []byte {
	m := wasmtest.New()
	m.Type([]byte{wasmtest.I32, wasmtest.I32}, nil)
	m.Memory(1)
	m.Func(nil, nil).Raw([]byte(body)...)
	return m.Bytes()
}

func TestLintAcceptsEveryInstruction(t *testing.T) {
	const v128 = "\xfd\x0c0123456789abcdef"
	for caseName, body := range map[string]string{
		"blocks":                 "\x02\x40\x0b\x03\x40\x0b\x02\x7f\x41\x00\x0b\x1a\x41\x00\x04\x40\x05\x0b",
		"a block of a type":      "\x41\x00\x41\x00\x02\x00\x1a\x1a\x0b",
		"branches":               "\x02\x40\x0c\x00\x0b\x02\x40\x41\x00\x0d\x00\x0b\x02\x40\x41\x00\x0e\x02\x00\x00\x01\x0b",
		"calls":                  "\x10\x00\x41\x00\x11\x00\x00",
		"locals and globals":     "\x20\x00\x21\x00\x22\x00\x23\x00\x24\x00",
		"tables and references":  "\x25\x00\x26\x00\xd0\x70\xd1\xd2\x00\x1a",
		"select":                 "\x1b\x1c\x01\x7f",
		"all loads and stores":   each(0x28, 0x3e, func(op byte) string { return string([]byte{op, 0, 0}) }),
		"memory":                 "\x3f\x00\x40\x00\xfc\x08\x00\x00\xfc\x09\x00\xfc\x0a\x00\x00\xfc\x0b\x00",
		"tables":                 "\xfc\x0c\x00\x00\xfc\x0d\x00\xfc\x0e\x00\x00\xfc\x10\x00",
		"constants":              "\x41\xff\xff\xff\xff\x07\x41\x80\x80\x80\x80\x78\x42\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x42\x80\x80\x80\x80\x80\x80\x80\x80\x80\x7f\x43\x00\x00\x00\x00\x44\x00\x00\x00\x00\x00\x00\x00\x00",
		"all numbers":            each(0x45, 0xc4, func(op byte) string { return string([]byte{op}) }),
		"saturating truncations": each(0, 7, func(op byte) string { return string([]byte{0xfc, op}) }),
		"vectors":                v128 + "\xfd\x0d0123456789abcdef\xfd\x0e\xfd\x15\x00\xfd\x22\x0f\xfd\x54\x00\x00\x01\xfd\x5c\x00\x00\xfd\x00\x04\x00\xfd\x0b\x04\x00\xfd\x80\x01\xfd\xff\x01",
		"padded numbers":         "\x41\x80\x80\x80\x80\x00\x10\x80\x80\x80\x80\x00\x41\xff\xff\xff\xff\x7f",
	} {
		t.Run(caseName, func(t *testing.T) {
			if err := lint(function(body), module.DefaultLimits()); err != nil {
				t.Error(err)
			}
		})
	}
}

func each(from, to byte, f func(byte) string) string {
	var b strings.Builder
	for op := int(from); op <= int(to); op++ {
		b.WriteString(f(byte(op)))
	}
	return b.String()
}

func TestLintRefusesMalformedCode(t *testing.T) {
	for caseName, tc := range map[string]struct{ body, message string }{
		"a tail call":                         {"\x12\x00", "tail calls are not supported"},
		"an indirect tail call":               {"\x13\x00\x00", "tail calls"},
		"table.grow":                          {"\xfc\x0f\x00", "table.grow and table.fill are not allowed"},
		"table.fill":                          {"\xfc\x11\x00", "table.grow and table.fill"},
		"an atomic instruction":               {"\xfe\x00\x02\x00", "atomic instructions"},
		"a try block":                         {"\x06\x40\x0b", "exceptions"},
		"try_table":                           {"\x1f\x40\x00\x0b", "exceptions"},
		"throw":                               {"\x08\x00", "exceptions"},
		"call_ref":                            {"\x14\x00", "garbage collection"},
		"struct.new":                          {"\xfb\x00\x00", "garbage collection"},
		"a relaxed vector instruction":        {"\xfd\x80\x02", "relaxed vector"},
		"a vector instruction that is a hole": {"\xfd\x9a\x01", "0xfd 154 is not one"},
		"a padded vector instruction":         {"\xfd\x8c\x00", "padded"},
		"one padded to three bytes":           {"\xfd\x80\x81\x00", "padded"},
		"a padded bulk instruction":           {"\xfc\x8b\x00\x00", "padded"},
		"a bulk instruction of later":         {"\xfc\x12\x00\x00", "0xfc 18"},
		"an instruction that nobody knows":    {"\x27", "0x27"},
		"the last instruction there could be": {"\xff", "0xff"},
		"a memory index in a load":            {"\x28\x42\x01\x00", "more than one memory"},
		"another memory to grow":              {"\x40\x01", "memory index must be 0"},
		"another memory to copy to":           {"\xfc\x0a\x01\x00", "memory index must be 0"},
		"another memory to copy from":         {"\xfc\x0a\x00\x01", "memory index must be 0"},
		"another memory to fill":              {"\xfc\x0b\x01", "memory index must be 0"},
		"another memory to initialise":        {"\xfc\x08\x00\x01", "memory index must be 0"},
		"a block type that is not there":      {"\x02\x07\x0b", "block type 7, but there are 2 types"},
		"a block type below zero":             {"\x02\x63\x0b", "block type -29"},
		"a block type of 33 bits":             {"\x02\xff\xff\xff\xff\x1f\x0b", "block type"},
		"two types of a select":               {"\x1c\x02\x7f\x7f", "select has 2 types"},
		"a select of nothing known":           {"\x1c\x01\x00", "0x00 is not a value type"},
		"a null of nothing known":             {"\xd0\x6e", "0x6e is not a reference type"},
		"a constant of 33 bits":               {"\x41\xff\xff\xff\xff\x0f", "does not fit into 32 bits"},
		"a constant of 65 bits":               {"\x42\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "does not fit into 64 bits"},
		"a constant that does not end":        {"\x41\x80\x80\x80\x80\x80\x00", "does not fit into 32 bits"},
		"an end too many":                     {"\x0b", "left over"},
		"an end too few":                      {"\x02\x40", "instruction is missing"},
		"a constant that is cut off":          {"\x43\x00\x00", "cut off"},
		"a branch table beyond the body":      {"\x0e\xff\x1f\x00", "declares 4095 elements"},
	} {
		t.Run(caseName, func(t *testing.T) {
			wantError(t, lint(function(tc.body), module.DefaultLimits()), abi.InvalidModule, "", tc.message)
		})
	}
}

func TestLintRefusesMalformedSections(t *testing.T) {
	one := section(1, vec(fn("", ""))) + section(3, vec("\x00"))
	body := section(10, vec("\x02\x00\x0b"))
	for caseName, tc := range map[string]struct {
		in      []byte
		message string
	}{
		"a function without code":          {wasm(one), "1 functions are declared, but 0 have code"},
		"code without a function":          {wasm(body), "1 functions have code, but 0 are declared"},
		"a function of no type":            {wasm(section(3, vec("\x00")), body), "type index 0, but there are 0 types"},
		"a body beyond its section":        {wasm(one, section(10, vec("\x09\x00\x0b"))), "the body of function 0 says it is 9 bytes long"},
		"bytes behind a body":              {wasm(one, section(10, vec("\x03\x00\x0b\x01"))), "left over"},
		"bytes behind the code":            {wasm(one, section(10, vec("\x02\x00\x0b")+"\x00")), "left over"},
		"a local of no type":               {wasm(one, section(10, vec("\x04\x01\x01\x6d\x0b"))), "0x6d is not a value type"},
		"a shared memory":                  {wasm(section(5, vec("\x03\x01\x02"))), "a shared memory"},
		"a 64-bit memory":                  {wasm(section(5, vec("\x04\x01"))), "a 64-bit memory"},
		"memory limits that nobody knows":  {wasm(section(5, vec("\x08\x01"))), "limits flag 8"},
		"bytes behind the memory":          {wasm(section(5, vec("\x00\x01")+"\x00")), "left over"},
		"a table of numbers":               {wasm(section(4, vec("\x7f\x00\x01"))), "0x7f is not a reference type"},
		"a 64-bit table":                   {wasm(section(4, vec("\x70\x04\x01"))), "a 64-bit table"},
		"a mutability of 2":                {wasm(section(6, vec("\x7f\x02\x41\x00\x0b"))), "mutability 2"},
		"a global that is computed":        {wasm(section(6, vec("\x7f\x00\x41\x00\x41\x00\x6a\x0b"))), "extended constants"},
		"a global that calls":              {wasm(section(6, vec("\x7f\x00\x10\x00\x0b"))), "0x10 is not constant"},
		"a global of another vector":       {wasm(section(6, vec("\x7b\x00\xfd\x0d0123456789abcdef\x0b"))), "v128.const"},
		"a global that is cut off":         {wasm(section(6, vec("\x7c\x00\x44\x00"))), "cut off"},
		"an export of a tag":               {wasm(section(7, vec(name("e")+"\x04\x00"))), "export kind 4"},
		"an export that is the host's":     {wasm(section(7, vec(name("carrel$g0")+"\x03\x00"))), "names that begin with carrel$ are the host's"},
		"an export that is only a prefix":  {wasm(section(7, vec(name("carrel$")+"\x03\x00"))), "are the host's"},
		"an export's name beyond the end":  {wasm(section(7, "\x01\x7fab")), "says it is 127 bytes long"},
		"elements of kind 8":               {wasm(section(9, vec("\x08\x00"))), "segment kind 8"},
		"elements of another kind":         {wasm(section(9, vec("\x01\x01\x00"))), "element kind must be 0"},
		"elements that are not references": {wasm(section(9, vec("\x05\x7f\x00"))), "not a reference type"},
		"elements that are cut off":        {wasm(section(9, vec("\x00\x41\x00\x0b\x02\x00"))), "declares 2 elements"},
		"data of kind 3":                   {wasm(section(11, vec("\x03\x00"))), "segment kind 3"},
		"data for another memory":          {wasm(section(11, vec("\x02\x01\x41\x00\x0b\x00"))), "memory index must be 0"},
		"data beyond its section":          {wasm(section(11, vec("\x01\x05a"))), "says it is 5 bytes long"},
		"another data count":               {wasm(section(12, "\x02"), section(11, vec("\x01\x00"))), "says 2 segments, but there are 1"},
		"a data count without data":        {wasm(section(12, "\x01")), "says 1 segments, but there are 0"},
	} {
		t.Run(caseName, func(t *testing.T) {
			wantError(t, lint(tc.in, module.DefaultLimits()), abi.InvalidModule, "", tc.message)
		})
	}
}

func TestLintAcceptsAllKindsOfSegments(t *testing.T) {
	for caseName, in := range map[string][]byte{
		"elements": wasm(section(1, vec(fn("", ""))), section(3, vec("\x00")), section(4, vec("\x70\x01\x01\x02")), section(9, vec(
			"\x00\x41\x00\x0b\x01\x00", "\x01\x00\x01\x00", "\x02\x00\x41\x00\x0b\x00\x01\x00", "\x03\x00\x01\x00",
			"\x04\x41\x00\x0b\x01\xd2\x00\x0b", "\x05\x70\x01\xd0\x70\x0b", "\x06\x00\x41\x00\x0b\x70\x01\xd2\x00\x0b", "\x07\x6f\x01\xd0\x6f\x0b")), section(10, vec("\x02\x00\x0b"))),
		"data":    wasm(section(5, vec("\x01\x01\x02")), section(12, "\x03"), section(11, vec("\x00\x41\x00\x0b\x01a", "\x01\x01b", "\x02\x00\x41\x00\x0b\x01c"))),
		"globals": wasm(section(6, vec("\x7f\x01\x41\x7f\x0b", "\x7e\x00\x42\x7f\x0b", "\x7d\x00\x43\x00\x00\x00\x00\x0b", "\x7c\x00\x44\x00\x00\x00\x00\x00\x00\x00\x00\x0b", "\x7b\x00\xfd\x0c0123456789abcdef\x0b", "\x70\x00\xd0\x70\x0b"))),
	} {
		t.Run(caseName, func(t *testing.T) {
			if err := lint(in, module.DefaultLimits()); err != nil {
				t.Error(err)
			}
		})
	}
}

// bodies is a module of n functions that all have this body, without its end,
// behind these groups of locals.
func bodies(n int, params, locals, body string) []byte {
	b := locals + body + "\x0b"
	code := strings.Repeat(name(b), n)
	return wasm(section(1, vec(fn(params, ""))), section(3, leb(uint64(n))+strings.Repeat("\x00", n)), section(10, leb(uint64(n))+code))
}

// TestHostileCode feeds what makes engines slow or large: each is refused at
// once, names its limit with its value, and costs no memory to speak of.
func TestHostileCode(t *testing.T) {
	const (
		huge  = "\xff\xff\xff\xff\x0f"
		block = "\x02\x40\x0b"
		loop  = "\x03\x40\x0b"
		none  = "\x00"
	)
	million := leb(1_000_000)
	for limit, cases := range map[string]map[string][]byte{
		"function.body":           {"a body of a megabyte": bodies(1, "", none, strings.Repeat("\x01", 1<<20))},
		"function.locals":         {"4 billion locals": bodies(1, "", "\x01"+huge+i32, ""), "locals in many groups": bodies(1, "", vec("\xff\x1f"+i32, "\x02"+i64), ""), "4 billion groups": bodies(1, "", huge, ""), "twice 2³¹ locals": bodies(1, "", vec("\x80\x80\x80\x80\x08"+i32, "\x80\x80\x80\x80\x08"+i32), "")},
		"function.nesting":        {"100,000 nested blocks": bodies(1, "", none, strings.Repeat("\x02\x40", 100_000)), "nested ifs": bodies(1, "", none, strings.Repeat("\x41\x00\x04\x40", 50_000))},
		"function.brTable":        {"a branch table of 100,000": bodies(1, "", none, "\x41\x00\x0e"+leb(100_000)+strings.Repeat("\x00", 100_001)), "one of 4 billion": bodies(1, "", none, "\x41\x00\x0e"+huge)},
		"function.loops":          {"2,000 loops": bodies(1, "", none, strings.Repeat(loop, 2000))},
		"function.blocks":         {"80,000 blocks": bodies(1, "", none, strings.Repeat(block, 80_000))},
		"function.localsBlocks":   {"1,000 locals in 500 loops": bodies(1, "", "\x01\xe8\x07"+i32, strings.Repeat(loop, 500)), "100 params in 2,500 blocks": bodies(1, strings.Repeat(i32, 100), none, strings.Repeat(block, 2500))},
		"function.localsBranches": {"500 locals at a branch table of 4,000": bodies(1, "", "\x01\xf4\x03"+i32, "\x41\x00\x0e\xa0\x1f"+strings.Repeat("\x00", 4001)), "600 locals at 3,500 branches": bodies(1, "", "\x01\xd8\x04"+i32, strings.Repeat("\x0c\x00", 3500))},
		"function.brTargets":      {"5 branch tables of 4,000": bodies(1, "", none, strings.Repeat("\x41\x00\x0e\xa0\x1f"+strings.Repeat("\x00", 4001), 5))},
		"function.weight": {
			"400 locals in 490 loops in one another":  bodies(1, "", "\x01\x90\x03"+i32, strings.Repeat("\x03\x40", 490)+strings.Repeat("\x0b", 490)),
			"4,000 locals in 49 loops in one another": bodies(1, "", "\x01\xa0\x1f"+i32, strings.Repeat("\x03\x40", 49)+strings.Repeat("\x0b", 49)),
			"blocks in a nest of loops":               bodies(1, "", "\x01\xe8\x07"+i32, strings.Repeat("\x03\x40", 30)+strings.Repeat(block, 30)+strings.Repeat("\x0b", 30)),
		},
		"module.weight":           {"100 locals in a nest of 200 loops in each of 10 functions": bodies(10, "", "\x01\x64"+i32, strings.Repeat("\x03\x40", 200)+strings.Repeat("\x0b", 200))},
		"module.brTargetsSquared": {"4,000 targets in each of 26 functions": bodies(26, "", none, "\x41\x00\x0e\xa0\x1f"+strings.Repeat("\x00", 4001))},
		"module.jumpsSquared":     {"13,000 branches in one function": bodies(1, "", none, strings.Repeat("\x41\x00\x0d\x00", 13_000)), "1,300 branches in each of 100 functions": bodies(100, "", none, strings.Repeat("\x41\x00\x0d\x00", 1300))},
		"module.indirect": {
			"12,001 calls through a table in each of 5 functions": bodies(5, "", none, strings.Repeat("\x41\x00\x11\x00\x00", 12_001)),
			"16,000 copies of tables in each of 4 functions":      bodies(4, "", none, strings.Repeat("\x41\x00\x41\x00\x41\x00\xfc\x0e\x00\x00", 16_000)),
			"reads and writes of a table":                         bodies(1, "", none, strings.Repeat("\x41\x00\x41\x00\x25\x00\x26\x00", 30_001)),
			"growths of the memory":                               bodies(1, "", none, strings.Repeat("\x41\x00\x40\x00", 60_001)),
			"every bulk operation":                                bodies(3, "", none, strings.Repeat("\xfc\x08\x00\x00\xfc\x0a\x00\x00\xfc\x0b\x00\xfc\x0c\x00\x00", 5001)),
		},
		"module.loopsSquared":  {"500 loops in each of 21 functions": bodies(21, "", none, strings.Repeat(loop, 500))},
		"module.locals":        {"4,000 locals in each of 200 functions": bodies(200, "", "\x01\xa0\x1f"+i32, "")},
		"module.brTable":       {"500 targets in each of 1,100 functions": bodies(1100, "", none, "\x41\x00\x0e\xf4\x03"+strings.Repeat("\x00", 501))},
		"module.localsBlocks":  {"100 locals in 1,500 blocks in each of 30 functions": bodies(30, "", "\x01\x64"+i32, strings.Repeat(block, 1500))},
		"module.blocksSquared": {"3,000 blocks in each of 10 functions": bodies(10, "", none, strings.Repeat(block, 3000))},
		"module.functions":     {"a million functions": bodies(1_000_000, "", none, "")},
		"module.tableMin":      {"a table of 4 billion": wasm(section(4, vec("\x70\x00"+huge))), "the second table": wasm(section(4, vec("\x70\x00\x01", "\x6f\x01\x81\x80\x04\x81\x80\x04")))},
		"module.memoryMin":     {"a memory of 4 GiB": wasm(section(5, vec("\x00\x80\x80\x04")))},
		"module.memories":      {"two memories": wasm(section(5, vec("\x00\x01", "\x00\x01")))},
		"module.globals":       {"a million globals": wasm(section(6, million+strings.Repeat("\x7f\x00\x41\x00\x0b", 1_000_000)))},
		"module.exports":       {"a million exports": wasm(section(7, million+strings.Repeat("\x00\x00\x00", 1_000_000)))},
		"module.elements":      {"a million element segments": wasm(section(9, million+strings.Repeat("\x01\x00\x00", 1_000_000)))},
		"module.elementInits":  {"4 billion elements": wasm(section(9, vec("\x01\x00"+huge))), "a million in 20 segments": wasm(section(9, vec(repeated(20, "\x01\x00"+leb(50_000)+strings.Repeat("\x00", 50_000))...)))},
		"module.dataSegments":  {"a million data segments": wasm(section(11, million+strings.Repeat("\x01\x00", 1_000_000))), "a data count of 4 billion": wasm(section(12, huge))},
		"module.types":         {"a million types": wasm(section(1, million+strings.Repeat("\x60\x00\x00", 1_000_000)))},
	} {
		for caseName, b := range cases {
			t.Run(caseName, func(t *testing.T) {
				var err error
				start := time.Now()
				allocation := allocated(func() { err = lint(b, module.DefaultLimits()) })
				if d := time.Since(start); d > time.Second {
					t.Errorf("it took %v", d)
				}
				if allocation > 1<<18 {
					t.Errorf("it allocated %d bytes for %d", allocation, len(b))
				}
				wantError(t, err, abi.LimitExceeded, limit, "(limit "+limit+")")
				if !strings.ContainsAny(err.Error(), "0123456789") {
					t.Errorf("%v has no value", err)
				}
			})
		}
	}
}

func repeated(n int, s string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}

// TestLimitsAreExact sets each limit to what a module has, then to one less:
// the first is accepted, the second names the limit.
func TestLimitsAreExact(t *testing.T) {
	m := wasmtest.New()
	m.Carrel("input_len")
	m.Memory(3)
	m.Table(5)
	m.Global(0)
	m.Elements(0, 0, 0)
	f := m.Func([]byte{wasmtest.I32}, []byte{wasmtest.I32}).Locals(3, wasmtest.I64).Locals(1, wasmtest.F32)
	f.Block().Loop().Block().Const(0).Raw(0x0e, 2, 0, 1, 2).End().End().End().Const(0).Const(0).Const(0).Raw(0xfc, 11, 0).Get(0)
	m.Data(0, []byte("data"))
	m.Custom("c", nil)
	b := m.Bytes()
	limits := module.DefaultLimits()
	for _, tc := range []struct {
		name  string
		limit *int
		value int
	}{
		{"module.bytes", &limits.Bytes, len(b)},
		{"module.types", &limits.Types, 2},
		{"module.params", &limits.Params, 1},
		{"module.results", &limits.Results, 1},
		{"module.imports", &limits.Imports, 1},
		{"module.functions", &limits.Functions, 1},
		{"module.tables", &limits.Tables, 1},
		{"module.memories", &limits.Memories, 1},
		{"module.globals", &limits.Globals, 1},
		{"module.exports", &limits.Exports, 1},
		{"module.elements", &limits.Elements, 1},
		{"module.dataSegments", &limits.DataSegments, 1},
		{"module.customSections", &limits.CustomSections, 1},
		{"module.tableMin", &limits.TableMin, 5},
		{"module.memoryMin", &limits.MemoryMin, 3},
		{"module.elementInits", &limits.ElementInits, 2},
		{"function.body", &limits.BodyBytes, 33},
		{"function.locals", &limits.Locals, 4},
		{"function.nesting", &limits.Nesting, 3},
		{"function.brTable", &limits.BrTable, 2},
		{"function.loops", &limits.Loops, 1},
		{"function.blocks", &limits.Blocks, 3},
		{"function.localsBlocks", &limits.LocalsBlocks, 18},
		{"function.localsBranches", &limits.LocalsBranches, 36},
		{"function.brTargets", &limits.BrTargets, 2},
		{"function.weight", &limits.Weight, 1200},
		{"module.weight", &limits.SumWeight, 1200},
		{"module.brTargetsSquared", &limits.SumBrTargetsSquared, 4},
		{"module.loopsSquared", &limits.SumLoopsSquared, 1},
		{"module.jumpsSquared", &limits.SumJumpsSquared, 9},
		{"module.indirect", &limits.SumIndirect, 1},
		{"module.locals", &limits.SumLocals, 5},
		{"module.brTable", &limits.SumBrTable, 2},
		{"module.localsBlocks", &limits.SumLocalsBlocks, 18},
		{"module.blocksSquared", &limits.SumBlocksSquared, 9},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := *tc.limit
			defer func() { *tc.limit = before }()
			*tc.limit = tc.value
			if err := lint(b, limits); err != nil {
				t.Errorf("with a limit of %d: %v", tc.value, err)
			}
			*tc.limit--
			wantError(t, lint(b, limits), abi.LimitExceeded, tc.name, fmt.Sprintf("(limit %s)", tc.name))
		})
	}
}

func TestMemoryPages(t *testing.T) {
	for _, pages := range []uint32{0, 1, 300} {
		m := wasmtest.New()
		m.Memory(pages)
		read, err := module.Read(m.Bytes(), module.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if got := read.MemoryPages(); got != int(pages) {
			t.Errorf("got %d pages, want %d", got, pages)
		}
	}
	read, err := module.Read(module.Empty(), module.DefaultLimits())
	if err != nil || read.MemoryPages() != 0 {
		t.Errorf("without a memory: %v", err)
	}
}

// FuzzLint checks that no bytes make Lint panic or allocate.
func FuzzLint(f *testing.F) {
	f.Add(full())
	f.Add(function("\x02\x40\x41\x00\x0e\x01\x00\x00\x0b\xfc\x0b\x00\xfd\x80\x01"))
	f.Add(wasm(section(9, vec("\x04\x41\x00\x0b\x01\xd2\x00\x0b"))))
	limits := module.DefaultLimits()
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := module.Read(b, limits)
		if err != nil {
			return
		}
		if n := allocated(func() { err = module.Lint(m, limits) }); n > 1<<16 {
			t.Errorf("Lint allocated %d bytes for %d", n, len(b))
		}
		if err != nil {
			if c := carrel.CodeOf(err); c != abi.InvalidModule && c != abi.LimitExceeded {
				t.Error(err)
			}
		}
	})
}
