package main

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// crasherName is a program whose report is in a file that it is told, and that
// crashes where it is told: at its run, at its end, or not at all.
const crasherName = "crasher"

func crasher() {
	crashAt := func(place string) func() error {
		return func() error {
			if place == os.Args[2] {
				go panic("in its " + place) // nothing can catch it
				select {}
			}
			return nil
		}
	}
	if err := reported(os.Args[1], slog.New(slog.DiscardHandler), crashAt("run"), crashAt("end")); err != nil {
		os.Exit(exitFailed)
	}
}

func TestACrashIsReportedUntilTheHostIsClosed(t *testing.T) {
	for place, want := range map[string]string{"run": "panic: in its run", "end": "panic: in its end", "nowhere": ""} {
		t.Run("it crashes in its "+place, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "crash.txt")
			err := exec.Command(crasherName, path, place).Run()
			report, readErr := os.ReadFile(path)
			if (err == nil) != (want == "") || readErr != nil || !strings.Contains(string(report), want) || want == "" && len(report) > 0 {
				t.Errorf("it ended with %v and reports %q, %v", err, report, readErr)
			}
		})
	}
}
