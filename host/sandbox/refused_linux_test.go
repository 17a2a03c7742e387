//go:build !portable

package sandbox_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/internal/seccomp"
)

// without is what the kernel refuses to a process of tests, named by the
// method that is left.
var without = map[string]seccomp.Call{
	image.Madvise.String(): {Number: unix.SYS_IOCTL, Request: 0xC0606610}, // PAGEMAP_SCAN
	image.Copy.String():    {Number: unix.SYS_MEMFD_CREATE},
}

// leftVar tells a process of tests what is left to it.
const leftVar = "CARREL_TEST_MEMORY_LEFT"

// someTests are those that tell most in little time.
const someTests = "^(TestTheMemoryOfGuestsIsRestoredAsIsLeft|TestThePathIsTheFastestThatIsSafe|TestPluginsOfTheSameBytesShareNoByte|" +
	"TestInstancesWaitForAWhile|TestMemoryStopsAtItsLimit|TestNothingOfACallStays)$"

// TestGuestsRunWithoutTheFasterMethods runs tests of this package where the
// kernel refuses what the faster methods need, so that New chooses as it does
// on such a system.
func TestGuestsRunWithoutTheFasterMethods(t *testing.T) {
	if os.Getenv(leftVar) != "" {
		t.Skip("it is one of those processes")
	}
	for left, call := range without {
		t.Run(left+" is left", func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+someTests, "-test.v")
			cmd.Env = append(os.Environ(), leftVar+"="+left)
			var said strings.Builder
			cmd.Stdout, cmd.Stderr = &said, &said
			if err := seccomp.Start(cmd, call); err != nil {
				t.Skip(err)
			}
			if err := cmd.Wait(); err != nil || !strings.Contains(said.String(), "--- PASS: TestTheMemoryOfGuestsIsRestoredAsIsLeft") {
				t.Errorf("%v\n%s", err, said.String())
			}
		})
	}
}

func TestTheMemoryOfGuestsIsRestoredAsIsLeft(t *testing.T) {
	left := os.Getenv(leftVar)
	if left == "" {
		t.Skip("nothing is refused to this process")
	}
	by, lacks := newSandbox(t, sandbox.Config{}).Memory()
	if by != left || !strings.Contains(lacks, "page scan is left out: ") || !strings.Contains(lacks, "(seccomp)") {
		t.Errorf("it is restored by %s, as %q; want %s", by, lacks, left)
	}
}
