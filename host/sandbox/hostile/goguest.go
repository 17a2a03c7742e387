package hostile

import (
	"slices"

	"github.com/carrelhost/carrel/abi"
)

// GoSource is the main package of a plugin in Go, to be built as a reactor
// for WASI and to be given to GoAttacks.
const GoSource = `package main

//go:wasmexport fine
func fine() int32 { return 0 }

//go:wasmexport deadlock
func deadlock() int32 {
	<-make(chan int)
	return 0
}

//go:wasmexport goroutines
func goroutines() int32 {
	for {
		go func() { select {} }()
	}
}

//go:wasmexport restless
func restless() int32 {
	c := make(chan int)
	for range 1000 {
		go func() {
			for v := range c {
				go func() { c <- v + 1 }()
			}
		}()
	}
	c <- 0
	select {}
}

//go:wasmexport allocate
func allocate() int32 {
	var all [][]byte
	for {
		all = append(all, make([]byte, 1<<20))
	}
}

//go:wasmexport garbage
func garbage() int32 {
	for n := 0; ; n++ {
		sink = make([]byte, n%100000)
	}
}

//go:wasmexport recurse
func recurse() int32 { return down(1) }

func down(n int32) int32 { return down(n+1) + n }

var sink []byte

func main() {}
`

// GoManifest is that of the plugin of GoSource.
func GoManifest() []byte {
	return Manifest(Plugin, Patience.String(), "", append(goMethods(), Fine)...)
}

func goMethods() []string {
	return []string{"deadlock", "goroutines", "restless", "allocate", "garbage", "recurse"}
}

// GoAttacks are attacks by the plugin of GoSource, built, with its manifest.
func GoAttacks(wasm []byte) []Attack {
	out := make([]Attack, 0, len(goMethods()))
	for _, method := range goMethods() {
		a := Attack{Name: "a guest in Go: " + method, Method: method, Calls: 1, Plugin: func() []byte { return slices.Clone(wasm) }}
		switch method {
		case "deadlock", "allocate", "recurse", "goroutines":
			a.Ends = []abi.Code{abi.GuestTrap, abi.Timeout} // where memory is slow to fill
		default:
			a.Ends, a.Limit = []abi.Code{abi.Timeout}, timeoutLimit
		}
		out = append(out, a)
	}
	return out
}
