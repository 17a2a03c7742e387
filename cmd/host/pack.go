package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/plugins/manifest"
	"github.com/carrelhost/carrel/plugins/pack"
)

// packed is what pack reports.
type packed struct {
	File     string `json:"file"`
	Plugin   string `json:"plugin"`
	Version  string `json:"version"`
	Digest   string `json:"digest"`
	Bytes    int    `json:"bytes"`
	Services int    `json:"services"`
}

func newPackCommand(e env) *cobra.Command {
	o := output{e: e}
	var to string
	c := &cobra.Command{
		Use:   "pack FILE.md|FILE.yaml",
		Short: "Make a prompt plugin, a module without code, of one file",
		Long: "Make a prompt plugin of a Markdown or YAML file: its front matter declares\n" +
			"services and methods, its text is the system message. The result is a module\n" +
			"that a host takes in and nothing of which ever executes.",
		Args: exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			src, err := readSource(args[0])
			if err != nil {
				return err
			}
			wasm, m, err := packSource(e, args[0], src)
			if err != nil {
				return err
			}
			if to == "" {
				base := filepath.Base(args[0])
				to = strings.TrimSuffix(base, filepath.Ext(base)) + ".wasm"
			}
			if err := os.WriteFile(to, wasm, 0o644); err != nil { //nolint:gosec // a module is no secret
				return fmt.Errorf("write module: %w", err)
			}
			p := packed{to, m.Name, m.Version, carrel.DigestOf(wasm).String(), len(wasm), len(m.Services)}
			return o.result(p, func(w io.Writer) {
				fmt.Fprintf(w, "%s: plugin %s %s, %s, %d bytes\n", p.File, p.Plugin, p.Version, counted(p.Services, "service", "services"), p.Bytes)
			})
		},
	}
	c.Flags().StringVarP(&to, "output", "o", "", "file to write (default: the source's name, ending in .wasm)")
	o.flag(c)
	return c
}

// warn prints what the plugin's author will hardly have meant.
func warn(e env, m abi.Manifest) {
	for _, w := range manifest.Warnings(m) {
		fmt.Fprintln(e.stderr, "warning:", w)
	}
}

func readSource(path string) ([]byte, error) {
	src, err := os.ReadFile(path) //nolint:gosec // a path that the user names
	if err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	}
	return src, nil
}

// packLines packs a prompt source, and returns its lines.
func packLines(e env, path string) ([]byte, pack.Lines, error) {
	src, err := readSource(path)
	if err != nil {
		return nil, nil, err
	}
	wasm, _, err := packSource(e, path, src)
	return wasm, pack.SourceLines(filepath.Base(path), src), err
}

// packSource packs a prompt source and warns on stderr of what a host will
// refuse although the module is well-formed.
func packSource(e env, path string, src []byte) ([]byte, abi.Manifest, error) {
	wasm, m, err := pack.Prompt(filepath.Base(path), src)
	if carrel.CodeOf(err) == abi.DefaultIDLeak {
		fmt.Fprintln(e.stderr, "warning: a host will refuse this:", withFaults(path, err))
		err = nil
	}
	if err != nil {
		return nil, m, withFaults(path, err)
	}
	warn(e, m)
	return wasm, m, nil
}
