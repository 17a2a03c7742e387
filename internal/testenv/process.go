package testenv

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
)

// Program is the program `carrel`, as the tests of one package share it: it is
// built once, when a test first needs it. The zero value is ready for use, by
// many goroutines; Main is called from the package's TestMain.
type Program struct {
	once sync.Once
	dir  string // holds the program while tests run
	err  error
}

// Main runs a package's tests, removes the program after them and returns the
// exit code.
func (p *Program) Main(m *testing.M) int {
	var err error
	if p.dir, err = os.MkdirTemp("", "carrel-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(p.dir) //nolint:errcheck // the system clears its scratch space, too
	return m.Run()
}

// Path returns the program's file.
func (p *Program) Path(t testing.TB) string {
	t.Helper()
	path := filepath.Join(p.dir, "carrel")
	p.once.Do(func() {
		out, err := exec.Command("go", "build", "-o", path, "github.com/carrelhost/carrel/cmd/host").CombinedOutput() //nolint:gosec,noctx // built for all tests of the package
		if err != nil {
			p.err = fmt.Errorf("go build: %w: %s", err, out)
		}
	})
	if p.err != nil {
		t.Fatal(p.err)
	}
	return path
}

// Command is `carrel serve` on a data directory and any free port, with a
// model and further variables. shell, if not empty, is run by sh before it.
func (p *Program) Command(t testing.TB, shell, data string, m *modeltest.Server, vars ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", shell+`exec "$0" serve`, p.Path(t)) //nolint:gosec,noctx // tests say what runs, and end it
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + data, "CARREL_DATA=" + data, "CARREL_LISTEN=127.0.0.1:0",
		"OPENAI_API_KEY=" + modeltest.Key, "OPENAI_BASE_URL=" + m.BaseURL,
	}, vars...)
	return cmd
}

// Serve starts the program on a data directory until the test ends, and
// returns when it listens.
func (p *Program) Serve(t testing.TB, data string, m *modeltest.Server, vars ...string) *Process {
	t.Helper()
	return Listening(t, p.Command(t, "", data, m, vars...))
}

// Process is `carrel serve` in a process of its own.
type Process struct {
	Cmd     *exec.Cmd
	Base    string        // where it listens; "" if it ended before it did
	Stdout  bytes.Buffer  // to be read after Ended
	Stderr  bytes.Buffer  // to be read after Ended
	Ended   chan struct{} // closed after the process's end
	WaitErr error         // to be read after Ended
}

// Start runs a command until the test ends, and returns when it listens or
// has ended.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	return StartBy(t, cmd, (*exec.Cmd).Start)
}

// StartBy is Start for a command that takes more than its own Start.
func StartBy(t testing.TB, cmd *exec.Cmd, run func(*exec.Cmd) error) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, Ended: make(chan struct{})}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &p.Stderr
	if err := run(cmd); err != nil {
		t.Fatal(err)
	}
	first := make(chan string, 1)
	go func() {
		defer close(p.Ended)
		lines := bufio.NewReader(out)
		line, _ := lines.ReadString('\n') // at its end the process has said all
		p.Stdout.WriteString(line)
		first <- line
		_, _ = io.Copy(&p.Stdout, lines)
		p.WaitErr = cmd.Wait()
	}()
	t.Cleanup(func() {
		p.End(t, syscall.SIGKILL)
		if t.Failed() {
			t.Logf("stdout:\n%s\nstderr:\n%s", p.Stdout.String(), p.Stderr.String())
		}
	})
	if base, ok := strings.CutPrefix(strings.TrimSpace(<-first), "carrel listens on "); ok {
		p.Base = base
	}
	return p
}

// Listening is Start for a process that must come up.
func Listening(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := Start(t, cmd)
	if p.Base == "" {
		<-p.Ended
		t.Fatalf("the host did not start: %s%s", p.Stdout.String(), p.Stderr.String())
	}
	return p
}

// End sends a signal, waits for the process's end and returns its exit code,
// or -1 if the signal ended it.
func (p *Process) End(t testing.TB, s os.Signal) int {
	t.Helper()
	select {
	case <-p.Ended:
	default:
		if err := p.Cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%v: %v", s, err)
		}
		<-p.Ended
	}
	return p.Cmd.ProcessState.ExitCode()
}

// Owner returns the owner of the tenant "default", by the key in a data
// directory.
func (p *Process) Owner(t testing.TB, data string, m *modeltest.Server) *Actor {
	t.Helper()
	return p.Holder(t, strings.TrimSpace(Read(t, filepath.Join(data, "owner.key"))), m)
}

// Holder returns the holder of an API key.
func (p *Process) Holder(t testing.TB, key string, m *modeltest.Server) *Actor {
	t.Helper()
	return Remote(t, func() string { return p.Base }, key, m)
}

// Read returns a file's content.
func Read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path) //nolint:gosec // tests say what they read
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
