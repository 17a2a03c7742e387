package siege_test

import (
	"fmt"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// slowToCompile is an honest module of much code, that no other n has.
func slowToCompile(n int) []byte { return large(n, 2500) }

func large(n int, functions int32) []byte {
	m := wasmtest.New()
	m.Memory(1)
	for i := range functions {
		f := m.Func([]byte{wasmtest.I32}, []byte{wasmtest.I32})
		f.Get(0)
		for j := range int32(60) {
			f.Const(int32(n)*7919 + i*61 + j).Add().Get(0).Sub()
		}
	}
	m.Method(hostile.Fine).Const(0)
	m.Custom(abi.ManifestSection, hostile.Manifest(largeName(n), "20s", "", hostile.Fine))
	return m.Bytes()
}

func largeName(n int) string { return fmt.Sprintf("large%d", n) }

// small is a module of little code, that no other n has.
func small(n int) []byte {
	m := wasmtest.New()
	m.Memory(1)
	m.Method(hostile.Fine).Const(int32(n)).Drop().Const(0)
	m.Custom(abi.ManifestSection, hostile.Manifest(smallName(n), "20s", "", hostile.Fine))
	return m.Bytes()
}

func smallName(n int) string { return fmt.Sprintf("small%d", n) }
