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
	"github.com/carrelhost/carrel/plugins/pack"
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
			wasm, asRefused, err := readModule(e, args[0])
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
					return asRefused(err)
				}
				return o.result(a, func(w io.Writer) { fmt.Fprintln(w, a.Digest) })
			}
			up, err := upload(c.Context(), e, cl, wasm, opts)
			if err != nil {
				return asRefused(err)
			}
			report, err := reportOf(up.Version)
			if err != nil {
				return err
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
	c.Flags().VarPF(asked{&status}, "status", "", "say how far an upload is: give its digest in place of a file, and no flag of an upload").NoOptDefVal = "true"
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
	more := ""
	if a.State == client.AdmissionActive || a.State == client.AdmissionStored {
		if more, err = runsHow(ctx, cl, a); err != nil {
			return err
		}
	}
	if err := o.result(a, func(w io.Writer) {
		if a.Problem == nil {
			printAdmission(w, a, more)
			if a.Quarantined != nil {
				fmt.Fprintf(w, "it is quarantined %s, and does not run\n", quarantinedSince(*a.Quarantined))
			}
		}
	}); err != nil || a.Problem == nil {
		return err
	}
	return a.Problem
}

// runsHow is what an uploaded version's report says in short. A version that
// was deleted meanwhile has none.
func runsHow(ctx context.Context, cl *client.Client, a client.Admission) (string, error) {
	v, err := cl.Version(ctx, a.Plugin, a.Digest)
	if errors.Is(err, client.Code(abi.NotFound)) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	r, err := reportOf(v)
	return inShort(r), err
}

// reportOf reads the report of a version.
func reportOf(v client.Version) (r client.Report, err error) {
	if err := json.Unmarshal(v.Report, &r); err != nil {
		return r, fmt.Errorf("read the version's report: %w", err)
	}
	return r, nil
}

// inLines adds the lines of a prompt plugin's source to the faults that a host
// found.
func inLines(lines pack.Lines, err error) error {
	p, ok := errors.AsType[*client.Problem](err)
	if !ok || len(lines) == 0 {
		return err
	}
	out := *p
	out.Detail, out.Errors = lines.Add(p.Detail, p.Errors)
	return &out
}

// readModule reads a module, or packs the source of a prompt plugin. asRefused
// adds to a host's refusal what is known of the sources.
func readModule(e env, path string) (wasm []byte, asRefused func(error) error, err error) {
	if slices.Contains([]string{".md", ".markdown", ".yaml", ".yml"}, filepath.Ext(path)) {
		wasm, lines, err := packLines(e, path)
		return wasm, func(err error) error { return inLines(lines, err) }, err
	}
	if path, err = moduleIn(path); err != nil {
		return nil, nil, err
	}
	b, err := os.ReadFile(path) //nolint:gosec // a path that the user names
	if err != nil {
		return nil, nil, fmt.Errorf("read module: %w", err)
	}
	newer, err := scaffold.Newer(path)
	if err != nil {
		return nil, nil, err
	}
	if newer != "" {
		fmt.Fprintf(e.stderr, "warning: %s is older than %s; carrel build %s builds it anew\n", path, newer, filepath.Dir(path))
	}
	return b, func(err error) error { return withBuildHint(path, err) }, nil
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
	a := client.Admission{Plugin: up.Plugin, N: up.Version.N, Digest: up.Version.Digest, State: client.AdmissionStored}
	switch {
	case up.DryRun:
		a.State = client.AdmissionChecked
	case up.Version.Active:
		a.State = client.AdmissionActive
	}
	printAdmission(w, a, inShort(r))
}

// inShort is what an upload prints of a report.
func inShort(r client.Report) string {
	class := ""
	if r.Class != "" { // a host that is older than this program has none
		class = ", class " + r.Class
	}
	return class + ", path " + r.Path
}
