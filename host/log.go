package host

import (
	"log"
	"log/slog"
)

// errorLog passes what net/http logs, such as a broken connection, on to the
// host's log.
func errorLog(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }
