package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/internal/scaffold"
	"github.com/carrelhost/carrel/plugins/manifest"
)

// built is what build reports.
type built struct {
	File string `json:"file"`
}

// warnOfModule prints the warnings of a module that was built here.
func warnOfModule(e env, path string) error {
	wasm, err := os.ReadFile(path) //nolint:gosec // what was just written
	if err != nil {
		return fmt.Errorf("read module: %w", err)
	}
	mod, err := module.Read(wasm, module.DefaultLimits())
	if err != nil {
		return withFaults(path, err)
	}
	raw, _ := mod.Custom(abi.ManifestSection)
	m, err := manifest.Parse(raw, manifest.Known{})
	if err != nil {
		return withFaults(path, err)
	}
	warn(e, m)
	return nil
}

func newBuildCommand(e env) *cobra.Command {
	o := output{e: e}
	c := &cobra.Command{
		Use:   "build [DIR]",
		Short: "Compile a plugin project, or pack a prompt project, into one module",
		Long: "Compile a plugin project (Go or C), or pack a prompt project, and embed the\n" +
			"manifest. Nothing is downloaded. The module is written into DIR, which is the\n" +
			"current folder if it is left out.",
		Args: wrapArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			file, err := scaffold.Build(c.Context(), dir)
			if err != nil {
				return withFaults(dir, err)
			}
			if err := warnOfModule(e, file); err != nil {
				return err
			}
			return o.result(built{file}, func(w io.Writer) {
				fmt.Fprintf(w, "built %s; next: carrel push %s\n", file, file)
			})
		},
	}
	o.flag(c)
	return c
}
