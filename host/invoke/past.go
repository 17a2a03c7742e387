package invoke

import (
	"context"
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
	"github.com/carrelhost/carrel/store"
)

// past is a history as a chat method found it, and what its window allows to
// be sent of it. The zero past is one that was not read.
type past struct {
	key    carrel.MemoryKey
	view   store.View
	window memory.Window
	turns  []carrel.Turn   // what may be sent: the newest turns, or the seeds of a history that has none
	seeds  []store.NewTurn // what the first turn is stored with
	// generation is what the turn is built upon: the view's, or, if there was
	// no history, that of the one which an inner turn on the same key began.
	generation int64
}

// past reads a history, once: the rate by which a window of tokens is judged
// is known only after that, so as much is read as fits at the lowest.
func (v *Invoker) past(ctx context.Context, m abi.Method, k carrel.MemoryKey) (past, error) {
	most := v.cfg.Limits.WindowBytes
	var limit store.ViewLimit
	limit.Messages, limit.Bytes = memory.NewWindow(*m.Window, most, memory.MinTokenRate).Read()
	view, err := v.cfg.Histories.View(ctx, k, limit)
	if err != nil {
		return past{}, fmt.Errorf("read history: %w", err)
	}
	p := past{
		key: k, view: view, window: memory.NewWindow(*m.Window, most, view.TokenRate),
		turns: view.Recent, generation: view.Generation,
	}
	if view.Stored > 0 {
		return p, nil
	}
	for _, turn := range memory.Seeds(m.Seed) {
		p.turns = append(p.turns, carrel.Turn{Messages: turn})
		p.seeds = append(p.seeds, store.NewTurn{Messages: turn})
	}
	return p, nil
}

// dropTo returns the number of the newest turn that a method does not keep
// once turn is stored with the given system message, or 0.
func (p past) dropTo(m abi.Method, system string, turn []carrel.Message) int64 {
	if m.Retain != abi.RetainWindow {
		return 0
	}
	return p.window.Drop(system, p.view.Recent, p.view.LastTurn, turn)
}

// began says that this invocation's turn began a history. The turns of its
// ancestors that found none under this key are appended to it.
func (f *frame) began(k carrel.MemoryKey, generation int64) {
	for p := f.parent; p != nil; p = p.parent {
		if p.past.key == k && p.past.generation == 0 {
			p.past.generation = generation
		}
	}
}
