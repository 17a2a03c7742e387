package invoke_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// step is one operation that a guest is to perform.
type step struct {
	op      abi.Op
	request string // JSON
}

// script is the params object that makes the export `run` perform steps one
// after the other: the guest finds its way by the lengths in front of each.
func script(steps ...step) string {
	var list []string
	for _, s := range steps {
		list = append(list, fmt.Sprintf(`["%03d%06d%s",%s]`, len(s.op), len(s.request), s.op, s.request))
	}
	return `{"steps":[` + strings.Join(list, ",") + `]}`
}

// The memory of a guest.
const (
	inputAt  = 1 << 16
	outputAt = 3 << 20
	pages    = 128
)

// Instructions that the assembler has no names for.
var (
	load8  = []byte{0x2d, 0, 0}
	store8 = []byte{0x3a, 0, 0}
	mul    = byte(0x6c)
	equal  = byte(0x46)
	less64 = []byte{0x42, 0, 0x53} // than 0
	minus  = byte(0x7d)            // of i64
)

// guestModule assembles a plugin of the guests' functions:
//
//	run     performs a script, and writes one line for each step: the result,
//	        or "!", the character behind '@' by the errno, and last_error's JSON
//	echo    writes its input
//	bytes   writes what is no UTF-8
//	trap    traps
//	fail    sets an error
//	odd     returns 7
//	spin    does not end
//	says    logs a line of each level
//	id_*    default memory id providers, which log a line each
func guestModule(manifest string) []byte {
	m := wasmtest.New()
	inputLen, inputRead, outputWrite := m.Carrel("input_len"), m.Carrel("input_read"), m.Carrel("output_write")
	call, read, closeResult, lastError := m.Carrel("call"), m.Carrel("read"), m.Carrel("close"), m.Carrel("last_error")
	errorSet, log := m.Carrel("error_set"), m.Carrel("log")
	m.Memory(pages)
	texts := int32(16)
	text := func(s string) (at, n int32) {
		at, n = texts, int32(len(s))
		m.Data(at, []byte(s))
		texts += n
		return at, n
	}
	write := func(f *wasmtest.Func, s string) {
		at, n := text(s)
		f.Const(at).Const(n).Call(outputWrite).Drop()
	}
	say := func(f *wasmtest.Func, level int32, s string) {
		at, n := text(s)
		f.Const(level).Const(at).Const(n).Call(log).Drop()
	}

	decimal := m.Func([]byte{wasmtest.I32, wasmtest.I32}, []byte{wasmtest.I32}).Locals(1, wasmtest.I32)
	decimal.Block().Loop()
	decimal.Get(1).Eqz().BrIf(1)
	decimal.Get(2).Const(10).Raw(mul).Get(0).Raw(load8...).Const('0').Sub().Add().Set(2)
	decimal.Get(0).Const(1).Add().Set(0)
	decimal.Get(1).Const(1).Sub().Set(1)
	decimal.Br(0).End().End()
	decimal.Get(2)

	const p, opLen, n, request, result, length = 0, 1, 2, 3, 4, 5
	run := m.Method("run").Locals(4, wasmtest.I32).Locals(1, wasmtest.I64).Locals(1, wasmtest.I32)
	run.Const(inputAt).Const(0).Call(inputLen).Call(inputRead).Drop()
	run.Const(inputAt + int32(len(`{"steps":[`))).Set(p)
	run.Block().Loop()
	run.Get(p).Raw(load8...).Const('[').Raw(equal).Eqz().BrIf(1)
	run.Get(p).Const(2).Add().Const(3).Call(decimal.Index).Set(opLen)
	run.Get(p).Const(5).Add().Const(6).Call(decimal.Index).Set(n)
	run.Get(p).Const(13).Add().Get(opLen).Add().Set(request)
	run.Get(p).Const(11).Add().Get(opLen).Get(request).Get(n).Call(call).Set(result)
	run.Get(result).Raw(less64...).If()
	run.Const(outputAt).Const('!').Raw(store8...)
	run.Const(outputAt + 1).Const64(0).Get(result).Raw(minus).Wrap().Const('@').Add().Raw(store8...)
	run.Const(outputAt).Const(outputAt + 2).Const(1 << 20).Call(lastError).Const(2).Add().Call(outputWrite).Drop()
	run.Else()
	run.Get(result).High().Const(0).Const(outputAt).Get(result).Wrap().Call(read).Set(length)
	run.Const(outputAt).Get(length).Call(outputWrite).Drop()
	run.Get(result).High().Call(closeResult).Drop()
	run.End()
	write(run, "\n")
	run.Get(request).Get(n).Add().Const(1).Add().Set(p)
	run.Get(p).Raw(load8...).Const(',').Raw(equal).Get(p).Add().Set(p)
	run.Br(0).End().End()
	run.Const(0)

	echo := m.Method("echo")
	echo.Const(inputAt).Const(0).Call(inputLen).Call(inputRead).Drop()
	echo.Const(inputAt).Call(inputLen).Call(outputWrite).Drop().Const(0)

	bytes := m.Method("bytes")
	write(bytes, "\xff\xfe")
	bytes.Const(0)

	trap := m.Method("trap")
	say(trap, 1, "before the trap")
	trap.Unreachable()

	fail := m.Method("fail")
	at, size := text(`{"code":"out_of_stock","message":"none left"}`)
	fail.Const(at).Const(size).Call(errorSet)

	m.Method("odd").Const(7)
	m.Method("spin").Loop().Br(0).End().Unreachable()

	says := m.Method("says")
	for level := range int32(4) {
		say(says, level, fmt.Sprintf("level %d", level))
	}
	says.Const(0)

	provider := func(name string) *wasmtest.Func {
		f := m.Method(name)
		say(f, 0, "asked for an id")
		return f
	}
	some := provider("id_some")
	write(some, "mine")
	some.Const(0)
	provider("id_none").Const(0)
	bad := provider("id_bad")
	write(bad, "a\nb")
	bad.Const(0)
	long := provider("id_long")
	write(long, strings.Repeat("x", abi.MaxDefaultIDBytes+1))
	long.Const(0)
	provider("id_fail").Const(1)
	provider("id_trap").Unreachable()
	again := provider("id_again") // it asks for the very id that it is asked for
	op, opSize := text(string(abi.OpMemoryDefaultID))
	ask, askSize := text(`{"service":"Req","method":"chat"}`)
	again.Const(op).Const(opSize).Const(ask).Const(askSize).Call(call).Drop()
	write(again, "again")
	again.Const(0)

	thinks := provider("id_model") // it asks a model first
	op, opSize = text(string(abi.OpModelGenerate))
	ask, askSize = text(`{"messages":[{"role":"user","content":"which one?"}]}`)
	thinks.Const(op).Const(opSize).Const(ask).Const(askSize).Call(call).Drop()
	write(thinks, "thought")
	thinks.Const(0)

	return module.AppendCustom(m.Bytes(), abi.ManifestSection, []byte(manifest))
}

// guestManifest is the manifest of a plugin of guests, with more members.
func guestManifest(name, members string) string {
	const chatParams = `{"type":"object","properties":{"id":{"type":"string"},"msg":{"type":"string"}},"required":["msg"]}`
	const required = `{"type":"object","properties":{"id":{"type":"string"},"msg":{"type":"string"}},"required":["id","msg"]}`
	service := func(name, scope, params string) string {
		return fmt.Sprintf(`{"name":%q,"scope":%q,"methods":[{"name":"run","kind":"handler","export":"run"},`+
			`{"name":"chat","kind":"chat","memoryId":"id","params":%s}]}`, name, scope, params)
	}
	handler := func(name, more string) string {
		return fmt.Sprintf(`{"name":%q,"kind":"handler"%s}`, name, more)
	}
	const object = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`
	services := []string{
		service("Req", "request", chatParams), service("Ses", "session", chatParams), service("App", "application", required),
		`{"name":"H","methods":[` + strings.Join([]string{
			handler("echo", `,"export":"echo"`),
			handler("typed", `,"export":"echo","output":`+object),
			handler("strict", `,"export":"echo","params":`+object),
			handler("bytes", `,"export":"bytes"`), handler("trap", `,"export":"trap"`), handler("fail", `,"export":"fail"`),
			handler("odd", `,"export":"odd"`), handler("spin", `,"export":"spin"`), handler("says", `,"export":"says"`),
		}, ",") + `]}`,
	}
	return fmt.Sprintf(`{"abi":"carrel/v1","name":%q,"version":"1","services":[%s]%s}`, name, strings.Join(services, ","), members)
}

// text returns a JSON string.
func text(s string) string {
	b, _ := json.Marshal(s) // strings always encode
	return string(b)
}
