package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/hostile"
)

// bomb is a file with a module that a host's linter lets pass and that takes
// seconds to compile.
func bomb(t *testing.T) string {
	t.Helper()
	const name = "5 MiB of divisions"
	for _, m := range hostile.Modules() {
		if m.Name == name {
			file := filepath.Join(t.TempDir(), "bomb.wasm")
			if err := os.WriteFile(file, m.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			return file
		}
	}
	t.Fatalf("there is no %q", name)
	return ""
}

// scratchOf gives a test a scratch directory of its own, which must be empty
// at its end.
func scratchOf(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if path != dir {
				t.Errorf("%s is left", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	return dir
}

// boundedName is a program that inspects a module within limits that it is
// told: the time on the CPU and the time in all of a compilation.
const boundedName = "inspect-within"

func inspectWithin() {
	if os.Args[1] == compileName {
		main()
	}
	var cfg sandbox.Config
	cpu, cpuErr := time.ParseDuration(os.Args[1])
	wall, wallErr := time.ParseDuration(os.Args[2])
	wasm, err := os.ReadFile(os.Args[3])
	if err = errors.Join(cpuErr, wallErr, err); err == nil {
		cfg.CompileCPU, cfg.CompileWall = cpu, wall
		_, err = admitAlone(context.Background(), processEnv(), cfg, wasm)
		err = withFaults(os.Args[3], err)
	}
	fmt.Fprintln(os.Stderr, textOf(err))
	os.Exit(exitCode(err))
}

func TestACompileBombIsRefusedByTheLimitsOfAChild(t *testing.T) {
	file := bomb(t)
	for name, tc := range map[string]struct{ cpu, wall, says string }{
		"it computes too long": {"1s", "1h", "longer than 1s on the CPU to compile"},
		"it takes too long":    {"1h", "1s", "longer than 1s to compile"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.cpu == "1s" && runtime.GOOS != "linux" {
				t.Skip("this system has no such limit")
			}
			scratchOf(t)
			out, err := exec.Command(boundedName, tc.cpu, tc.wall, file).CombinedOutput()
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.ExitCode() != exitInvalid {
				t.Errorf("it ends with %v", err)
			}
			for _, want := range []string{file + ": ", "limit_exceeded", tc.says + " (limit sandbox.compileTime)"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("it says %q, which lacks %q", out, want)
				}
			}
			if strings.Count(string(out), "\n") != 1 {
				t.Errorf("it says more than that: %q", out)
			}
		})
	}
}

func TestAProgramThatDoesNotFindItselfSaysThatNothingBoundsACompilation(t *testing.T) {
	scratchOf(t)
	var said bytes.Buffer
	_, err := admitAlone(t.Context(), env{stderr: &said}, sandbox.Config{}, []byte("\x00asm\x01\x00\x00\x00"))
	if carrel.CodeOf(err) != abi.InvalidModule {
		t.Errorf("it ends with %v", err)
	}
	if !strings.Contains(said.String(), "without limits on time and memory") {
		t.Errorf("it says %q", said.String())
	}
}

func TestAnInspectionThatIsInterruptedLeavesNothing(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no process can interrupt another here")
	}
	file, dir := bomb(t), scratchOf(t)
	cmd := exec.Command("carrel", "inspect", file)
	cmd.Env = append(os.Environ(), "GORACE="+raceOptions)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for { // until it compiles
		if found, _ := filepath.Glob(filepath.Join(dir, "carrel-inspect-*", "code", "tmp-*")); len(found) > 0 {
			break
		}
		select {
		case err := <-done:
			t.Fatalf("it ends before it compiles: %v\n%s", err, said.String())
		default:
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := <-done
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != exitInterrupted {
		t.Errorf("it ends with %v", err)
	}
	if said.String() != "carrel: interrupted\n" {
		t.Errorf("it says %q", said.String())
	}
}
