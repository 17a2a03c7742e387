package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/carrelhost/carrel/abi"
)

// hostFunc is a function that a guest imports. a are its arguments as the
// engine passes them: an i32 is the low half. The answer is converted to the
// result type of the signature.
type hostFunc func(ctx context.Context, r *run, a []uint64) int64

// carrelFuncs are the functions of abi.Module, by name.
func carrelFuncs() map[string]hostFunc {
	return map[string]hostFunc{
		"input_len":    inputLen,
		"input_read":   inputRead,
		"output_write": outputWrite,
		"error_set":    errorSet,
		"emit":         notYet,
		"call":         call,
		"open":         notYet,
		"next":         notYet,
		"send":         notYet,
		"close":        closeHandle,
		"read":         readHandle,
		"last_error":   lastError,
		"log":          logLine,
		"deadline_ms":  deadlineMS,
		"now_ns":       nowNS,
		"random":       random,
		"feature":      feature,
	}
}

// rehearsed are the imports that work at admission: those whose answers depend
// on the module's bytes only.
func rehearsed(name string) bool {
	switch name {
	case "input_len", "input_read", "output_write", "log", "now_ns", "random", "last_error":
		return true
	default:
		return false
	}
}

// link puts the modules that rewritten guests import into an engine runtime.
func (s *Sandbox) link(ctx context.Context, runtime wazero.Runtime) error {
	if err := linkHost(ctx, runtime); err != nil {
		return err
	}
	carrel := runtime.NewHostModuleBuilder(abi.Module)
	funcs := carrelFuncs()
	for _, f := range abi.Imports() {
		do := funcs[f.Name]
		if !rehearsed(f.Name) {
			do = notAtAdmission(do)
		}
		export(carrel, f, do)
	}
	if _, err := carrel.Instantiate(ctx); err != nil {
		return fmt.Errorf("sandbox: link %s: %w", abi.Module, err)
	}
	wasi := runtime.NewHostModuleBuilder(abi.WASIModule)
	funcs = wasiFuncs()
	for _, f := range abi.WASIImports() {
		do, ok := funcs[f.Name]
		if !ok {
			do = wasiNoSys
		}
		export(wasi, f, do)
	}
	if _, err := wasi.Instantiate(ctx); err != nil {
		return fmt.Errorf("sandbox: link %s: %w", abi.WASIModule, err)
	}
	return nil
}

func export(b wazero.HostModuleBuilder, f abi.Func, do hostFunc) {
	wide := len(f.Results) == 1 && f.Results[0] == abi.I64
	void := len(f.Results) == 0
	b.NewFunctionBuilder().WithName(f.Name).WithGoModuleFunction(api.GoModuleFunc(
		func(ctx context.Context, _ api.Module, stack []uint64) {
			result := enter(ctx, do, stack)
			switch {
			case void:
			case wide:
				stack[0] = uint64(result)
			default:
				stack[0] = uint64(uint32(int32(result)))
			}
		}), engineTypes(f.Params), engineTypes(f.Results)).Export(f.Name)
}

func engineTypes(types []abi.ValType) []api.ValueType {
	out := make([]api.ValueType, len(types))
	for i, t := range types {
		out[i] = api.ValueType(t)
	}
	return out
}

// enter runs a host function. A guest whose context ended goes no further
// than to its next import; a panic of the host is told apart from a trap.
func enter(ctx context.Context, do hostFunc, stack []uint64) int64 {
	r := runOf(ctx)
	if err := ctx.Err(); err != nil {
		panic(&stop{context: err})
	}
	defer func() {
		switch v := recover().(type) {
		case nil:
		case *stop:
			panic(v)
		default:
			panic(&stop{broken: fmt.Errorf("host panicked: %v\n%s", v, debug.Stack())})
		}
	}()
	r.charge(ctx, importUnits)
	return do(ctx, r, stack)
}

func notYet(_ context.Context, r *run, _ []uint64) int64 {
	return r.refuse(abi.ENOSYS, abi.NotFound, "this host has no streams", "use `call` and write the whole result")
}

func notAtAdmission(do hostFunc) hostFunc {
	return func(ctx context.Context, r *run, a []uint64) int64 {
		if r.admitting {
			return r.refuse(abi.ENOSYS, abi.NotFound,
				"host calls do not work in _initialize, carrel_describe and the warm-up, at admission", "do without its answer there, and ask again in the call")
		}
		return do(ctx, r, a)
	}
}

// refuse keeps what last_error tells and returns the negative errno.
func (r *run) refuse(errno abi.Errno, code abi.Code, message, remedy string) int64 {
	return r.refuseAs(&Refusal{Errno: errno, Code: code.String(), Message: message, Remedy: remedy})
}

func (r *run) refuseAs(f *Refusal) int64 {
	errno := f.Errno
	if errno.String() == "EUNKNOWN" {
		errno = abi.EIO
	}
	// Strings always encode; invalid UTF-8 is replaced.
	r.refusal, _ = json.Marshal(struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Remedy  string `json:"remedy"`
	}{f.Code, f.Message, f.Remedy})
	return -int64(errno)
}

// outside refuses a pointer. what names the argument.
func (r *run) outside(what string) int64 {
	if r.memory == nil {
		return r.refuse(abi.EINVAL, abi.BadRequest, "the module exports no memory", `export the memory as "memory"`)
	}
	return r.refuse(abi.EINVAL, abi.BadRequest, "the "+what+" is not inside the guest's memory", "")
}

// lastError copies as much of the JSON as fits and answers its whole length,
// 0 before the first refusal, so that a guest can come back with more room.
func lastError(ctx context.Context, r *run, a []uint64) int64 {
	dst, ok := r.bytes(uint32(a[0]), uint32(a[1]))
	if !ok {
		// The refusal that the guest asks about is kept.
		return -int64(abi.EINVAL)
	}
	r.copy(ctx, dst, r.refusal, 0)
	return int64(len(r.refusal))
}
