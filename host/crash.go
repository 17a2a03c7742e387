package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/quarantine"
	"github.com/carrelhost/carrel/host/sandbox/marker"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/store/datadir"
)

// What the data directory has of crashes.
const (
	fileCrash      = "crash.txt" // what Go's runtime reports if the process that runs crashes
	fileRunning    = "running"   // the guests that run
	fileQuarantine = "quarantine.json"
	dirCrashes     = "crashes" // earlier reports
)

// Bounds of reports.
const (
	crashReports   = 5       // kept
	crashKeptBytes = 4 << 20 // of each
	crashReadBytes = 1 << 20 // of one, to find the guest in it
	crashToldBytes = 500     // in the log
)

// marksPerInvocation is how many guests one invocation runs, at most: it calls
// others to this depth.
const marksPerInvocation = 8

// lookBack finds out whether the process before this one crashed, and which
// guests may be why, before anything is loaded. Nothing of it keeps a host
// from starting: what fails is logged. What a crash counts against is returned.
func (h *Host) lookBack() []quarantine.Record {
	now := time.Now()
	h.crashes = quarantine.Open(h.dir.Path(fileQuarantine), now, h.log)
	marks, guests, err := marker.Open(h.dir.Path(fileRunning), marksPerInvocation*h.cfg.Limits.Invocations)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		h.log.Info("on this system no plugin is quarantined for crashes of the host: which ones run cannot be noted")
	case err != nil:
		h.log.Warn("which plugins run is not noted; none is quarantined if the host crashes", "err", err)
	}
	h.marks = marks
	report, at, err := h.takeCrashReport()
	if err != nil {
		h.log.Warn("the report of a crash could not be read, kept or taken away; it may not count, or count again", "err", err)
	}
	switch {
	case len(report) == 0:
	case asked.Match(report):
		h.log.Info("the last process was told to show its goroutines, and ended (SIGQUIT)", "at", at.UTC(), "reports", h.dir.Path(dirCrashes))
	case marker.Sent(report):
		h.log.Warn("the last process was sent a signal and ended; it counts for no plugin",
			"at", at.UTC(), "reports", h.dir.Path(dirCrashes), "report", beginning(report))
	case crashed.Match(report):
		if at.After(now) { // clocks are set back
			at = now
		}
		return h.crashed(report, at, guests)
	default:
		h.log.Warn("what should be the report of a crash is none", "reports", h.dir.Path(dirCrashes))
	}
	return nil
}

// How reports look. Of a fatal error the runtime reports the stacks only; its
// reason is on stderr.
var (
	asked   = regexp.MustCompile(`^\s*SIGQUIT: `)
	crashed = regexp.MustCompile(`(?m)^(panic: |runtime stack:|goroutine [0-9]+ |SIG[A-Z0-9]+: )`)
)

// crashed counts a crash against the guests that it may come from, and returns
// what is known of their modules.
func (h *Host) crashed(report []byte, at time.Time, guests []marker.Guest) []quarantine.Record {
	h.log.Error("the last process crashed; the reason of a fatal error is on its stderr only", "at", at.UTC(), "reports", h.dir.Path(dirCrashes), "report", beginning(report))
	var suspects []quarantine.Suspect
	for _, g := range marker.Suspects(report, guests) {
		s := quarantine.Suspect{Digest: g.Digest}
		if t, err := carrel.ParseTenantID(g.Share); err == nil {
			s.Tenant = t
		}
		suspects = append(suspects, s)
	}
	records, err := h.crashes.Crashed(at, suspects)
	if err != nil {
		h.log.Error("which plugins ran at the crash is known to this process only", "err", err)
	}
	return records
}

// nameCrashed logs which plugins a crash counts against, by the names that the
// store has for them. Without a store, or for its error, by their digest alone.
func (h *Host) nameCrashed(ctx context.Context, records []quarantine.Record) {
	for _, r := range records {
		names := []string{}
		if h.store != nil {
			versions, err := plugins.CrashedVersions(ctx, h.store, r)
			if err != nil {
				h.log.Warn("what a plugin that ran at a crash is called could not be read", "digest", r.Digest, "err", err)
			}
			for _, v := range versions {
				names = append(names, fmt.Sprintf("%s %s@%d", v.Tenant, v.Plugin, v.N))
			}
		}
		if r.Quarantined() {
			h.log.Error("a plugin ran at crashes of the host and is quarantined; `carrel quarantine lift` ends that",
				"versions", names, "digest", r.Digest, "tenants", r.Tenants, "crashes", len(r.Crashes))
			continue
		}
		h.log.Warn("a plugin ran when the host crashed; at another crash soon it is quarantined",
			"versions", names, "digest", r.Digest, "tenants", r.Tenants)
	}
}

// logUnclean says that the last process did not end in order, and what was
// recovered of it, if so. One that does takes its address away.
func (h *Host) logUnclean() {
	if _, err := os.Lstat(h.dir.Path(fileAddress)); err != nil {
		return
	}
	r := h.info.Recovered
	h.log.Info("the last process did not end in order; what it left open is closed", "scopes", r.Scopes, "histories", r.Histories)
}

// beginning is what the log tells of a report.
func beginning(report []byte) string {
	var lines []string
	left := crashToldBytes
	for line := range strings.Lines(string(report)) {
		line = strings.ToValidUTF8(strings.TrimSpace(line), "\uFFFD")
		if line == "" {
			continue
		}
		if left -= len(line); left < 0 || len(lines) == 5 {
			break
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// takeCrashReport takes away what the last process reported, so that it counts
// once, and returns its beginning and when it was written. Without an error it
// is kept for the operator; with one, the report is what is known of it, if
// that will not be found again.
func (h *Host) takeCrashReport() (report []byte, at time.Time, err error) {
	path := h.dir.Path(fileCrash)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, at, nil
	case err != nil:
		return nil, at, err
	case !info.Mode().IsRegular():
		aside, err := datadir.MoveAside(path)
		return nil, at, errors.Join(fmt.Errorf("%s is no file; it is moved to %s", path, aside), err)
	case info.Size() == 0: // the process did not crash
		return nil, at, os.Remove(path)
	}
	at = info.ModTime()
	f, err := datadir.OpenFile(path, os.O_RDWR)
	if err == nil {
		report, err = io.ReadAll(io.LimitReader(f, crashReadBytes))
		if info.Size() > crashKeptBytes {
			err = errors.Join(err, f.Truncate(crashKeptBytes))
		}
		err = errors.Join(err, f.Close())
	}
	if keptErr := h.keepCrashReport(path, at); keptErr != nil {
		err = errors.Join(err, keptErr)
		if goneErr := os.Remove(path); goneErr != nil {
			return nil, at, errors.Join(err, goneErr) // it would count at each start
		}
	}
	return report, at, err
}

// keepCrashReport moves a report to the earlier ones, of which the newest are
// kept.
func (h *Host) keepCrashReport(path string, at time.Time) error {
	dir := h.dir.Path(dirCrashes)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(dir, at.UTC().Format("20060102T150405.000000000")+".txt")); err != nil {
		return err
	}
	kept, err := os.ReadDir(dir) // by name, and so by time
	if err != nil {
		return nil //nolint:nilerr // this one is kept
	}
	kept = slices.DeleteFunc(kept, func(e fs.DirEntry) bool { return e.IsDir() || filepath.Ext(e.Name()) != ".txt" })
	for _, old := range kept[:max(0, len(kept)-crashReports)] {
		_ = os.Remove(filepath.Join(dir, old.Name())) // it is tried again after the next crash
	}
	return nil
}
