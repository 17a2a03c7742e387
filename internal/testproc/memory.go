package testproc

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// Kind is memory of a process that the system counts apart.
type Kind string

// The kinds, as Linux names them.
const (
	Addresses Kind = "VmSize"  // all that is mapped
	Data      Kind = "VmData"  // mapped for this process alone, and writable
	Resident  Kind = "VmRSS"   // in the machine's memory
	Anonymous Kind = "RssAnon" // resident, and no file's: pages of guests' images are not
)

// Memory returns how many bytes of a kind this process has, and 0 where the
// system does not tell.
func Memory(t testing.TB, k Kind) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		rest, ok := strings.CutPrefix(line, string(k)+":")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return kib << 10
	}
	return 0
}
