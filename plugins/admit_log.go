package plugins

import (
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/sandbox"
)

// AdmissionMethod is what a plugin's log has in the place of a method at lines
// of _initialize, carrel_describe and the warm-up.
const AdmissionMethod = "admission"

// Bounds of what a plugin's log takes of one admission, so that it does not
// displace the lines of calls. What was written last goes in.
const (
	MaxAdmissionLines = 100
	MaxAdmissionBytes = 16 << 10
)

// logAdmission puts what code wrote in its admission into its plugin's log.
func (c *Catalog) logAdmission(u Upload, p carrel.PluginName, lines []sandbox.LogLine) {
	if c.cfg.Log == nil {
		return
	}
	add := func(level int, text string) {
		c.cfg.Log.Add(u.Tenant, p, Entry{
			At: c.cfg.Now().UTC(), Level: level, Request: carrel.RequestID(u.Request), Method: AdmissionMethod, Text: text,
		})
	}
	from, bytes := len(lines), 0
	for from > 0 && len(lines)-from < MaxAdmissionLines {
		if bytes += min(len(lines[from-1].Text), MaxLogLineBytes); bytes > MaxAdmissionBytes {
			break
		}
		from--
	}
	if from > 0 {
		const levelWarning = 2
		add(levelWarning, fmt.Sprintf("%d lines of this admission before these are left out", from))
	}
	for _, l := range lines[from:] {
		add(l.Level, l.Text)
	}
}
