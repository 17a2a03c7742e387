package module

import (
	"encoding/binary"

	"github.com/carrelhost/carrel/abi"
)

// Empty returns a module without sections: the 8 bytes of the header. The
// caller owns them.
func Empty() []byte { return []byte("\x00asm\x01\x00\x00\x00") }

// AppendCustom appends a custom section to dst, which holds a module, and
// returns the extended slice as append does. The name must be valid UTF-8.
func AppendCustom(dst []byte, name string, data []byte) []byte {
	prefix := binary.AppendUvarint(nil, uint64(len(name)))
	dst = append(dst, sectionCustom)
	dst = binary.AppendUvarint(dst, uint64(len(prefix)+len(name)+len(data)))
	dst = append(dst, prefix...)
	dst = append(dst, name...)
	return append(dst, data...)
}

// Prompt returns the module of a prompt plugin: its manifest and no code. The
// caller owns it.
func Prompt(manifestJSON []byte) []byte {
	return AppendCustom(Empty(), abi.ManifestSection, manifestJSON)
}
