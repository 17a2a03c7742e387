package datadir_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/store/datadir"
)

// holderEnv makes the test binary a second process that holds a directory
// until its standard input ends.
const holderEnv = "DATADIR_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holderEnv); dir != "" {
		os.Exit(hold(dir))
	}
	os.Exit(m.Run())
}

func hold(dir string) int {
	if _, err := datadir.Open(dir); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("held")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return 0
}

func open(t *testing.T, dir string) *datadir.Dir {
	t.Helper()
	d, err := datadir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func wantMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != want {
		t.Errorf("%s has mode %o, want %o", path, got, want)
	}
}

func TestOpenCreatesAPrivateDirectoryWithItsParents(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	d := open(t, dir)
	wantMode(t, dir, 0o700)
	if got, want := d.Path("host.db"), filepath.Join(dir, "host.db"); got != want {
		t.Errorf("Path is %s, want %s", got, want)
	}
}

func TestOpenTightensADirectoryThatOthersMayRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // Mkdir alone is subject to the umask
		t.Fatal(err)
	}
	open(t, dir)
	wantMode(t, dir, 0o700)
}

func TestPathIsAbsoluteWhenTheDirectoryWasRelative(t *testing.T) {
	t.Chdir(t.TempDir())
	d := open(t, "data")
	if got := d.Path("host.db"); !filepath.IsAbs(got) {
		t.Errorf("Path is %s, want an absolute one", got)
	}
}

func wantInUse(t *testing.T, dir string) {
	t.Helper()
	d, err := datadir.Open(dir)
	if err == nil {
		_ = d.Close()
		t.Fatal("a second Open succeeded")
	}
	if !errors.Is(err, datadir.ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("error is %q, want ErrInUse and the directory's name", err)
	}
}

func TestASecondOpenInThisProcessFailsUntilTheFirstIsClosed(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	wantInUse(t, dir)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
}

func TestADirectoryHeldByAnotherProcessIsFreeWhenThatIsKilled(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stdin.Close() }()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || said != "held\n" {
		t.Fatalf("the other process said %q, %v", said, err)
	}
	wantInUse(t, dir)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed: the error says only that
	open(t, dir)
}

func TestCloseTwiceIsHarmless(t *testing.T) {
	d := open(t, t.TempDir())
	for range 2 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenFailsWhereAFileStands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := datadir.Open(file); err == nil {
		t.Error("Open of a file succeeded")
	}
}
