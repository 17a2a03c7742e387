//go:build wasip1

// Command carrel is the Go guest of a Carrel host, without an SDK.
package main

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/carrelhost/carrel/bench/sandbox/guests/work"
)

//go:wasmimport carrel/v1 input_len
func inputLen() int32

//go:wasmimport carrel/v1 input_read
func inputRead(dst unsafe.Pointer, off, n int32) int32

//go:wasmimport carrel/v1 output_write
func outputWrite(src unsafe.Pointer, n int32) int32

// warm is a request that the guest answers as it starts, so that encoding/json
// has seen its types before the first call: an SDK's guests do the like. The
// linker sets it or leaves it empty.
var warm string

func init() { //nolint:gochecknoinits // what a guest does at its start is what is measured
	if warm == "" {
		return
	}
	if _, err := work.Do([]byte(warm)); err != nil {
		panic(err)
	}
}

//go:wasmexport noop
func noop() int32 { return 0 }

//go:wasmexport total
func total() int32 {
	in := make([]byte, inputLen())
	if n := inputRead(unsafe.Pointer(unsafe.SliceData(in)), 0, int32(len(in))); int(n) != len(in) {
		fmt.Fprintln(os.Stderr, "read", n, "bytes of", len(in))
		return 1
	}
	out, err := work.Do(in)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return min(0, outputWrite(unsafe.Pointer(unsafe.SliceData(out)), int32(len(out))))
}

func main() {}
