//go:build !linux

package main

import "github.com/rogpeppe/go-internal/testscript"

type held struct{}

func cmdCompiler(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Fatalf("compilers are found on Linux only")
}
