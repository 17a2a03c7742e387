package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/plugins"
)

// classes lists the capability classes in their order, a line each.
func classes() string {
	var b strings.Builder
	for _, c := range plugins.Classes() {
		fmt.Fprintf(&b, "  %-8s %s\n", c, c.Reach())
	}
	return b.String()
}

// asAnswered returns a report as a host answers with it.
func asAnswered(r plugins.Report) (client.Report, error) {
	var out client.Report
	b, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		return client.Report{}, fmt.Errorf("read the report: %w", err)
	}
	return out, nil
}

// printLine prints one fact of a report under its name.
func printLine(w io.Writer, name string, parts ...string) {
	fmt.Fprintf(w, "%-9s %s\n", name, visible(strings.Join(parts, ", ")))
}

// printList prints a fact that is a list, unless it is empty.
func printList(w io.Writer, name string, items []string) {
	if len(items) > 0 {
		printLine(w, name, strings.Join(items, " "))
	}
}

// printReport prints a report but for its models. Members that an older host
// did not have are left out.
func printReport(w io.Writer, r client.Report) {
	if r.Class != "" {
		printLine(w, "class", r.Class)
	}
	printLine(w, "runs as", r.Path)
	for i, reason := range r.Why {
		if i == 0 {
			printLine(w, "because", reason)
		} else {
			printLine(w, "", reason)
		}
	}
	module := []string{fmt.Sprintf("%d bytes", r.ModuleBytes), fmt.Sprintf("manifest %d", r.ManifestBytes)}
	if r.CustomBytes > 0 {
		module = append(module, fmt.Sprintf("custom sections %d", r.CustomBytes))
	}
	printLine(w, "module", module...)
	if m := r.Measured; m != nil {
		printLine(w, "code", fmt.Sprintf("%d bytes with checks", r.CodeBytes), fmt.Sprintf("data %d", r.DataBytes))
		if im := r.Image; im != nil {
			printLine(w, "image", counted(im.Pages, "page", "pages")+" of 64 KiB", fmt.Sprintf("%d not zero", im.Filled), fmt.Sprintf("%d bytes", im.Bytes))
		}
		printLine(w, "fuel", fmt.Sprintf("%d used by initialisation", r.Fuel))
		if r.Warmup != "" {
			printLine(w, "warmup", r.Warmup)
		}
		printMeasured(w, *m)
	}
	printList(w, "imports", r.Imports)
	printList(w, "exports", r.Exports)
	printNotes(w, r)
}

// printNotes prints what a host does otherwise than the manifest says.
func printNotes(w io.Writer, r client.Report) {
	for _, note := range r.Notes {
		printLine(w, "note", note)
	}
}

func printMeasured(w io.Writer, m client.Measured) {
	took := func(micros int64) string { return (time.Duration(micros) * time.Microsecond).String() }
	parts := []string{"compiled in " + took(m.CompileMicros), "initialised in " + took(m.InitialiseMicros)}
	if m.MachineBytes > 0 {
		parts = append(parts, fmt.Sprintf("machine code %d bytes", m.MachineBytes))
	}
	if m.Restore != "" {
		parts = append(parts, "memory set back by "+m.Restore)
	}
	printLine(w, "measured", parts...)
}
