package host_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/internal/testenv"
)

// scratch holds the program while tests run.
var scratch string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if scratch, err = os.MkdirTemp("", "carrel-test-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(scratch) //nolint:errcheck // the system clears its scratch space, too
		return m.Run()
	}())
}

// program builds cmd/host, once.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "carrel")
	out, err := exec.Command("go", "build", "-o", path, "github.com/carrelhost/carrel/cmd/host").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go build: %w: %s", err, out)
	}
	return path, err
})

// process is `carrel serve` in a process of its own.
type process struct {
	cmd     *exec.Cmd
	base    string        // where it listens; "" if it ended before it did
	stdout  bytes.Buffer  // to be read after ended
	stderr  bytes.Buffer  // to be read after ended
	ended   chan struct{} // closed after the process's end
	waitErr error
}

// command is `carrel serve` on a data directory and any free port, with a
// model and further variables. shell, if not empty, is run by sh before it.
func command(t *testing.T, shell, data string, m *modeltest.Server, vars ...string) *exec.Cmd {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", shell+`exec "$0" serve`, path)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + data, "CARREL_DATA=" + data, "CARREL_LISTEN=127.0.0.1:0",
		"OPENAI_API_KEY=" + modeltest.Key, "OPENAI_BASE_URL=" + m.BaseURL,
	}, vars...)
	return cmd
}

// start runs a command until the test ends, and returns when it listens or
// has ended.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	return startBy(t, cmd, (*exec.Cmd).Start)
}

// startBy is start for a command that takes more than its Start.
func startBy(t *testing.T, cmd *exec.Cmd, run func(*exec.Cmd) error) *process {
	t.Helper()
	p := &process{cmd: cmd, ended: make(chan struct{})}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &p.stderr
	if err := run(cmd); err != nil {
		t.Fatal(err)
	}
	first := make(chan string, 1)
	go func() {
		defer close(p.ended)
		lines := bufio.NewReader(out)
		line, _ := lines.ReadString('\n') // at its end the process has said all
		p.stdout.WriteString(line)
		first <- line
		_, _ = io.Copy(&p.stdout, lines)
		p.waitErr = cmd.Wait()
	}()
	t.Cleanup(func() {
		p.end(t, syscall.SIGKILL)
		if t.Failed() {
			t.Logf("stdout:\n%s\nstderr:\n%s", p.stdout.String(), p.stderr.String())
		}
	})
	if base, ok := strings.CutPrefix(strings.TrimSpace(<-first), "carrel listens on "); ok {
		p.base = base
	}
	return p
}

// listening is start for a process that must come up.
func listening(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := start(t, cmd)
	if p.base == "" {
		<-p.ended
		t.Fatalf("the host did not start: %s%s", p.stdout.String(), p.stderr.String())
	}
	return p
}

// end sends a signal, waits for the process's end and returns its exit code,
// or -1 if the signal ended it.
func (p *process) end(t *testing.T, s os.Signal) int {
	t.Helper()
	select {
	case <-p.ended:
	default:
		if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%v: %v", s, err)
		}
		<-p.ended
	}
	return p.cmd.ProcessState.ExitCode()
}

// owner returns the owner of the tenant "default", by the key in a data
// directory.
func (p *process) owner(t *testing.T, data string, m *modeltest.Server) *testenv.Actor {
	t.Helper()
	return p.holder(t, strings.TrimSpace(read(t, filepath.Join(data, "owner.key"))), m)
}

func (p *process) holder(t *testing.T, key string, m *modeltest.Server) *testenv.Actor {
	t.Helper()
	return testenv.Remote(t, func() string { return p.base }, key, m)
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
