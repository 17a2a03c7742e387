//go:build unix

package crash_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/host/sandbox/marker"
	"github.com/carrelhost/carrel/internal/testenv"
)

func TestWhichReportsCountAsCrashes(t *testing.T) {
	for name, c := range map[string]struct {
		report string
		want   bool
	}{
		"none":                            {},
		"a fault in compiled code":        {"\nruntime stack:\nruntime.throw({0x9c3981?, 0x8578298f160?})\n", true},
		"a fatal error":                   {"\ngoroutine 18 [running]:\ninternal/runtime/maps.fatal({0x65a1b5?, 0x0?})\n", true},
		"a panic":                         {"panic: runtime error: index out of range\n\ngoroutine 7 [running]:\n", true},
		"a signal of the processor":       {"SIGSEGV: segmentation violation\nPC=0x4939c1 m=0 sigcode=1 addr=0x1\n", true},
		"a signal of a supervisor":        {"SIGABRT: abort\nPC=0x4939c1 m=0 sigcode=0\n", false},
		"an operator looks at goroutines": {"SIGQUIT: quit\nPC=0x4939c1 m=0 sigcode=0\n\ngoroutine 1 [running]:\n", false},
		"something else":                  {"\x00\x01\x02", false},
		"text":                            {"it says panic: here\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testenv.Config()
			cfg.Data, cfg.Store = t.TempDir(), host.StoreMemory
			// Somebody's guest runs, in a process that is gone.
			digest := carrel.DigestOf([]byte("guest"))
			marks, _, err := marker.Open(filepath.Join(cfg.Data, "running"), 5)
			if err != nil {
				t.Fatal(err)
			}
			marks.Take((*[32]byte)(&digest), "mallory")
			if err := marks.Close(); err != nil {
				t.Fatal(err)
			}
			overwrite(t, filepath.Join(cfg.Data, "crash.txt"), []byte(c.report))
			all := ranAt(t, cfg)
			if counted := len(all) == 1 && all[0].Digest == digest.String() && len(all[0].Crashes) == 1; counted != c.want || len(all) > 1 {
				t.Errorf("%+v, want one: %v", all, c.want)
			}
			if again := ranAt(t, cfg); len(again) != len(all) || len(all) > 0 && len(again[0].Crashes) != 1 {
				t.Errorf("at the next start it counts again: %+v", again)
			}
		})
	}
}

func TestTheNewestReportsOfCrashesAreKeptAndTheyAreBounded(t *testing.T) {
	cfg := testenv.Config()
	cfg.Data, cfg.Store = t.TempDir(), host.StoreMemory
	report := filepath.Join(cfg.Data, "crash.txt")
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for i := range 7 {
		overwrite(t, report, []byte("panic: "+strings.Repeat("x", i<<20)))
		if err := os.Chtimes(report, at, at.Add(time.Duration(i)*time.Hour)); err != nil {
			t.Fatal(err)
		}
		ranAt(t, cfg)
	}
	kept, err := filepath.Glob(filepath.Join(cfg.Data, "crashes", "*"))
	if err != nil || len(kept) != 5 || filepath.Base(kept[0]) != "20260131T140000.000000000.txt" {
		t.Errorf("%v are kept, %v", kept, err)
	}
	for _, path := range kept {
		if info, err := os.Stat(path); err != nil || info.Size() > 4<<20 {
			t.Errorf("%s: %+v, %v", path, info, err)
		}
	}
}

func TestTheLogNamesThePluginsThatRanAtACrash(t *testing.T) {
	cfg := testenv.Config()
	cfg.Data = t.TempDir()
	var said bytes.Buffer
	start := func(do func(info host.Info)) {
		t.Helper()
		h, err := host.New(t.Context(), cfg, client.HostVersion{}, slog.New(slog.NewTextHandler(&said, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		do(h.Info())
		stop()
		if err := errors.Join(<-ended, h.Close()); err != nil {
			t.Error(err)
		}
	}
	wasm := testenv.Pack(t, lounge)
	start(func(info host.Info) {
		key, err := os.ReadFile(filepath.Join(cfg.Data, "owner.key"))
		if err != nil {
			t.Fatal(err)
		}
		cl := &client.Client{Base: info.Address, Key: strings.TrimSpace(string(key))}
		if _, err := cl.Upload(t.Context(), wasm, client.UploadOptions{}); err != nil {
			t.Error(err)
		}
	})
	for crash, want := range []string{
		"level=WARN msg=\"a plugin ran when the host crashed; at another crash soon it is quarantined\" versions=\"[default lounge@1]\" digest=",
		"level=ERROR msg=\"a plugin ran at crashes of the host and is quarantined; `carrel quarantine lift` ends that\" versions=\"[default lounge@1]\" digest=",
	} {
		digest := carrel.DigestOf(wasm)
		marks, _, err := marker.Open(filepath.Join(cfg.Data, "running"), 5)
		if err != nil {
			t.Fatal(err)
		}
		marks.Take((*[32]byte)(&digest), "default")
		if err := marks.Close(); err != nil {
			t.Fatal(err)
		}
		overwrite(t, filepath.Join(cfg.Data, "crash.txt"), []byte("panic: no\n\ngoroutine 7 [running]:\n"))
		said.Reset()
		start(func(host.Info) {})
		if !strings.Contains(said.String(), want) {
			t.Errorf("after crash %d the log says\n%s\nwant in it: %s", crash+1, said.String(), want)
		}
	}
	overwrite(t, filepath.Join(cfg.Data, "crash.txt"), []byte("SIGQUIT: quit\nPC=0x4939c1 m=0 sigcode=0\n"))
	said.Reset()
	start(func(host.Info) {})
	if want := "and ended (SIGQUIT)\" at=20"; !strings.Contains(said.String(), want) {
		t.Errorf("after SIGQUIT the log says\n%s\nwant in it: %s", said.String(), want)
	}
}

// ranAt starts a host in this process, and returns what ran at crashes.
func ranAt(t *testing.T, cfg host.Config) []client.CrashedModule {
	t.Helper()
	h, err := host.New(t.Context(), cfg, client.HostVersion{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	page, err := (&client.Client{Base: h.Info().Address, Key: testenv.AdminKey}).CrashedModules(t.Context(), client.ListOptions{})
	if err != nil {
		t.Error(err)
	}
	stop()
	if err := errors.Join(<-ended, h.Close()); err != nil {
		t.Error(err)
	}
	return page.Data
}
