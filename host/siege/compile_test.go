//go:build unix

package siege_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/internal/testproc"
)

// stat returns the state and the parent of a process: see proc(5). A process
// that is gone has neither.
func stat(pid int) (state string, parent int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

// children lists the processes that a process started and that are not yet
// reaped.
func children(t *testing.T, of int) []int {
	t.Helper()
	found, err := os.ReadDir("/proc")
	if err != nil {
		t.Skip("this system does not list processes")
	}
	var pids []int
	for _, f := range found {
		if pid, err := strconv.Atoi(f.Name()); err == nil {
			if _, parent := stat(pid); parent == of {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// compiler waits for a host's compiler, and stops it where it is.
func compiler(t *testing.T, p *testenv.Process) int {
	t.Helper()
	var pid int
	testproc.Until(t, "a compiler", func() bool {
		for _, pid = range children(t, p.Cmd.Process.Pid) {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err == nil && strings.Contains(string(line), "compile-guest") && syscall.Kill(pid, syscall.SIGSTOP) == nil {
				return true
			}
		}
		return false
	})
	return pid
}

// compiledCode lists what a data directory has in its cache of compiled code.
func compiledCode(t *testing.T, data string) (whole, rest []string) {
	t.Helper()
	found, err := os.ReadDir(filepath.Join(data, "cache", "code"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, f := range found {
		if strings.HasPrefix(f.Name(), "tmp-") {
			rest = append(rest, f.Name())
		} else {
			whole = append(whole, f.Name())
		}
	}
	return whole, rest
}

// upload sends a module in the background.
func upload(ctx context.Context, a *testenv.Actor, wasm []byte) <-chan error {
	done := make(chan error, 1)
	c := a.Client()
	go func() {
		_, err := c.Upload(ctx, wasm, client.UploadOptions{})
		done <- err
	}()
	return done
}

// works checks that an upload is called, and that nothing is left of what was
// interrupted before.
func works(t *testing.T, p *testenv.Process, a *testenv.Actor, data string) {
	t.Helper()
	a.Upload(scopes.Module(t))
	a.Chat(appChat, "id", "1", "msg", "hello")
	whole, rest := compiledCode(t, data)
	if len(whole) != 1 || len(rest) > 0 {
		t.Errorf("the cache holds %q and %q", whole, rest)
	}
	if left := children(t, p.Cmd.Process.Pid); len(left) > 0 {
		t.Errorf("the processes %v are left", left)
	}
}

func TestACompilerThatIsKilledFailsItsUploadAlone(t *testing.T) {
	data, m := t.TempDir(), modeltest.NewServer(t)
	p := program.Serve(t, data, m)
	acme := p.Owner(t, data, m)
	done := upload(t.Context(), acme, scopes.Module(t))
	if err := syscall.Kill(compiler(t, p), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err := <-done
	if testenv.CodeOf(err) != abi.Overloaded || !strings.Contains(err.Error(), "killed from outside") {
		t.Errorf("the upload ended with %v", err)
	}
	works(t, p, acme, data)
}

func TestAClientThatLeavesEndsTheCompiler(t *testing.T) {
	data, m := t.TempDir(), modeltest.NewServer(t)
	p := program.Serve(t, data, m)
	acme := p.Owner(t, data, m)
	ctx, leave := context.WithCancel(t.Context())
	done := upload(ctx, acme, scopes.Module(t))
	pid := compiler(t, p)
	leave()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the upload ended with %v", err)
	}
	testproc.Until(t, "the compiler's end", func() bool { state, _ := stat(pid); return state == "" })
	works(t, p, acme, data)
}

func TestAHostThatIsKilledTakesItsCompilerAlong(t *testing.T) {
	data, m := t.TempDir(), modeltest.NewServer(t)
	p := program.Serve(t, data, m)
	done := upload(t.Context(), p.Owner(t, data, m), scopes.Module(t))
	pid := compiler(t, p)
	p.End(t, syscall.SIGKILL)
	if err := <-done; err == nil {
		t.Error("the upload ended well")
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	testproc.Until(t, "the compiler's end", func() bool { state, _ := stat(pid); return state == "" || state == "Z" }) // init reaps it

	p = program.Serve(t, data, m)
	if whole, rest := compiledCode(t, data); len(whole)+len(rest) > 0 {
		t.Errorf("the cache holds %q and %q", whole, rest)
	}
	works(t, p, p.Owner(t, data, m), data)
}

func TestEqualUploadsAreCompiledOnce(t *testing.T) {
	data, m := t.TempDir(), modeltest.NewServer(t)
	p := program.Serve(t, data, m)
	acme := p.Owner(t, data, m)
	uploads := []<-chan error{upload(t.Context(), acme, scopes.Module(t))}
	pid := compiler(t, p)
	for range 3 {
		uploads = append(uploads, upload(t.Context(), acme, scopes.Module(t)))
	}
	if got := children(t, p.Cmd.Process.Pid); !slices.Equal(got, []int{pid}) {
		t.Errorf("the processes %v run, want %d alone", got, pid)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, done := range uploads {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	works(t, p, acme, data)
}

// entry returns the directory of the only compiled code, and its file.
func entry(t *testing.T, data string) (dir, file string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(data, "cache", "code", "*", "wazero-*", "*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("found %q, %v", found, err)
	}
	return filepath.Dir(filepath.Dir(found[0])), found[0]
}

func TestARestartedHostLoadsWhatItCompiled(t *testing.T) {
	data, m := t.TempDir(), modeltest.NewServer(t)
	p := program.Serve(t, data, m)
	works(t, p, p.Owner(t, data, m), data)
	restart := func() {
		t.Helper()
		if code := p.End(t, syscall.SIGTERM); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		p = program.Serve(t, data, m)
		p.Owner(t, data, m).Chat(appChat, "id", "1", "msg", "hello")
	}
	_, file := entry(t, data)
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	restart()
	if after, err := os.Stat(file); err != nil || !os.SameFile(before, after) {
		t.Errorf("it was compiled again: %v", err)
	}
	for name, damage := range map[string]func() error{
		"it is cut off": func() error { return os.Truncate(file, before.Size()/2) },
		"it is not what was written": func() error {
			b, err := os.ReadFile(file)
			if err == nil {
				b[len(b)/2] ^= 1
				err = os.WriteFile(file, b, 0o600)
			}
			return err
		},
		"others may write it":      func() error { return os.Chmod(file, 0o606) },
		"all of the cache is gone": func() error { return os.RemoveAll(filepath.Join(data, "cache")) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		restart()
		after, err := os.Stat(file)
		if err != nil || after.Size() != before.Size() || after.Mode().Perm() != 0o600 {
			t.Errorf("after %s: %v, %v", name, after, err)
		}
	}
}

func TestAHostRefusesACacheThatOthersCanWrite(t *testing.T) {
	data, m := t.TempDir(), modeltest.NewServer(t)
	dir := filepath.Join(data, "cache", "code")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	p := testenv.Start(t, program.Command(t, "", data, m))
	if <-p.Ended; p.Base != "" || !strings.Contains(p.Stderr.String(), "chmod go-w") {
		t.Errorf("it said %s", p.Stderr.String())
	}
}

// TestSlowUploadsOfATenantHoldUpNoOther has a compiler of one tenant that never
// ends, and 30 modules that wait for it, while another tenant uploads.
func TestSlowUploadsOfATenantHoldUpNoOther(t *testing.T) {
	const slow, quick = 30, 3
	s := besiege(t)
	var digests []string
	for n := range slow {
		began, err := s.mallory.UploadAsync(t.Context(), slowToCompile(n), client.UploadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, began.Digest)
	}
	pid := compiler(t, s.p)
	for n := range quick {
		if _, err := s.acme.Upload(t.Context(), small(n), client.UploadOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wait := 0
	for _, d := range digests {
		if a, err := s.mallory.Admission(t.Context(), d); err != nil {
			t.Fatal(err)
		} else if !a.Ended() {
			wait++
		}
	}
	if wait < slow/2 {
		t.Errorf("%d of %d slow uploads wait: this shows little", wait, slow)
	}
	if err := testenv.CallHostile(t.Context(), s.acme, smallName(0), hostile.Fine); err != nil {
		t.Error(err)
	}
	goOn(t, pid)
	for _, d := range digests[:3] {
		if end, err := s.mallory.WaitAdmission(t.Context(), d, nil); err != nil || end.State != client.AdmissionActive {
			t.Errorf("one that waited ended with %+v, %v", end, err)
		}
	}
	s.sound(t)
}
