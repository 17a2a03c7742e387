package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carrelhost/carrel/host/sandbox"
)

// noop compares calls that do nothing.
func (b *bench) noop(ctx context.Context) error {
	for _, g := range []struct {
		name string
		wasm []byte
		most time.Duration
	}{{"a C-like guest", b.guests.small, 5 * time.Microsecond}, {"a Go guest", b.guests.golang, 20 * time.Microsecond}} {
		if err := b.noopOf(ctx, g.name, g.wasm, g.most); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) noopOf(ctx context.Context, name string, wasm []byte, most time.Duration) (err error) {
	ours, err := openSandboxed(ctx, wasm, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.close()) }()
	engine, err := openPlain(ctx, wasm, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.close(ctx)) }()
	live := engine.caller(noop)
	times, err := compare(ctx, b.time, []subject{
		{"carrel", func(ctx context.Context) error { _, err := ours.call(ctx, noop, nil); return err }},
		{"live", func(ctx context.Context) error { _, err := live(ctx, nil); return err }},
		{"fresh", func(ctx context.Context) error { _, err := engine.fresh(ctx, noop, nil); return err }},
	})
	if err != nil {
		return err
	}
	what := "a call that does nothing, with fresh state, " + name
	b.add(what, fmt.Sprintf("%s (path: %s)", shown(times["carrel"]), ours.report.Path), "wazero live: "+shown(times["live"]),
		fmt.Sprintf("%s over it", shown(times["carrel"]-times["live"])), fmt.Sprintf("≤ %v over it", most))
	b.add(what, shown(times["carrel"]), "wazero fresh: "+shown(times["fresh"]),
		fmt.Sprintf("%.1f × as fast", ratio(times["fresh"], times["carrel"])), "")
	return nil
}

// expect makes a subject of a call that has to answer the sum of the order.
func expect(name string, call func(ctx context.Context, input []byte) ([]byte, error)) subject {
	return expectOf(order, sum, name, call)
}

// expectOf is expect for an order and its sum.
func expectOf(asked, answer, name string, call func(ctx context.Context, input []byte) ([]byte, error)) subject {
	input := []byte(asked)
	return subject{name, func(ctx context.Context) error {
		out, err := call(ctx, input)
		if err == nil && string(out) != answer {
			err = fmt.Errorf("it answers %q", out)
		}
		return err
	}}
}

// json compares calls that decode, compute and encode.
func (b *bench) json(ctx context.Context) (err error) {
	ours, err := openSandboxed(ctx, b.guests.golang, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.close()) }()
	warmed, err := openSandboxed(ctx, b.guests.golang, &sandbox.Warmup{Export: total, Input: []byte(order)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, warmed.close()) }()
	warm, err := openSandboxed(ctx, b.guests.warm, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, warm.close()) }()
	engine, err := openPlain(ctx, b.guests.golang, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.close(ctx)) }()
	peer, err := openPDK(ctx, b.guests.extism, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, peer.close(ctx)) }()
	stoppable, err := openPDK(ctx, b.guests.extism, uint64(callTimeout.Milliseconds()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stoppable.close(ctx)) }()
	reused, err := peer.instance(ctx)
	if err != nil {
		return err
	}
	times, err := compare(ctx, b.time, []subject{
		expect("carrel", func(ctx context.Context, in []byte) ([]byte, error) { return ours.call(ctx, total, in) }),
		expect("warmed", func(ctx context.Context, in []byte) ([]byte, error) { return warmed.call(ctx, total, in) }),
		expect("warm", func(ctx context.Context, in []byte) ([]byte, error) { return warm.call(ctx, total, in) }),
		expect("wazero live", engine.caller(total)),
		expect("wazero fresh", func(ctx context.Context, in []byte) ([]byte, error) { return engine.fresh(ctx, total, in) }),
		expect("Extism reused", func(ctx context.Context, in []byte) ([]byte, error) { return useExtism(ctx, reused, in) }),
		expect("Extism fresh", peer.fresh),
		expect("Extism fresh, with its timeout", stoppable.fresh),
	})
	if err != nil {
		return err
	}
	for _, g := range []struct{ name, what string }{
		{"warmed", "a JSON handler in Go, with the fresh state that its warm-up left"},
		{"warm", "the same without a warm-up, in whose initialisation it has run"},
		{"carrel", "the same with the state before its first run"},
	} {
		mine := times[g.name]
		b.add(g.what, shown(mine), "wazero live: "+shown(times["wazero live"]), fmt.Sprintf("%.2f × its time", ratio(mine, times["wazero live"])), "≤ 1.3 ×")
		for _, p := range []struct{ name, goal string }{
			{"Extism fresh", "≥ 15 × faster"}, {"Extism fresh, with its timeout", ""}, {"Extism reused", ""}, {"wazero fresh", ""},
		} {
			b.add(g.what, shown(mine), p.name+": "+shown(times[p.name]), fmt.Sprintf("%.2f × as fast", ratio(times[p.name], mine)), p.goal)
		}
	}
	return b.largeJSON(ctx, warmed, engine, peer)
}

// largeJSON compares calls with a document that takes longer than what a call
// costs besides.
func (b *bench) largeJSON(ctx context.Context, warmed sandboxed, engine plain, peer pdk) error {
	asked, answer, err := large()
	if err != nil {
		return err
	}
	times, err := compare(ctx, b.time, []subject{
		expectOf(asked, answer, "warmed", func(ctx context.Context, in []byte) ([]byte, error) { return warmed.call(ctx, total, in) }),
		expectOf(asked, answer, "wazero live", engine.caller(total)),
		expectOf(asked, answer, "Extism fresh", peer.fresh),
	})
	if err != nil {
		return err
	}
	what := fmt.Sprintf("the JSON handler with its warm-up, and an order of %d numbers, %d bytes", largeItems, len(asked))
	mine := times["warmed"]
	b.add(what, shown(mine), "wazero live: "+shown(times["wazero live"]), fmt.Sprintf("%.2f × its time", ratio(mine, times["wazero live"])), "≤ 1.3 ×")
	b.add(what, shown(mine), "Extism fresh: "+shown(times["Extism fresh"]), fmt.Sprintf("%.2f × as fast", ratio(times["Extism fresh"], mine)), "")
	return nil
}
