package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/plugins/manifest"
)

// inspected is what inspect reports.
type inspected struct {
	Manifest json.RawMessage `json:"manifest"`
	Report   client.Report   `json:"report"`
}

func newInspectCommand(e env) *cobra.Command {
	o := output{e: e}
	c := &cobra.Command{
		Use:   "inspect FILE.wasm",
		Short: "Check a module as a host would, without one, and show what it is",
		Long: "Check a module as a host would, without one, and show what it is.\n\n" +
			"The class is the most that its code can reach, whatever it is granted. Each\n" +
			"can reach what those before it can:\n\n" + classes() + "\n" +
			"docs/report.md explains every line, and what to do about it.",
		Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			wasm, err := os.ReadFile(args[0])
			if err != nil {
				return fmt.Errorf("read module: %w", err)
			}
			a, err := admitAlone(c.Context(), e, sandbox.Config{}, wasm)
			if err != nil {
				return withBuildHint(args[0], withFaults(args[0], err))
			}
			encoded, err := manifest.Encode(a.Manifest)
			if err != nil {
				return err
			}
			report, err := asAnswered(a.Report)
			if err != nil {
				return err
			}
			return o.result(inspected{encoded, report}, func(w io.Writer) { printInspected(w, a.Manifest, report) })
		},
	}
	o.flag(c)
	return c
}

func printInspected(w io.Writer, m abi.Manifest, r client.Report) {
	printLine(w, "plugin", fmt.Sprintf("%s %s (%s)", m.Name, m.Version, m.ABI))
	if m.Description != "" {
		printLine(w, "about", m.Description)
	}
	printReport(w, r)
	printList(w, "models", r.Models)
	printList(w, "calls", m.Capabilities.Call)
	for _, s := range m.Services {
		fmt.Fprintf(w, "service   %s (%s scope)\n", s.Name, s.Scope)
		for _, method := range s.Methods {
			memory := ""
			if method.MemoryID != "" {
				memory = ", memory id in " + method.MemoryID
			}
			what := "handler, function " + method.Export
			if method.Kind == abi.KindChat {
				what = "chat with model " + method.Model
				memory += fmt.Sprintf(", window of %d %s", method.Window.Max, method.Window.Type)
				if method.Retain == abi.RetainWindow {
					memory += ", which is all that is kept"
				}
				if n := len(method.Seed); n > 0 {
					memory += ", " + counted(n, "example turn", "example turns")
				}
			}
			fmt.Fprintf(w, "  %s: %s%s\n", method.Name, what, memory)
		}
	}
}
