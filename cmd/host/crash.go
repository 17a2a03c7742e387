package main

import (
	"log/slog"
	"os"
	"runtime/debug"
)

// reportCrashes lets the runtime write to a file, besides stderr, what ends
// this process, until stop: an error that nothing can catch, or a signal of
// the processor. The next start of the host finds out from it that this one
// crashed. A process that is killed writes nothing.
func reportCrashes(path string, log *slog.Logger) (stop func()) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600) //nolint:gosec // the host named it
	if err == nil {
		defer f.Close() //nolint:errcheck // the runtime has a descriptor of its own
		err = debug.SetCrashOutput(f, debug.CrashOptions{})
	}
	if err != nil {
		log.Warn("if this process crashes, the next one will not know, and no plugin is quarantined", "err", err)
		return func() {}
	}
	return func() {
		_ = debug.SetCrashOutput(nil, debug.CrashOptions{}) // its error is of a file
		_ = os.Remove(path)                                 // if it stays, it is empty
	}
}
