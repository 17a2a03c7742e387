package module_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// leb encodes an unsigned LEB128 number.
func leb(n uint64) string { return string(binary.AppendUvarint(nil, n)) }

// vec prefixes elements with their count.
func vec(elements ...string) string {
	return leb(uint64(len(elements))) + strings.Join(elements, "")
}

func name(s string) string { return leb(uint64(len(s))) + s }

func section(id byte, body string) string { return string(id) + leb(uint64(len(body))) + body }

func custom(n, body string) string { return section(0, name(n)+body) }

func wasm(sections ...string) []byte {
	return append(module.Empty(), strings.Join(sections, "")...)
}

const (
	i32 = "\x7f"
	i64 = "\x7e"
	f32 = "\x7d"
)

func fn(params, results string) string {
	return "\x60" + name(params) + name(results)
}

func importFn(mod, n string, typ int) string {
	return name(mod) + name(n) + "\x00" + leb(uint64(typ))
}

// full is a small but complete guest: it has every known section, in order.
func full() []byte {
	return wasm(
		custom("producers", "x"),
		section(1, vec(fn("", i32), fn(i32+i32, i32))),
		section(2, vec(importFn(abi.Module, "output_write", 1), importFn(abi.WASIModule, "random_get", 1))),
		section(3, vec("\x00")),
		section(4, vec("\x70\x00\x01")),
		section(5, vec("\x00\x01")),
		section(6, vec("\x7f\x01\x41\x00\x0b")),
		section(7, vec(name("memory")+"\x02\x00", name("run")+"\x00\x02")),
		section(8, "\x02"),
		section(9, vec("\x00\x41\x00\x0b\x01\x02")),
		section(12, "\x01"),
		section(10, vec("\x04\x00\x41\x00\x0b")),
		section(11, vec("\x00\x41\x00\x0b\x01x")),
		custom("name", "\x00"+name(name("mod"))+"\x01"+name(vec("\x02"+name("run")))+"\x02"+name(vec("\x02"+vec("\x00"+name("x"))))),
		custom(abi.ManifestSection, `{"abi":"carrel/v1"}`),
	)
}

func wantError(t *testing.T, err error, code abi.Code, limit, message string) {
	t.Helper()
	e, ok := errors.AsType[*carrel.Error](err)
	if !ok || e.Code != code || e.Limit != limit || !strings.Contains(e.Msg, message) {
		t.Errorf("got %v (limit %q), want %v with …%s… (limit %q)", err, limitOf(err), code, message, limit)
	}
	if e != nil && strings.ContainsFunc(e.Msg, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		t.Errorf("the message has control characters: %q", e.Msg)
	}
}

func limitOf(err error) string {
	if e, ok := errors.AsType[*carrel.Error](err); ok {
		return e.Limit
	}
	return ""
}

func TestReadOfAWholeModule(t *testing.T) {
	b := full()
	m, err := module.Read(b, module.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if !m.HasCode() {
		t.Error("want code")
	}
	if got, ok := m.Custom(abi.ManifestSection); !ok || string(got) != `{"abi":"carrel/v1"}` {
		t.Errorf("got manifest %q, %v", got, ok)
	}
	if _, ok := m.Custom("none"); ok {
		t.Error("there is no section of that name")
	}
	sections := m.Sections()
	if len(sections) != 15 || sections[0].Name != "producers" || sections[0].Offset != 8 || sections[14].End != len(b) {
		t.Errorf("got %+v", sections)
	}
}

func TestPromptModule(t *testing.T) {
	b := module.Prompt([]byte(`{"a":1}`))
	m, err := module.Read(b, module.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if m.HasCode() {
		t.Error("want no code")
	}
	if got, _ := m.Custom(abi.ManifestSection); string(got) != `{"a":1}` {
		t.Errorf("got %q", got)
	}
	b = module.AppendCustom(b, abi.SourceSection, bytes.Repeat([]byte("s"), 300))
	if m, err = module.Read(b, module.DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	if got, _ := m.Custom(abi.SourceSection); len(got) != 300 {
		t.Errorf("got %d bytes", len(got))
	}
	if m, err = module.Read(module.Empty(), module.DefaultLimits()); err != nil || m.HasCode() {
		t.Errorf("an empty module: %v", err)
	}
}

func TestReadAcceptsEveryImportOfTheContract(t *testing.T) {
	for mod, funcs := range map[string][]abi.Func{abi.Module: abi.Imports(), abi.WASIModule: abi.WASIImports()} {
		var types, imports []string
		for i, f := range funcs {
			params, results := "", ""
			for _, p := range f.Params {
				params += string([]byte{byte(p)})
			}
			for _, r := range f.Results {
				results += string([]byte{byte(r)})
			}
			types = append(types, fn(params, results))
			imports = append(imports, importFn(mod, f.Name, i))
		}
		if _, err := module.Read(wasm(section(1, vec(types...)), section(2, vec(imports...))), module.DefaultLimits()); err != nil {
			t.Errorf("%s: %v", mod, err)
		}
	}
}

func TestReadNamesEveryUnknownImport(t *testing.T) {
	types := section(1, vec(fn("", i32), fn(i64+f32, "")))
	for caseName, tc := range map[string]struct {
		imports []string
		want    []string
	}{
		"functions that nobody offers": {
			[]string{importFn("env", "puts", 0), importFn(abi.Module, "input_len", 0), importFn(abi.Module, "steal", 0)},
			[]string{`"env" "puts"`, `"carrel/v1" "steal"`},
		},
		"another version of the contract": {[]string{importFn("carrel/v2", "input_len", 0)}, []string{`"carrel/v2" "input_len"`}},
		"another signature": {
			[]string{importFn(abi.Module, "input_len", 1)},
			[]string{`"carrel/v1" "input_len" (its signature is (i64, f32) -> (), it must be () -> (i32))`},
		},
		"a memory, a table and a global": {
			[]string{name("env") + name("memory") + "\x02\x01\x01\x02", name("env") + name("table") + "\x01\x70\x00\x01",
				name("env") + name("__stack_pointer") + "\x03\x7f\x01", importFn("env", "f", 0)},
			[]string{`"env" "memory" (a memory`, `"env" "table" (a table`, `"env" "__stack_pointer" (a global`, `"env" "f"`},
		},
		"a shared memory":               {[]string{name("env") + name("memory") + "\x02\x03\x01\x02"}, []string{"a memory"}},
		"names with control characters": {[]string{importFn("e\x1b[2J", "\x00", 0)}, []string{`"e\x1b[2J" "\x00"`}},
		"a name without end":            {[]string{importFn("env", strings.Repeat("é", 3000), 0)}, []string{strings.Repeat("é", 50) + `…"`}},
	} {
		t.Run(caseName, func(t *testing.T) {
			_, err := module.Read(wasm(types, section(2, vec(tc.imports...))), module.DefaultLimits())
			for _, w := range tc.want {
				wantError(t, err, abi.UnknownImport, "", w)
			}
		})
	}
	t.Run("more than fifty", func(t *testing.T) {
		var imports []string
		for i := range 60 {
			imports = append(imports, importFn("env", fmt.Sprintf("f%d", i), 0))
		}
		_, err := module.Read(wasm(types, section(2, vec(imports...))), module.DefaultLimits())
		wantError(t, err, abi.UnknownImport, "", `"env" "f49" and 10 more;`)
	})
}

func TestReadRefusesWhatIsNoModule(t *testing.T) {
	for caseName, tc := range map[string]struct{ in, message string }{
		"nothing":           {"", "the file is empty"},
		"text format":       {"  (module (func))", "wat2wasm"},
		"text after remark": {";; hi\n(module)", "wat2wasm"},
		"JSON":              {`{"abi":"carrel/v1"}`, "pack it into one first"},
		"a prompt plugin":   {"---\nname: x\n---\n", "pack it into a module first"},
		"a Linux program":   {"\x7fELF\x02\x01\x01\x00", "native program"},
		"a zip archive":     {"PK\x03\x04\x14\x00", "archive"},
		"a gzip archive":    {"\x1f\x8b\x08\x00", "archive"},
		"a web page":        {"<!doctype html>", "HTML"},
		"other bytes":       {"\x00\x01\x02\x03", "not WebAssembly"},
		"half a magic":      {"\x00as", "not WebAssembly"},
		"half a header":     {"\x00asm\x01\x00", "ends inside its 8-byte header"},
		"a component":       {"\x00asm\x0d\x00\x01\x00", "components are not supported, build a core module"},
		"a later version":   {"\x00asm\x02\x00\x00\x00", "version 2 is not supported"},
	} {
		t.Run(caseName, func(t *testing.T) {
			_, err := module.Read([]byte(tc.in), module.DefaultLimits())
			wantError(t, err, abi.InvalidModule, "", tc.message)
		})
	}
}

func TestReadRefusesMalformedSections(t *testing.T) {
	types := section(1, vec(fn("", i32)))
	for caseName, tc := range map[string]struct {
		in      []byte
		message string
	}{
		"an unknown id":                       {wasm(section(13, "\x00")), "byte 8 (module): section id 13"},
		"a section beyond the end":            {wasm("\x01\x05\x00"), "says it is 5 bytes long, but only 1 follow"},
		"a size that is cut off":              {wasm("\x01\x80"), "section size is missing"},
		"a size of six bytes":                 {wasm("\x01\x80\x80\x80\x80\x80\x00"), "does not fit into 32 bits"},
		"a size of more than 32 bits":         {wasm("\x01\xff\xff\xff\xff\x1f"), "does not fit into 32 bits"},
		"the largest size":                    {wasm("\x01\xff\xff\xff\xff\x0f"), "4294967295 bytes long"},
		"an id and nothing else":              {wasm("\x01"), "section size is missing"},
		"the same section twice":              {wasm(types, types), "second type section"},
		"sections in the wrong order":         {wasm(section(3, vec()), types), "type section comes too late"},
		"the data count behind the code":      {wasm(section(10, vec()), section(12, "\x00")), "data count section comes too late"},
		"two manifests":                       {wasm(custom(abi.ManifestSection, "{}"), custom(abi.ManifestSection, "{}")), `second section "carrel.manifest"`},
		"two sources":                         {wasm(custom(abi.SourceSection, ""), custom(abi.SourceSection, "")), `second section "carrel.source"`},
		"a custom section without a name":     {wasm(section(0, "")), "section name length is missing"},
		"a custom name beyond its section":    {wasm(section(0, "\x05ab")), "section name says it is 5 bytes long"},
		"a custom name that is not UTF-8":     {wasm(custom("\xff", "")), "not valid UTF-8"},
		"a type that is no function":          {wasm(section(1, vec("\x5f\x00"+"\x00"))), "type form 0x5f"},
		"a value type that nobody knows":      {wasm(section(1, vec(fn("\x6e", "")))), "0x6e is not a value type"},
		"bytes behind the types":              {wasm(section(1, vec(fn("", ""))+"\x00")), "1 bytes are left over"},
		"a type index that is not there":      {wasm(types, section(2, vec(importFn(abi.Module, "input_len", 1)))), "type index 1, but there are 1 types"},
		"an import without types":             {wasm(section(2, vec(importFn(abi.Module, "input_len", 0)))), "there are 0 types"},
		"an import of a later kind":           {wasm(types, section(2, vec(name("a")+name("b")+"\x04\x00\x00"))), "import kind 4"},
		"an import name that is not UTF-8":    {wasm(types, section(2, vec(importFn("\xff", "x", 0)))), "not valid UTF-8"},
		"an import that is cut off":           {wasm(types, section(2, "\x01"+name("a")+name("b"))), "import kind is missing"},
		"limits of an unknown kind":           {wasm(section(2, vec(name("a")+name("b")+"\x02\x08\x00"))), "limits flag 8"},
		"bytes behind no exports":             {wasm(section(7, "\x00\x00")), "left over"},
		"a start index with more behind":      {wasm(section(8, "\x00\x00")), "left over"},
		"a name subsection beyond the end":    {wasm(custom("name", "\x01\x05\x00")), "name subsection 1 says it is 5 bytes long"},
		"a function name beyond the end":      {wasm(custom("name", "\x01"+name("\x01\x00\x09a"))), "a name says it is 9 bytes long"},
		"bytes behind the last function name": {wasm(custom("name", "\x01"+name("\x00\x00"))), "left over"},
	} {
		t.Run(caseName, func(t *testing.T) {
			_, err := module.Read(tc.in, module.DefaultLimits())
			wantError(t, err, abi.InvalidModule, "", tc.message)
		})
	}
}

func TestReadOfEveryTruncation(t *testing.T) {
	b := full()
	whole, err := module.Read(b, module.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	ends := map[int]bool{8: true}
	for _, s := range whole.Sections() {
		ends[s.End] = true
	}
	for n := range b {
		_, err := module.Read(b[:n:n], module.DefaultLimits())
		if ends[n] != (err == nil) {
			t.Errorf("cut at byte %d: %v", n, err)
		}
		if err != nil && carrel.CodeOf(err) != abi.InvalidModule {
			t.Errorf("cut at byte %d: %v", n, err)
		}
	}
}

func TestReadAllowsPaddedNumbers(t *testing.T) {
	// Linkers pad sizes to five bytes so that they can fill them in later.
	if _, err := module.Read(wasm("\x01\x81\x80\x80\x80\x00\x00"), module.DefaultLimits()); err != nil {
		t.Error(err)
	}
}
