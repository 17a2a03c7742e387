package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
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

// printLines prints a fact that is a list, each item on a line of its own.
func printLines(w io.Writer, name string, items []string) {
	for _, item := range items {
		printLine(w, name, item)
		name = ""
	}
}

// distinct returns each of the items once, in their order.
func distinct(items []string) []string {
	var out []string
	for _, item := range items {
		if !slices.Contains(out, item) {
			out = append(out, item)
		}
	}
	return out
}

// printVersion prints which version a report is of.
func printVersion(w io.Writer, plugin string, v client.Version) {
	printLine(w, "plugin", plugin)
	printLine(w, "version", strconv.Itoa(v.N))
	printLine(w, "digest", v.Digest)
	printLine(w, "created", v.CreatedAt.Local().Format(time.DateTime))
	active := "no"
	if v.Active {
		active = "yes"
	}
	printLine(w, "active", active)
	if v.Quarantined != nil {
		printLine(w, "quarantined", quarantinedSince(*v.Quarantined))
	}
}

// printReport prints a report but for its models. Members that an older host
// did not have are left out.
func printReport(w io.Writer, r client.Report) {
	if r.Class != "" {
		printLine(w, "class", r.Class)
	}
	printLine(w, "path", r.Path)
	printLines(w, "why", r.Why)
	module := []string{fmt.Sprintf("%d bytes", r.ModuleBytes), fmt.Sprintf("manifest %d", r.ManifestBytes)}
	if r.CustomBytes > 0 {
		module = append(module, fmt.Sprintf("custom sections %d", r.CustomBytes))
	}
	printLine(w, "module", module...)
	if m := r.Measured; m != nil {
		printLine(w, "code", fmt.Sprintf("%d bytes with checks", r.CodeBytes), fmt.Sprintf("data %d", r.DataBytes))
		if im := r.Image; im != nil {
			printLine(w, "image", counted(im.Pages, "page", "pages")+" of 64 KiB", fmt.Sprintf("%d filled", im.Filled), fmt.Sprintf("%d bytes", im.Bytes))
		}
		printLine(w, "fuel", fmt.Sprintf("%d used by initialisation", r.Fuel))
		if r.Warmup != "" {
			printLine(w, "warmup", r.Warmup)
		}
		printMeasured(w, *m)
	}
	printLines(w, "imports", distinct(r.Imports)) // a module may import a function twice
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
		parts = append(parts, "restore "+m.Restore)
	}
	printLine(w, "measured", parts...)
}
