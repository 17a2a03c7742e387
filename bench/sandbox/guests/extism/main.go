//go:build wasip1

// Command extism is the same guest for Extism's plugin contract. It imports
// that by hand and copies in words of 8 bytes, as Extism's own kit for Go does.
package main

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/carrelhost/carrel/bench/sandbox/guests/work"
)

//go:wasmimport extism:host/env input_length
func inputLength() uint64

//go:wasmimport extism:host/env input_load_u8
func inputLoadByte(offset uint64) uint32

//go:wasmimport extism:host/env input_load_u64
func inputLoadWord(offset uint64) uint64

//go:wasmimport extism:host/env alloc
func alloc(n uint64) uint64

//go:wasmimport extism:host/env store_u8
func storeByte(offset uint64, v uint32)

//go:wasmimport extism:host/env store_u64
func storeWord(offset, v uint64)

//go:wasmimport extism:host/env output_set
func outputSet(offset, n uint64)

const word = 8

func input() []byte {
	in := make([]byte, inputLength())
	i := 0
	for ; i+word <= len(in); i += word {
		binary.LittleEndian.PutUint64(in[i:], inputLoadWord(uint64(i)))
	}
	for ; i < len(in); i++ {
		in[i] = byte(inputLoadByte(uint64(i)))
	}
	return in
}

func output(out []byte) {
	at := alloc(uint64(len(out)))
	i := 0
	for ; i+word <= len(out); i += word {
		storeWord(at+uint64(i), binary.LittleEndian.Uint64(out[i:]))
	}
	for ; i < len(out); i++ {
		storeByte(at+uint64(i), uint32(out[i]))
	}
	outputSet(at, uint64(len(out)))
}

//go:wasmexport total
func total() int32 {
	out, err := work.Do(input())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	output(out)
	return 0
}

func main() {}
