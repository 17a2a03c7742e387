package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/bench/sandbox/guests/work"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/plugins"
)

// guests are the modules that are called, without manifests.
type guests struct {
	golang []byte // a Go guest of carrel/v1: noop and total
	warm   []byte // the same, which has answered a request before its first call
	extism []byte // the cold one for Extism's contract: total
	small  []byte // as a C compiler would make it: noop
}

// The exports of the guests, which are their methods as well.
const (
	noop  = "noop"
	total = "total"
)

// order is what total is asked, and sum what it answers.
const (
	order = `{"name":"order 66","items":[3,1,4,1.5,9,2.6,5,3.5,8,9.7]}`
	sum   = `{"name":"order 66","count":10,"sum":47.3,"mean":4.7299999999999995,"sorted":[1,1.5,2.6,3,3.5,4,5,8,9,9.7]}`
)

// largeItems makes an order of almost 4 KB.
const largeItems = 200

// large returns an order of many numbers with all their digits, and what total
// answers.
func large() (asked, answered string, err error) {
	items := make([]float64, largeItems)
	for i := range items {
		items[i] = math.Sqrt(float64((i*7919)%1009 + 2))
	}
	in, err := json.Marshal(map[string]any{"name": "order of many", "items": items})
	if err != nil {
		return "", "", err
	}
	out, err := work.Do(in) // here it is no guest
	return string(in), string(out), err
}

// build makes the guests, with the Go toolchain of this machine and no network.
func (b *bench) build(ctx context.Context) (guests, error) {
	g := guests{small: small(0)}
	var err error
	for _, m := range []struct {
		into        *[]byte
		name, flags string
	}{{&g.golang, "carrel", ""}, {&g.warm, "carrel", " -X 'main.warm=" + order + "'"}, {&g.extism, "extism", ""}} {
		if *m.into, err = b.buildGo(ctx, m.name, "-s -w"+m.flags); err != nil {
			return g, err
		}
	}
	return g, nil
}

func (b *bench) buildGo(ctx context.Context, name, flags string) ([]byte, error) {
	file := filepath.Join(b.dir, name+".wasm")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildmode=c-shared", "-ldflags="+flags, "-o", file, "./guests/"+name) //nolint:gosec // a path and flags of our own
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOPROXY=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the guest %s: %w: %s", name, err, out)
	}
	return os.ReadFile(file) //nolint:gosec // a path of our own
}

// small is a module with a memory and a method that does nothing, whose code
// differs with its number.
func small(number int32) []byte {
	m := wasmtest.New()
	m.Memory(2)
	m.GlobalOf(wasmtest.I32, "depth") // as a stack pointer
	m.Method("number").Const(number)
	m.Method(noop).Const(0)
	return m.Bytes()
}

const service = "com.example.Bench"

// path is where a host serves a method.
func path(plugin, method string) string {
	return "/api/v1/plugins/" + plugin + "/services/" + service + "/" + method
}

// withManifest makes a plugin of a module, with these of its exports as
// handlers, and the order as the warm-up of one of them, or "".
func withManifest(wasm []byte, name, warmup string, methods ...string) ([]byte, error) {
	type method map[string]any
	var list []method
	for _, m := range methods {
		entry := method{
			"name": m, "kind": abi.KindHandler, "export": m,
			"params": map[string]any{"type": "object", "properties": map[string]any{
				"name":  map[string]any{"type": "string"},
				"items": map[string]any{"type": "array", "items": map[string]any{"type": "number"}},
			}},
		}
		if m == total { // the other one writes nothing
			entry["output"] = map[string]any{"type": "object"}
		}
		list = append(list, entry)
	}
	whole := map[string]any{
		"abi": abi.Module, "name": name, "version": "1.0.0",
		"services": []any{map[string]any{"name": service, "methods": list}},
	}
	if warmup != "" {
		whole["warmup"] = abi.Warmup{Method: service + "." + warmup, Params: []byte(order)}
	}
	manifest, err := json.Marshal(whole)
	if err != nil {
		return nil, err
	}
	return plugins.Embed(wasm, manifest, module.DefaultLimits())
}
