package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// model is a history as a plain list of turns.
type model struct {
	system string
	turns  []carrel.Turn
	last   int64
}

func (m *model) messages() (n int64) {
	for _, t := range m.turns {
		n += int64(len(t.Messages))
	}
	if m.system != "" {
		n++
	}
	return n
}

// commit does what a commit says and returns what it trims.
func (m *model) commit(c store.Commit) (trimmed int64) {
	if c.System != nil {
		m.system = *c.System
	}
	before, turns := m.last, c.Turns
	if len(m.turns) == 0 {
		turns = slices.Concat(c.Seeds, c.Turns)
	}
	for _, t := range turns {
		m.last++
		m.turns = append(m.turns, carrel.Turn{N: m.last, Messages: t.Messages})
	}
	m.turns = slices.DeleteFunc(m.turns, func(t carrel.Turn) bool { return t.N <= min(c.DropTo, before) })
	for c.Most > 0 && m.messages() > c.Most && len(m.turns) > 1 {
		trimmed += int64(len(m.turns[0].Messages))
		m.turns = m.turns[1:]
	}
	return trimmed
}

func drawTurns(t *rapid.T, label string, most int) []store.NewTurn {
	var turns []store.NewTurn
	for range rapid.IntRange(0, most).Draw(t, label) {
		turn := toolTurn()
		if rapid.Bool().Draw(t, "plain") {
			turn = turnOf(rapid.StringN(0, 5, -1).Draw(t, "text"), "answer")
		}
		turns = append(turns, store.NewTurn{Messages: turn})
	}
	return turns
}

// Changes of one history after another, each checked.
func commitModel(t *testing.T, s store.Store) {
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		k := keyOf(acme, carrel.MemoryID(fmt.Sprint(n)))
		touched, err := s.Touch(context.Background(), touchOf(requestScope(acme, "r"), k))
		if err != nil {
			t.Fatal(err)
		}
		generation := touched.Generation
		var m model
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			if m.last > 0 && rapid.IntRange(0, 2).Draw(t, "kind of change") == 0 {
				m.drawDeletion(t, s, k, generation)
			} else {
				m.drawCommit(t, s, k, generation)
			}
			m.wantSeen(t, s, k, generation)
		}
		wantCounted(t, s, k)
	})
}

func (m *model) drawCommit(t *rapid.T, s store.Store, k carrel.MemoryKey, generation int64) {
	c := commitOf(requestScope(acme, "r"), k, generation)
	if rapid.Bool().Draw(t, "has system") {
		system := rapid.SampledFrom([]string{"", "S", "another"}).Draw(t, "system")
		c.System = &system
	}
	c.Seeds, c.Turns = drawTurns(t, "seeds", 2), drawTurns(t, "turns", 3)
	if rapid.Bool().Draw(t, "drops") {
		c.DropTo = rapid.Int64Range(0, m.last+2).Draw(t, "drop to")
	}
	c.Most = rapid.Int64Range(0, 20).Draw(t, "most")
	done, err := s.Commit(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	want := store.Committed{Generation: generation, Trimmed: m.commit(c), LastTurn: m.last}
	if d := cmp.Diff(want, done); d != "" {
		t.Fatalf("committed differs (-want +got):\n%s", d)
	}
}

func (m *model) drawDeletion(t *rapid.T, s store.Store, k carrel.MemoryKey, generation int64) {
	turn := rapid.Int64Range(0, m.last+1).Draw(t, "turn")
	err := s.DeleteTurn(context.Background(), k, generation, turn)
	i := slices.IndexFunc(m.turns, func(t carrel.Turn) bool { return t.N == turn })
	switch {
	case i < 0 && carrel.CodeOf(err) != abi.NotFound:
		t.Fatalf("deleting turn %d, which is not there: %v", turn, err)
	case i >= 0 && err != nil:
		t.Fatal(err)
	case i >= 0:
		m.turns = slices.Delete(m.turns, i, i+1)
	}
}

func (m *model) wantSeen(t *rapid.T, s store.Store, k carrel.MemoryKey, generation int64) {
	v, err := s.View(context.Background(), k, store.ViewLimit{Messages: 1000})
	if err != nil {
		t.Fatal(err)
	}
	want := store.View{Generation: generation, System: m.system, LastTurn: m.last, Stored: m.messages()}
	if m.system != "" {
		want.Stored--
	}
	if len(m.turns) > 0 {
		want.Recent = m.turns
	}
	if d := cmp.Diff(want, v); d != "" {
		t.Fatalf("view differs (-want +got):\n%s", d)
	}
}
