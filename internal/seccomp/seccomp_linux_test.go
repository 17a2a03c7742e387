package seccomp_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrelhost/carrel/internal/seccomp"
)

func TestWhatIsRefusedIsRefusedToTheCommandAlone(t *testing.T) {
	if os.Getenv("CARREL_SECCOMP_CHILD") != "" {
		_, err := unix.MemfdCreate("refused", 0)
		if err != unix.EPERM {
			t.Errorf("a file in memory: %v", err)
		}
		if _, err := unix.IoctlGetInt(0, unix.TIOCOUTQ); err != unix.EPERM {
			t.Errorf("the request that is refused: %v", err)
		}
		if _, err := unix.IoctlGetInt(0, unix.TIOCINQ); err == unix.EPERM {
			t.Error("another request of the same call is refused")
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "CARREL_SECCOMP_CHILD=1")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	err := seccomp.Start(cmd, seccomp.Call{Number: unix.SYS_MEMFD_CREATE}, seccomp.Call{Number: unix.SYS_IOCTL, Request: unix.TIOCOUTQ})
	if err != nil {
		t.Skip(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(said.String(), "--- PASS: ") {
		t.Errorf("%v\n%s", err, said.String())
	}
	fd, err := unix.MemfdCreate("allowed", 0)
	if err != nil {
		t.Fatalf("a file in memory of this process: %v", err)
	}
	if err := unix.Close(fd); err != nil {
		t.Error(err)
	}
}
