package module

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

const headerSize = 8

// checkHeader tells a core module from the things that people send instead.
func checkHeader(b []byte) error {
	if !bytes.HasPrefix(b, []byte("\x00asm")) {
		return carrel.Fail("module.Read", abi.InvalidModule, notWasm(b))
	}
	if len(b) < headerSize {
		return malformed(len(b), "header", "the file ends inside its 8-byte header; it is cut off")
	}
	version, layer := binary.LittleEndian.Uint16(b[4:]), binary.LittleEndian.Uint16(b[6:])
	switch {
	case layer != 0:
		return malformed(4, "header", "this is a component (layer %d); components are not supported, "+
			"build a core module, for example for the target wasm32-wasip1", layer)
	case version != 1:
		return malformed(4, "header", "WebAssembly version %d is not supported, build a core module of version 1", version)
	}
	return nil
}

func notWasm(b []byte) string {
	text := strings.TrimLeft(string(b[:min(len(b), 256)]), "\ufeff \t\r\n")
	if len(b) == 0 {
		return "the file is empty; send a WebAssembly module"
	}
	var what string
	switch {
	case strings.HasPrefix(text, "(module"), strings.HasPrefix(text, ";;"), strings.HasPrefix(text, "(component"):
		what = "this is WebAssembly text; assemble it first, for example with wat2wasm"
	case strings.HasPrefix(text, "{"), strings.HasPrefix(text, "["):
		what = "this is JSON; a manifest alone is no module, pack it into one first"
	case strings.HasPrefix(text, "---"):
		what = "this is the source of a prompt plugin; pack it into a module first"
	case bytes.HasPrefix(b, []byte("\x7fELF")), bytes.HasPrefix(b, []byte("MZ")),
		bytes.HasPrefix(b, []byte("\xcf\xfa\xed\xfe")), bytes.HasPrefix(b, []byte("\xca\xfe\xba\xbe")):
		what = "this is a native program; build for a WebAssembly target, for example wasm32-wasip1"
	case bytes.HasPrefix(b, []byte("PK\x03\x04")), bytes.HasPrefix(b, []byte("\x1f\x8b")):
		what = "this is an archive; unpack it and send the .wasm file in it"
	case strings.HasPrefix(text, "<"):
		what = "this is HTML or XML; perhaps a download failed"
	default:
		what = "these bytes are not WebAssembly"
	}
	return fmt.Sprintf("%s (a module begins with the bytes 00 61 73 6d; this begins with % x)", what, b[:min(len(b), 4)])
}
