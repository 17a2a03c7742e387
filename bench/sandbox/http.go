package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
)

// ownerKey is of hosts that nobody but this program knows.
const ownerKey = "owner-key-of-a-benchmark-0123456789"

// startHost runs a host in this process, as the command serve would, with
// its own store and settings as they come. end drains and closes it.
func (b *bench) startHost(ctx context.Context) (base string, end func() error, err error) {
	cfg := host.DefaultConfig()
	cfg.Listen, cfg.Data, cfg.OwnerKey = "127.0.0.1:0", filepath.Join(b.dir, "host"), ownerKey
	cfg.Models = map[string]host.Model{"default": {Provider: host.ProviderOffline}}
	h, err := host.New(ctx, cfg, client.HostVersion{Version: "bench"}, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", nil, err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- h.Run(running) }()
	return h.Info().Address, func() error {
		cancel()
		return errors.Join(<-ended, h.Close())
	}, nil
}

// startEcho serves the peers: a handler that does nothing, and one that runs
// a guest in Extism.
func startEcho(ctx context.Context, peer pdk) (base string, end func() error, err error) {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.POST("/noop", func(c echo.Context) error {
		if _, err := io.Copy(io.Discard, c.Request().Body); err != nil {
			return err
		}
		return c.JSONBlob(http.StatusOK, []byte(`{}`))
	})
	e.POST("/extism", func(c echo.Context) error { //nolint:contextcheck // the request's is passed
		in, err := io.ReadAll(c.Request().Body)
		if err != nil {
			return err
		}
		out, err := peer.fresh(c.Request().Context(), in)
		if err != nil {
			return err
		}
		return c.JSONBlob(http.StatusOK, out)
	})
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	e.Listener = l
	ended := make(chan error, 1)
	go func() { ended <- e.Start("") }()
	return "http://" + l.Addr().String(), func() error {
		err := e.Close()
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}

// The plugins of the hosts that are measured.
const (
	smallPlugin  = "small"
	goPlugin     = "golang"
	warmPlugin   = "warm"
	warmedPlugin = "warmed"
)

// http compares requests per second.
func (b *bench) http(ctx context.Context) (err error) {
	base, end, err := b.startHost(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	owner := &client.Client{Base: base, Key: ownerKey}
	for _, p := range []struct {
		name    string
		wasm    []byte
		warmup  string
		methods []string
	}{
		{smallPlugin, b.guests.small, "", []string{noop}}, {goPlugin, b.guests.golang, "", []string{noop, total}},
		{warmPlugin, b.guests.warm, "", []string{total}}, {warmedPlugin, b.guests.golang, total, []string{total}},
	} {
		whole, err := withManifest(p.wasm, p.name, p.warmup, p.methods...)
		if err != nil {
			return err
		}
		if _, err := owner.Upload(ctx, whole, client.UploadOptions{}); err != nil {
			return fmt.Errorf("upload %s: %w", p.name, err)
		}
	}
	peer, err := openPDK(ctx, b.guests.extism, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, peer.close(ctx)) }()
	echoed, endEcho, err := startEcho(ctx, peer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endEcho()) }()

	rates, err := compareLoads(ctx, b.time, []target{
		{name: "echo", url: echoed + "/noop", body: "{}", answer: "{}"},
		{name: "small", url: base + path(smallPlugin, noop), key: ownerKey, body: "{}"},
		{name: "go", url: base + path(goPlugin, noop), key: ownerKey, body: "{}"},
		{name: "warmed", url: base + path(warmedPlugin, total), key: ownerKey, body: order, answer: `"output":` + sum},
		{name: "warm", url: base + path(warmPlugin, total), key: ownerKey, body: order, answer: `"output":` + sum},
		{name: "json", url: base + path(goPlugin, total), key: ownerKey, body: order, answer: `"output":` + sum},
		{name: "extism", url: echoed + "/extism", body: order, answer: sum},
	})
	if err != nil {
		return err
	}
	for _, r := range []struct{ what, ours, peer, named, goal string }{
		{"HTTP requests, a method that does nothing, a C-like guest", "small", "echo", "Echo", "≥ 0.8 ×"},
		{"HTTP requests, a method that does nothing, a Go guest", "go", "echo", "Echo", "≥ 0.5 ×"},
		{"HTTP requests, a JSON handler in Go, with a warm-up", "warmed", "extism", "Echo and Extism fresh", "≥ 10 ×"},
		{"HTTP requests, a JSON handler in Go, which has run in its initialisation", "warm", "extism", "Echo and Extism fresh", "≥ 10 ×"},
		{"HTTP requests, a JSON handler in Go, which has not", "json", "extism", "Echo and Extism fresh", "≥ 10 ×"},
	} {
		b.add(r.what, fmt.Sprintf("%.0f/s", rates[r.ours]), fmt.Sprintf("%s: %.0f/s", r.named, rates[r.peer]),
			fmt.Sprintf("%.2f ×", rates[r.ours]/rates[r.peer]), r.goal)
	}
	return nil
}

// turns is how often each target has its turn, so that what disturbs the
// machine disturbs all of them.
const turns = 5

// compareLoads loads the targets by turns, each for so long altogether, and
// returns the median of the answers per second by name.
func compareLoads(ctx context.Context, each time.Duration, targets []target) (map[string]float64, error) {
	rates := map[string][]float64{}
	for turn := range turns + 1 {
		for _, t := range targets {
			rate, err := t.load(ctx, each/turns)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", t.name, err)
			}
			if turn > 0 { // the first one warms up
				rates[t.name] = append(rates[t.name], rate)
			}
		}
	}
	out := map[string]float64{}
	for name, all := range rates {
		out[name] = median(all)
	}
	return out, nil
}
