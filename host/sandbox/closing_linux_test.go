package sandbox_test

import (
	"errors"
	"testing"
	"time"

	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/internal/testproc"
)

// TestAKilledGuestsMemoryIsGoneWithItsSlot ends calls by their time that wrote
// 30 MiB each, and has the slot of each right after it.
func TestAKilledGuestsMemoryIsGoneWithItsSlot(t *testing.T) {
	const written = 30 << 20
	m := wasmtest.New()
	m.Memory(written>>16 + 1)
	m.Method("run").Const(0).Const(1).Const(written).Raw(0xfc, 0x0b, 0). // memory.fill
										Loop().Br(0).End().Unreachable()
	s := newSandbox(t, sandbox.Config{Slots: 1})
	if by, _ := s.Memory(); by == image.Copy.String() {
		t.Skip("guests' memory is the process's own")
	}
	p := open(t, s, m.Bytes())
	took := errors.New("it took too long")
	before := testproc.Memory(t, testproc.Resident)
	for range 5 {
		_, err := p.Call(t.Context(), sandbox.Call{
			Export: "run", Share: "a", Limit: 50 * time.Millisecond, LimitCause: func() error { return took },
		})
		if !errors.Is(err, took) {
			t.Fatalf("it ended with %v", err)
		}
		release := sandbox.OccupySlot(t, s, "b")
		if now := testproc.Memory(t, testproc.Resident); now > before+written/2 {
			t.Errorf("the process had %d KiB and has %d", before>>10, now>>10)
		}
		release()
	}
	if _, err := p.Call(t.Context(), sandbox.Call{Export: "run", Share: "a", Limit: 50 * time.Millisecond}); err == nil {
		t.Fatal("it ended well")
	}
	if err := p.Close(); err != nil { // which needs all memory to be given back
		t.Error(err)
	}
	if held, waiting := sandbox.OnSlots(s, "a"); held != 0 || waiting != 0 {
		t.Errorf("after Close %d slots are held, and %d wait", held, waiting)
	}
}
