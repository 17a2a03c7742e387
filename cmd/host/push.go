package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/internal/scaffold"
)

func newPushCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	var opts client.UploadOptions
	var wait, status bool
	c := &cobra.Command{
		Use:   "push FILE.wasm|FILE.md|FILE.yaml|DIR|--status DIGEST",
		Short: "Upload a plugin and make it the active version",
		Long: "Upload a plugin and make it the active version: a module, the source of a prompt\n" +
			"plugin, or the module in the folder of a project that was built. The host goes on\n" +
			"with it if this command is interrupted; push --status DIGEST says how far it is.",
		Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			if status {
				for _, other := range []string{"inactive", "dry-run", "wait"} {
					if c.Flags().Changed(other) {
						return usageError{fmt.Errorf("--status asks about an upload and changes nothing; leave --%s out", other)}
					}
				}
				return pushStatus(c.Context(), n, o, args[0])
			}
			wasm, err := readModule(e, args[0])
			if err != nil {
				return err
			}
			cl, err := n.client()
			if err != nil {
				return err
			}
			if !wait {
				a, err := cl.UploadAsync(c.Context(), wasm, opts)
				if err != nil {
					return err
				}
				return o.result(a, func(w io.Writer) { fmt.Fprintln(w, a.Digest) })
			}
			up, err := upload(c.Context(), e, cl, wasm, opts)
			if err != nil {
				return err
			}
			var report client.Report
			if err := json.Unmarshal(up.Version.Report, &report); err != nil {
				return fmt.Errorf("read the version's report: %w", err)
			}
			printNotes(e.stderr, report)
			return o.result(up, func(w io.Writer) { printUploaded(w, up, report) })
		},
	}
	n.flags(c)
	o.flag(c)
	c.Flags().BoolVar(&opts.Inactive, "inactive", false, "upload without activating")
	c.Flags().BoolVar(&opts.DryRun, "dry-run", false, "only let the host check the module")
	c.Flags().BoolVar(&wait, "wait", true, "wait for the outcome; without it print the digest once the module has arrived")
	c.Flags().VarPF(asked{&status}, "status", "", "say how far the upload with a digest is, which is given instead of a file; only with the flags of all commands").NoOptDefVal = "true"
	return c
}

// pushStatus says how far an upload is. It fails as the upload did.
func pushStatus(ctx context.Context, n connection, o output, digest string) error {
	if _, err := carrel.ParseDigest(digest); err != nil {
		return usageError{err}
	}
	cl, err := n.client()
	if err != nil {
		return err
	}
	a, err := cl.Admission(ctx, digest)
	if errors.Is(err, client.Code(abi.NotFound)) {
		return fmt.Errorf("the host knows no upload with this digest: there was none, the host was restarted, or the version deleted; upload again: %w", errNotFound)
	}
	if err != nil {
		return err
	}
	if err := o.result(a, func(w io.Writer) {
		if a.Problem == nil {
			printAdmission(w, a, "")
			if a.Quarantined != nil {
				fmt.Fprintf(w, "it is quarantined %s, and does not run\n", quarantinedSince(*a.Quarantined))
			}
		}
	}); err != nil || a.Problem == nil {
		return err
	}
	return a.Problem
}

// readModule reads a module, or packs the source of a prompt plugin.
func readModule(e env, path string) ([]byte, error) {
	if slices.Contains([]string{".md", ".markdown", ".yaml", ".yml"}, filepath.Ext(path)) {
		wasm, _, err := packFile(e, path)
		return wasm, err
	}
	path, err := moduleIn(path)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(path) //nolint:gosec // a path that the user names
	if err != nil {
		return nil, fmt.Errorf("read module: %w", err)
	}
	newer, err := scaffold.Newer(path)
	if err != nil {
		return nil, err
	}
	if newer != "" {
		fmt.Fprintf(e.stderr, "warning: %s is older than %s; carrel build %s builds it anew\n", path, newer, filepath.Dir(path))
	}
	return b, nil
}

// moduleIn returns the module of a project's folder, or path if it is none.
func moduleIn(path string) (string, error) {
	if about, err := os.Stat(path); err != nil || !about.IsDir() {
		return path, nil //nolint:nilerr // reading it says so better
	}
	modules, err := scaffold.Modules(path)
	if err != nil {
		return "", err
	}
	switch len(modules) {
	case 0:
		return "", usageError{fmt.Errorf("%[1]s is a folder without a module; build it first: carrel build %[1]s", path)}
	case 1:
		return modules[0], nil
	default:
		return "", usageError{fmt.Errorf("%s is a folder with several modules; name one: %s", path, strings.Join(modules, ", "))}
	}
}

func printUploaded(w io.Writer, up client.Uploaded, r client.Report) {
	more := ""
	if r.Class != "" { // a host that is older than this program has none
		more = ", class " + r.Class
	}
	a := client.Admission{Plugin: up.Plugin, N: up.Version.N, Digest: up.Version.Digest, State: client.AdmissionStored}
	switch {
	case up.DryRun:
		a.State = client.AdmissionChecked
	case up.Version.Active:
		a.State = client.AdmissionActive
	}
	printAdmission(w, a, more+", path "+r.Path)
}
