// Package carrel is the Go SDK for plugins: AI services that a Carrel host
// runs in a fresh sandbox per call.
//
// A plugin is a package main with one package-level variable named plugin,
// made of plain values and ordinary functions:
//
//	var plugin = carrel.Plugin{
//		Name:    "hello",
//		Version: "1.0.0",
//		Services: []carrel.Service{{
//			Name:          "com.example.Hello",
//			Scope:         carrel.ScopeRequest,
//			SystemMessage: "You are a nice assistant.",
//			Methods: []carrel.Method{
//				carrel.Chat("chat", carrel.ChatMethod{}),
//				carrel.Handler("greet", "Greets a person by name.", greet),
//			},
//		}},
//	}
//
//	type greetParams struct {
//		Name string `json:"name" desc:"who is greeted"`
//	}
//
//	func greet(ctx *carrel.Context, in greetParams) (string, error) {
//		return "Hello, " + in.Name + "!", nil
//	}
//
//	func main() { plugin.Main() }
//
// A chat method has no code: the host renders its messages, keeps its memory
// and calls the model. A handler is the plugin's own function; the JSON
// Schemas of its params and its output are made of its Go types (see Handler).
//
// # Building
//
// `carrel build` runs the package natively once, where main prints the
// manifest, writes carrel_exports.go with one WebAssembly export for every
// handler, compiles for GOOS=wasip1 with -buildmode=c-shared and embeds the
// manifest. Nothing but Go is needed. In a guest main never runs:
// package-level variables are initialised, and that is all. carrel_exports.go
// also exports carrel_describe, so that a module built by hand with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o hello.wasm .
//
// is complete as well, as long as the file is current.
//
// # What lives how long
//
// The host initialises a module once, when it is uploaded, and starts every
// call from a snapshot of that state (and of the warm-up). What a call writes into variables is
// gone after it; state that must live goes into chat memory. Package-level
// initialisers run under deterministic clock and random stubs and without host
// calls. The generator of math/rand is part of the snapshot and so yields the
// same numbers in every call: use Context.Rand, which is seeded anew for each,
// or crypto/rand.
//
// # Warm-up
//
// Much of what a short call costs is caches that it fills and throws away: the
// codecs of encoding/json, compiled templates, tables. With Plugin.Warmup the
// host calls one handler once, at upload, and starts every call from the state
// that this left:
//
//	Warmup: &carrel.Warmup{Method: "com.example.Hello.greet", Params: greetParams{Name: "Ada"}},
//
// The warm-up runs under the stubs that initialisers run under. One that asks
// the host for anything should go on without the answer; one that fails or
// traps is left out, and `carrel push` says so. A host refuses an upload whose
// warm-up takes longer than 5 s (its limit sandbox.admitTimeout): do less in
// it. Method carreltest.Host.Warmup runs it in a test.
//
// # Tests
//
// The same source compiles natively. Package carreltest calls handlers by
// name against a simulated host.
package carrel
