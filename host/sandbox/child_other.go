//go:build !linux || portable

package sandbox

import (
	"os"
	"time"
)

// limitsChildren is whether limitProcess bounds anything.
const limitsChildren = false

// limitProcess has no way to bound a process on this system. The parent still
// ends it after Config.CompileWall.
func limitProcess(int64, time.Duration) error { return nil }

// killed reports whether a signal ended a process.
func killed(p *os.ProcessState) bool { return p.ExitCode() == -1 }

// peakBytes is not needed where nothing bounds memory.
func peakBytes(*os.ProcessState) int64 { return 0 }
