package sandbox

import (
	"context"
	"testing"
)

// Stock makes a plugin keep n instances, each of which ran an export.
func Stock(t testing.TB, p *Plugin, n int, export string, input []byte) {
	t.Helper()
	var all []*instance
	for range n {
		in, err := p.program.instance(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, in)
	}
	for _, in := range all {
		r := p.sandbox.call(Call{Input: input}, p.program.passed)
		err := p.sandbox.execute(t.Context(), 0, nil, r, func(ctx context.Context) error {
			return r.within(ctx, p.program.code, p.program.rewritten, in, []string{export}, false)
		})
		if err != nil {
			t.Fatal(err)
		}
		p.putBack(t.Context(), r, in, nil)
	}
}

// IdleBytes is what the instances of all plugins keep.
func IdleBytes(s *Sandbox) int64 { return s.idle.bytes.Load() }

// Trim takes the memory of all instances that wait, as after Config.Idle.
func Trim(s *Sandbox) {
	for _, p := range s.everyPlugin() {
		for _, i := range p.takeOut(func(i idler) bool { return !i.trimmed }) {
			p.shrink(i, false)
		}
	}
}
