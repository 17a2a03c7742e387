//go:build !portable

package sandbox_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/internal/seccomp"
)

// unlimitedVar tells a process of tests what the kernel refuses to it, and to
// the processes that it starts.
const unlimitedVar = "CARREL_TEST_UNLIMITED"

// TestACompilerThatCannotBeLimitedIsNotTheModulesFault compiles where a filter
// refuses what limits the process that does it.
func TestACompilerThatCannotBeLimitedIsNotTheModulesFault(t *testing.T) {
	if os.Getenv(unlimitedVar) != "" {
		cfg := inChildren(t)
		_, err := newSandbox(t, cfg).Admit(t.Context(), sandbox.Candidate{Module: counter().Bytes()})
		wantUnable(t, err, "limits of the process: setpriority: ")
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), unlimitedVar+"=1")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := seccomp.Start(cmd, seccomp.Call{Number: unix.SYS_SETPRIORITY}); err != nil {
		t.Skip(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(said.String(), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, said.String())
	}
}
