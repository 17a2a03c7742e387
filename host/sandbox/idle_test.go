package sandbox_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// filler is a module whose method writes all of four pages. Its code differs
// by n.
func filler(n int) []byte {
	m := wasmtest.New()
	m.Memory(4)
	m.Method("run").Const(int32(n)).Drop().Const(0).Const(7).Const(4*sandbox.PageBytes).Raw(0xfc, 11, 0).Const(0)
	return m.Bytes()
}

func openFillers(t *testing.T, s *sandbox.Sandbox, n int) []*sandbox.Plugin {
	t.Helper()
	var all []*sandbox.Plugin
	for i := range n {
		all = append(all, open(t, s, filler(i)))
	}
	return all
}

func run(t *testing.T, p *sandbox.Plugin) {
	t.Helper()
	if _, err := p.Call(t.Context(), sandbox.Call{Export: "run"}); err != nil {
		t.Error(err)
	}
}

// unit returns what an instance of a filler keeps, as it is after a call and
// trimmed.
func unit(t *testing.T) (kept, trimmed int64) {
	t.Helper()
	s := newSandbox(t, sandbox.Config{})
	run(t, openFillers(t, s, 1)[0])
	kept = sandbox.IdleBytes(s)
	sandbox.Trim(s)
	return kept, sandbox.IdleBytes(s)
}

func TestInstancesOfAllPluginsShareOneBound(t *testing.T) {
	kept, trimmed := unit(t)
	if trimmed <= 0 || kept <= trimmed {
		t.Fatalf("an instance keeps %d bytes, trimmed %d", kept, trimmed)
	}
	const plugins, room = 40, 16
	s := newSandbox(t, sandbox.Config{IdleBytes: room * kept})
	all := openFillers(t, s, plugins)
	// state returns how many plugins from..to have an instance, and how many
	// one that is not trimmed.
	state := func(from, to int) (instances, whole int) {
		for _, p := range all[from:to] {
			n, trimmed := sandbox.Idle(p)
			instances += n
			whole += n - trimmed
		}
		return instances, whole
	}
	by, _ := s.Memory()
	copies := by == image.Copy.String() // nothing is given back but by those that go
	for i, p := range all {
		run(t, p)
		if got := sandbox.IdleBytes(s); got > room*kept {
			t.Fatalf("after %d calls %d bytes are kept, at most %d are allowed", i+1, got, room*kept)
		}
		if i == room && !copies {
			if n, whole := state(0, i+1); n != i+1 || whole != i+1-trimmedBy(kept, trimmed, room) {
				t.Errorf("after the first call too many there are %d instances, %d of them whole", n, whole)
			}
			if _, first := sandbox.Idle(all[0]); first != 1 {
				t.Error("another one than that which waits for longest gave its memory back")
			}
		}
	}
	if copies {
		return
	}
	if n, whole := state(plugins-room/2, plugins); n != room/2 || whole != room/2 {
		t.Errorf("of the last %d plugins %d have an instance, %d a whole one", room/2, n, whole)
	}
	if n, whole := state(0, 5); whole != 0 {
		t.Errorf("of the first 5 plugins %d have an instance, %d a whole one", n, whole)
	}
	for range 3 {
		for _, p := range all {
			run(t, p)
		}
	}
	if n, _ := state(0, plugins); n >= plugins || sandbox.IdleBytes(s) > room*kept {
		t.Errorf("%d instances keep %d bytes", n, sandbox.IdleBytes(s))
	}
	for _, p := range all {
		closing(t, p)
	}
	if got := sandbox.IdleBytes(s); got != 0 {
		t.Errorf("%d bytes are left when all are closed", got)
	}
}

// trimmedBy returns how many of room+1 instances have to be trimmed until
// they keep a sixteenth less than room.
func trimmedBy(kept, trimmed, room int64) (n int) {
	for bytes := (room + 1) * kept; bytes > room*kept-room*kept/16; bytes -= kept - trimmed {
		n++
	}
	return n
}

func TestAnInstanceThatIsLargerThanTheBoundIsNotKept(t *testing.T) {
	s := newSandbox(t, sandbox.Config{IdleBytes: 1})
	p := openFillers(t, s, 1)[0]
	for range 3 {
		run(t, p)
		if n, _ := sandbox.Idle(p); n != 0 || sandbox.IdleBytes(s) != 0 {
			t.Errorf("%d instances keep %d bytes", n, sandbox.IdleBytes(s))
		}
	}
}

func TestTheBoundHoldsWhileManyCall(t *testing.T) {
	kept, _ := unit(t)
	const slots, room = 4, 3
	s := newSandbox(t, sandbox.Config{Slots: slots, IdleBytes: room * kept})
	all := openFillers(t, s, 10)
	var group sync.WaitGroup
	for g := range 2 * slots {
		group.Go(func() {
			for i := range 100 {
				run(t, all[(g*3+i)%len(all)])
				if got := sandbox.IdleBytes(s); got > (room+slots)*kept { // those that run were counted
					t.Errorf("%d bytes are kept, at most %d are allowed", got, room*kept)
				}
				if i%20 == g {
					sandbox.Trim(s)
				}
			}
		})
	}
	group.Wait()
	run(t, all[0])
	var errs []error
	for _, p := range all {
		errs = append(errs, p.Close())
	}
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if got := sandbox.IdleBytes(s); got != 0 {
		t.Errorf("%d bytes are left when all are closed", got)
	}
}
