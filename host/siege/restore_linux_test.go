package siege_test

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/internal/seccomp"
	"github.com/carrelhost/carrel/internal/testenv"
)

func TestAHostSaysHowItRestoresTheMemoryOfGuests(t *testing.T) {
	best, lacks := image.Choose()
	for name, tc := range map[string]struct {
		refused []seccomp.Call
		by      image.Method
		warns   bool
		remedy  string
	}{
		"as this system does it best": {nil, best, lacks != "", ""},
		"PAGEMAP_SCAN is refused": {[]seccomp.Call{{Number: unix.SYS_IOCTL, Request: 0xC0606610}},
			image.Madvise, true, "(seccomp) let ioctl 0xc0606610 pass"},
		"files in memory are refused": {[]seccomp.Call{{Number: unix.SYS_MEMFD_CREATE}},
			image.Copy, true, "(seccomp) let memfd_create, fcntl and mmap pass"},
	} {
		t.Run(name, func(t *testing.T) {
			data, m := t.TempDir(), modeltest.NewServer(t)
			p := testenv.StartBy(t, program.Command(t, "", data, m), func(cmd *exec.Cmd) error {
				if tc.refused == nil {
					return cmd.Start()
				}
				if err := seccomp.Start(cmd, tc.refused...); err != nil {
					t.Skip(err)
				}
				return nil
			})
			if p.Base == "" {
				<-p.Ended
				t.Fatalf("it does not start: %s", p.Stderr.String())
			}
			acme := p.Owner(t, data, m)
			acme.Upload(scopes.Module(t))
			acme.Chat(appChat, "id", "1", "msg", "hello")
			if code := p.End(t, syscall.SIGTERM); code != 0 {
				t.Errorf("exit code %d", code)
			}
			infos, warnings := 0, 0
			for line := range strings.Lines(p.Stderr.String()) {
				switch {
				case strings.Contains(line, `level=INFO msg="guests' memory is restored after each call" by=`):
					infos++
					_, by, _ := strings.Cut(line, " by=")
					if strings.Trim(by, "\"\n") != tc.by.String() {
						t.Errorf("it says %s", line)
					}
				case strings.Contains(line, "level=WARN") && strings.Contains(line, "restore their memory"):
					warnings++
					if !strings.Contains(line, "page scan is left out: ") || !strings.Contains(line, tc.remedy) {
						t.Errorf("it does not say what to do: %s", line)
					}
				}
			}
			if infos != 1 || warnings > 1 || (warnings == 1) != tc.warns {
				t.Errorf("%d lines and %d warnings", infos, warnings)
			}
			if strings.Contains(p.Stdout.String(), "restored") {
				t.Errorf("it shows more than its log: %s", p.Stdout.String())
			}
		})
	}
}
