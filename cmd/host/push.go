package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/client"
)

func newPushCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	var opts client.UploadOptions
	c := &cobra.Command{
		Use:   "push FILE.wasm|FILE.md|FILE.yaml",
		Short: "Upload a plugin and make it the active version",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			wasm, err := readModule(e, args[0])
			if err != nil {
				return err
			}
			cl, err := n.client()
			if err != nil {
				return err
			}
			up, err := cl.Upload(c.Context(), wasm, opts)
			if err != nil {
				return err
			}
			return o.result(up, func(w io.Writer) { printUploaded(w, up) })
		},
	}
	n.flags(c)
	o.flag(c)
	c.Flags().BoolVar(&opts.Inactive, "inactive", false, "upload without activating")
	c.Flags().BoolVar(&opts.DryRun, "dry-run", false, "only let the host check the module")
	return c
}

// readModule reads a module, or packs the source of a prompt plugin.
func readModule(e env, path string) ([]byte, error) {
	if slices.Contains([]string{".md", ".markdown", ".yaml", ".yml"}, filepath.Ext(path)) {
		wasm, _, err := packFile(e, path)
		return wasm, err
	}
	b, err := os.ReadFile(path) //nolint:gosec // a path that the user names
	if err != nil {
		return nil, fmt.Errorf("read module: %w", err)
	}
	return b, nil
}

func printUploaded(w io.Writer, up client.Uploaded) {
	switch {
	case up.DryRun:
		fmt.Fprintf(w, "%s: the host would take it (digest %.12s)\n", up.Plugin, up.Version.Digest)
	case up.Version.Active:
		fmt.Fprintf(w, "%s: version %d is active (digest %.12s)\n", up.Plugin, up.Version.N, up.Version.Digest)
	default:
		fmt.Fprintf(w, "%s: version %d is stored, not active (digest %.12s)\n", up.Plugin, up.Version.N, up.Version.Digest)
	}
}
