package main

import (
	"errors"
	"log/slog"
	"runtime/debug"

	"github.com/carrelhost/carrel/store/datadir"
)

// reported calls run and then end, which it joins the errors of. Meanwhile the
// runtime writes to a file, besides stderr, what ends this process: an error
// that nothing can catch, or a signal of the processor. The next start of the
// host finds out from it that this one crashed. A process that is killed writes
// nothing. The file stays, empty: after end it may be that of another process,
// which has the data directory now.
func reported(path string, log *slog.Logger, run, end func() error) error {
	f, err := datadir.CreateFile(path)
	if err == nil {
		err = debug.SetCrashOutput(f, debug.CrashOptions{})
		_ = f.Close()                                         // the runtime has a descriptor of its own
		defer debug.SetCrashOutput(nil, debug.CrashOptions{}) //nolint:errcheck // its error is of a file
	}
	if err != nil {
		log.Warn("if this process crashes, the next one will not know, and no plugin is quarantined", "err", err)
	}
	return errors.Join(run(), end())
}
