package plugins_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/quarantine"
	"github.com/carrelhost/carrel/plugins"
)

func TestALogSaysOnceForEachQuarantineThatAVersionDoesNotRun(t *testing.T) {
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	list := quarantine.Open(filepath.Join(t.TempDir(), "list"), at, slog.New(slog.DiscardHandler))
	log, err := plugins.NewLog(100)
	if err != nil {
		t.Fatal(err)
	}
	// None is kept ready, so that each call loads anew.
	l := newLibrary(t, func(c *plugins.Config) { c.Quarantine, c.Log, c.LoadedBytes = list, log, 1 })
	l.upload(true, "1", "2")
	crash := func() {
		t.Helper()
		for range quarantine.Crashes {
			at = at.Add(time.Minute)
			if _, err := list.Crashed(at, []quarantine.Suspect{{Digest: digest("1").Digest, Tenant: acme}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	refused := func() {
		t.Helper()
		for range 3 {
			_, err := l.Running(t.Context(), acme, "p", n(1))
			wantCode(t, err, abi.Forbidden)
		}
	}
	lines := func(want int) {
		t.Helper()
		said := log.After(acme, "p", 0, 100)
		if len(said) != want {
			t.Errorf("the log says %+v, want %d lines", said, want)
		}
		for _, line := range said {
			if line.Level != 3 || !strings.Contains(line.Text, "quarantined since") {
				t.Errorf("it says %+v", line)
			}
		}
	}
	crash()
	lines(0) // as long as nobody calls it
	refused()
	lines(1)
	if err := list.Lift(digest("1").Digest); err != nil {
		t.Fatal(err)
	}
	l.wantRunning(n(1), "1")
	l.wantRunning(n(2), "2") // for which the first made room
	crash()
	refused()
	lines(2)
}

func TestWhatIsKnownOfTheLogsOfQuarantinedVersionsIsBounded(t *testing.T) {
	if few, many := plugins.Told(10), plugins.Told(100_000); few != 10 || many < 1000 || many > 5000 {
		t.Errorf("of 10 versions %d are remembered, of 100,000 %d", few, many)
	}
}

func TestALiftIsSaidInTheLogsOfThePluginsThatItLetsRun(t *testing.T) {
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	list := quarantine.Open(filepath.Join(t.TempDir(), "list"), at, slog.New(slog.DiscardHandler))
	log, err := plugins.NewLog(100)
	if err != nil {
		t.Fatal(err)
	}
	l := newLibrary(t, func(c *plugins.Config) { c.Quarantine, c.Log = list, log })
	l.upload(true, "1", "2")
	d := digest("1").Digest
	for range quarantine.Crashes {
		if _, err := list.Crashed(at, []quarantine.Suspect{{Digest: d, Tenant: acme}, {Digest: d, Tenant: "nobody"}}); err != nil {
			t.Fatal(err)
		}
	}
	r, _ := list.Of(d)
	ran, err := l.Crashed(t.Context(), r)
	if err != nil || len(ran) != 1 || ran[0].Tenant != acme || ran[0].Plugin != "p" || ran[0].N != 1 {
		t.Errorf("what ran is %+v, %v", ran, err)
	}
	_, err = l.Running(t.Context(), acme, "p", n(1))
	wantCode(t, err, abi.Forbidden)
	if err := l.Lift(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	said := log.After(acme, "p", 0, 100)
	if len(said) != 2 || said[1].Level != 1 || !strings.Contains(said[1].Text, "quarantined no longer") {
		t.Errorf("the log says %+v", said)
	}
	if others := log.After("nobody", "p", 0, 100); len(others) > 0 {
		t.Errorf("who has no such plugin is told %+v", others)
	}
	wantCode(t, l.Lift(t.Context(), d), abi.NotFound)
	l.wantRunning(n(1), "1")
}
