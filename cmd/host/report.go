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

// printReport prints a report but for its models and notes. Members that an
// older host did not have are left out.
func printReport(w io.Writer, r client.Report) {
	line := func(name string, parts ...string) { fmt.Fprintf(w, "%-9s %s\n", name, strings.Join(parts, ", ")) }
	list := func(name string, items []string) {
		if len(items) > 0 {
			line(name, strings.Join(items, " "))
		}
	}
	if r.Class != "" {
		line("class", r.Class)
	}
	line("runs as", r.Path)
	for i, reason := range r.Why {
		if i == 0 {
			line("because", reason)
		} else {
			line("", reason)
		}
	}
	module := []string{fmt.Sprintf("%d bytes", r.ModuleBytes), fmt.Sprintf("manifest %d", r.ManifestBytes)}
	if r.CustomBytes > 0 {
		module = append(module, fmt.Sprintf("custom sections %d", r.CustomBytes))
	}
	line("module", module...)
	if m := r.Measured; m != nil {
		line("code", fmt.Sprintf("%d bytes with checks", r.CodeBytes), fmt.Sprintf("data %d", r.DataBytes))
		if im := r.Image; im != nil {
			line("image", counted(im.Pages, "page", "pages")+" of 64 KiB", fmt.Sprintf("%d not zero", im.Filled), fmt.Sprintf("%d bytes", im.Bytes))
		}
		line("fuel", fmt.Sprintf("%d used by initialisation", r.Fuel))
		printMeasured(line, *m)
	}
	list("imports", r.Imports)
	list("exports", r.Exports)
}

func printMeasured(line func(name string, parts ...string), m client.Measured) {
	took := func(micros int64) string { return (time.Duration(micros) * time.Microsecond).String() }
	parts := []string{"compiled in " + took(m.CompileMicros), "initialised in " + took(m.InitialiseMicros)}
	if m.MachineBytes > 0 {
		parts = append(parts, fmt.Sprintf("machine code %d bytes", m.MachineBytes))
	}
	if m.Restore != "" {
		parts = append(parts, "memory set back by "+m.Restore)
	}
	line("measured", parts...)
}
