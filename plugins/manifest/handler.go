package manifest

import (
	"slices"
	"strings"
	"unicode"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// textOutput is the output schema of a method that returns text. Any other
// way to write the same is turned into it.
const textOutput = `{"type":"string"}`

// IsText reports whether the output schema of a method that Parse returned is
// that of text.
func IsText(schema []byte) bool { return string(schema) == textOutput }

// startExport is what a command calls its main function. The host runs
// reactors only.
const startExport = "_start"

// handler reads what only a handler has. Two handlers may share an export.
func (c *checker) handler(o object, m *abi.Method) {
	if _, has := o.members["export"]; has {
		m.Export = c.export(o)
	} else {
		c.fault(o.at+"/export", "`export` is missing; add the name of the exported function that gets control")
	}
	v, has := o.members["output"]
	if !has || isTextOutput(v) {
		return
	}
	at := o.at + "/output"
	raw := c.layout.compact(at)
	if c.compile(at, raw) {
		m.Output = raw
	}
}

func isTextOutput(v any) bool {
	s, ok := v.(map[string]any)
	return ok && len(s) == 1 && s["type"] == "string"
}

// export reads the name of a function of the guest.
func (c *checker) export(o object) string {
	at := o.at + "/export"
	name, ok := o.text("export", abi.MaxExportBytes)
	switch {
	case !ok:
		return ""
	case name == "":
		c.fault(at, "the name is empty; write that of an exported function")
	case strings.ContainsFunc(name, unicode.IsControl):
		c.fault(at, "%s has control characters; export the function under a name without them", module.Quote(name))
	case strings.HasPrefix(name, abi.ReservedExportPrefix):
		c.fault(at, "names that begin with %q belong to the host; export the function under another one than %s",
			abi.ReservedExportPrefix, module.Quote(name))
	case slices.Contains([]string{abi.InitializeExport, startExport, abi.MemoryExport, abi.DescribeExport, abi.WakeExport}, name):
		c.fault(at, "%s has a meaning of its own to the host; export the function under another name", module.Quote(name))
	}
	return name
}
