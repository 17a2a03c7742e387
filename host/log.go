package host

import (
	"log"
	"log/slog"
)

// errorLog passes what net/http logs, such as a broken connection, on to the
// host's log.
func errorLog(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }

// logGuestMemory says how guests' memory is restored, and warns if this
// system lacks what makes it fast.
func (h *Host) logGuestMemory() {
	by, lacks := h.sandbox.Memory()
	h.log.Info("guests' memory is restored after each call", "by", by)
	if lacks != "" {
		h.log.Warn("calls of guests take longer than they need to: this system lacks a faster way to restore their memory", "lacks", lacks)
	}
}
