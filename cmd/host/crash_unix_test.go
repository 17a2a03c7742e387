//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestACrashIsReportedWhateverStandsInTheReportsPlace also has a directory where
// that is moved to.
func TestACrashIsReportedWhateverStandsInTheReportsPlace(t *testing.T) {
	for name, place := range map[string]func(path, victim string) error{
		"a link":                    func(path, victim string) error { return os.Symlink(victim, path) },
		"a link to nothing":         func(path, victim string) error { return os.Symlink(victim+".none", path) },
		"a pipe that nobody reads":  func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
		"a directory with contents": func(path, _ string) error { return os.MkdirAll(filepath.Join(path, "more"), 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, victim := filepath.Join(dir, "data", "crash.txt"), filepath.Join(dir, "victim")
			err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o600), os.MkdirAll(filepath.Join(path+".damaged", "more"), 0o700),
				place(path, victim))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := exec.CommandContext(ctx, crasherName, path, "run").Run(); err == nil || ctx.Err() != nil {
				t.Errorf("it ended with %v, %v", err, ctx.Err())
			}
			info, err := os.Lstat(path)
			if err != nil || !info.Mode().IsRegular() {
				t.Fatalf("the report is %+v, %v", info, err)
			}
			if report, err := os.ReadFile(path); err != nil || !strings.Contains(string(report), "panic: in its run") {
				t.Errorf("it reports %q, %v", report, err)
			}
			if kept, err := os.ReadFile(victim); err != nil || string(kept) != "precious" {
				t.Errorf("what the link leads to is %q, %v", kept, err)
			}
			if _, err := os.Lstat(victim + ".none"); err == nil {
				t.Error("the link was followed")
			}
		})
	}
}
