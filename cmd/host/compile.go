package main

import (
	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/host/sandbox"
)

const compileName = "compile-guest"

// newCompileCommand is for the host, not for people: it starts this program
// once more for each module that it compiles.
func newCompileCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:                compileName,
		Short:              "Compile a module for the host that started this",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			return sandbox.CompileChild(c.Context(), args, e.stdin, e.stdout)
		},
	}
}

// compileCommand is host.Config.CompileCommand: nil if this program cannot be
// started once more.
func compileCommand(e env) []string {
	if e.program == "" {
		return nil
	}
	return []string{e.program, compileName}
}
