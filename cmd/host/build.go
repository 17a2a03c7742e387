package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

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
	mod, err := module.Read(wasm, scaffold.Limits())
	if err != nil {
		return withFaults(path, err)
	}
	raw, _ := mod.Custom(abi.ManifestSection)
	m, err := manifest.Parse(raw, manifest.Known{})
	if err != nil {
		return withFaults(path, err)
	}
	warn(e, m)
	if most := module.DefaultLimits().Bytes; len(wasm) > most {
		fmt.Fprintf(e.stderr, "warning: the module has %d bytes; a host takes %d unless its operator raised limits.moduleBytes\n", len(wasm), most)
	}
	return nil
}

// warnOfSDK says that a project is built with another SDK than this program
// knows: what the documentation shows may not be there.
func warnOfSDK(e env, dir string) error {
	other, err := scaffold.OtherSDK(dir)
	if err != nil || other == "" {
		return err
	}
	fmt.Fprintf(e.stderr, "warning: %s differs from the SDK of this command; carrel build --update-sdk %s replaces it\n", other, dir)
	return nil
}

const (
	// buildPatience is how long a build may take without a word: one whose parts
	// Go has compiled before ends sooner.
	buildPatience = 5 * time.Second
	slowLine      = "Go is compiling; the first time it compiles its standard library for WebAssembly, too, which takes a minute or so"
)

// orSay does work, and prints a line if late tells before it is done.
func orSay(w io.Writer, late <-chan time.Time, line string, work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		return err
	case <-late:
		fmt.Fprintln(w, line)
		return <-done
	}
}

// build builds the project in dir and returns the module's path.
func build(ctx context.Context, e env, dir string) (file string, err error) {
	work := func() error {
		file, err = scaffold.Build(ctx, dir)
		return err
	}
	if sources, _ := filepath.Glob(filepath.Join(dir, "*.go")); len(sources) == 0 {
		err = work()
		return file, err
	}
	late := time.NewTimer(buildPatience)
	defer late.Stop()
	err = orSay(e.stderr, late.C, slowLine, work)
	return file, err
}

func newBuildCommand(e env) *cobra.Command {
	o := output{e: e}
	var updateSDK bool
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
			if updateSDK {
				replaced, err := scaffold.UpdateSDK(dir)
				if err != nil {
					return withFaults(dir, err)
				}
				fmt.Fprintf(e.stderr, "%s is the SDK of this command now\n", replaced)
			} else if err := warnOfSDK(e, dir); err != nil {
				return err
			}
			file, err := build(c.Context(), e, dir)
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
	c.Flags().BoolVar(&updateSDK, "update-sdk", false, "first replace a Go project's carrel-sdk by the SDK of this command")
	return c
}
