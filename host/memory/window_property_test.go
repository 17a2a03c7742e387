package memory_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
)

// aTurn draws a whole turn, with up to three rounds of tool calls.
func aTurn(t *rapid.T, n int64) carrel.Turn {
	text := fmt.Sprintf("U%d", n)
	for i := range rapid.IntRange(0, 3).Draw(t, "rounds") {
		text += fmt.Sprintf(" AT%d.%d", n, i)
		for j := range rapid.IntRange(1, 2).Draw(t, "calls") {
			text += fmt.Sprintf(" T%d.%d.%d", n, i, j)
		}
	}
	long := strings.Repeat("x", rapid.IntRange(0, 20).Draw(t, "long"))
	return carrel.Turn{N: n, Messages: messages(text + fmt.Sprintf(" A%d%s", n, long))}
}

func aHistory(t *rapid.T) []carrel.Turn {
	var history []carrel.Turn
	n := int64(0)
	for range rapid.IntRange(0, 8).Draw(t, "turns") {
		n += rapid.Int64Range(1, 3).Draw(t, "step") // turns may have been deleted by hand
		history = append(history, aTurn(t, n))
	}
	return history
}

func aWindow(t *rapid.T) memory.Window {
	w := memory.Window{TokenRate: rapid.SampledFrom([]int{0, 100, 250, 1000}).Draw(t, "rate")}
	if rapid.Bool().Draw(t, "bound by messages") {
		w.Messages = rapid.IntRange(1, 30).Draw(t, "messages")
	}
	if rapid.Bool().Draw(t, "bound by tokens") {
		w.Tokens = rapid.Int64Range(1, 200).Draw(t, "tokens")
	}
	if rapid.Bool().Draw(t, "bound by bytes") {
		w.Bytes = rapid.Int64Range(1, 200).Draw(t, "bytes")
	}
	return w
}

// view reads a history as a store's View does: the newest messages within
// limits, whatever turn they begin in. Whether the message that exceeds the
// bytes is among them must not matter.
func view(history []carrel.Turn, limit int, bytes int64, last bool) []carrel.Turn {
	var out []carrel.Turn
	left := bytes
	for _, turn := range slices.Backward(history) {
		first := len(turn.Messages)
		for first > 0 && limit > 0 && (bytes == 0 || left >= 0) {
			size := turn.Messages[first-1].Size()
			if left -= size; bytes > 0 && left < 0 && !last {
				break
			}
			first--
			limit--
		}
		if turn.Messages = turn.Messages[first:]; len(turn.Messages) > 0 {
			out = append([]carrel.Turn{turn}, out...)
		}
		if first > 0 {
			break
		}
	}
	return out
}

func cost(list []carrel.Message, rate int) (tokens, bytes int64) {
	for _, m := range list {
		tokens += memory.Tokens(m, rate)
		bytes += m.Size()
	}
	return tokens, bytes
}

func flat(list []carrel.Turn) []carrel.Message {
	var out []carrel.Message
	for _, turn := range list {
		out = append(out, turn.Messages...)
	}
	return out
}

func TestWindowProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history, w := aHistory(t), aWindow(t)
		system := rapid.SampledFrom([]string{"", "S"}).Draw(t, "system")
		current := aTurn(t, 99).Messages
		current = current[:rapid.IntRange(1, len(current)).Draw(t, "current")]
		limit, bytes := w.Read()
		recent := view(history, limit, bytes, rapid.Bool().Draw(t, "with the last"))

		got, err := w.Send(system, recent, current)
		alone := slices.Concat(messages(system), current)
		aloneTokens, _ := cost(alone, w.TokenRate)
		if tooLarge := w.Tokens > 0 && aloneTokens > w.Tokens; tooLarge || err != nil {
			if !tooLarge || carrel.CodeOf(err) != abi.ContextTooLarge {
				t.Fatalf("%d tokens alone in a window of %d: %v", aloneTokens, w.Tokens, err)
			}
			return
		}
		if whole := send(t, w, system, history, current); !reflect.DeepEqual(got, whole) {
			t.Fatalf("a view sends %q, the history %q", contents(got), contents(whole))
		}

		rest := got
		if system != "" {
			if rest[0].Role != carrel.RoleSystem || rest[0].Content != system {
				t.Fatalf("the first message is %+v", rest[0])
			}
			rest = rest[1:]
		}
		if slices.ContainsFunc(rest, func(m carrel.Message) bool { return m.Role == carrel.RoleSystem }) {
			t.Fatalf("there is another system message: %q", contents(rest))
		}
		if rest[0].Role != carrel.RoleUser {
			t.Fatalf("the first message after the system message is %+v", rest[0])
		}
		old := rest[:len(rest)-len(current)]
		if !reflect.DeepEqual(rest[len(old):], current) {
			t.Fatalf("the current turn is sent as %q", contents(rest[len(old):]))
		}
		kept := 0 // whole turns, from the newest: so calls have their results
		for n := len(old); n > 0; kept++ {
			turn := history[len(history)-1-kept].Messages
			if len(turn) > n || !reflect.DeepEqual(old[n-len(turn):n], turn) {
				t.Fatalf("%q is no suffix of whole turns", contents(old))
			}
			n -= len(turn)
		}
		fits := func(old []carrel.Message) bool {
			tokens, _ := cost(slices.Concat(alone, old), w.TokenRate)
			_, bytes := cost(old, 0)
			return (w.Messages == 0 || len(alone)+len(old) <= w.Messages) && (w.Tokens == 0 || tokens <= w.Tokens) && (w.Bytes == 0 || bytes <= w.Bytes)
		}
		if kept > 0 && !fits(old) {
			t.Fatalf("%q is more than %+v", contents(got), w)
		}
		if kept < len(history) && fits(flat(history[len(history)-1-kept:])) {
			t.Fatalf("a turn fits and is left out: %q", contents(history[len(history)-1-kept].Messages))
		}
	})
}

func TestDropProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history, w := aHistory(t), aWindow(t)
		system := rapid.SampledFrom([]string{"", "S"}).Draw(t, "system")
		var last int64
		if len(history) > 0 {
			last = history[len(history)-1].N
		}
		current := aTurn(t, last+1)
		limit, bytes := w.Read()
		to := w.Drop(system, view(history, limit, bytes, rapid.Bool().Draw(t, "with the last")), last, current.Messages)
		if to < 0 || to > last {
			t.Fatalf("it drops up to %d of %d", to, last)
		}
		kept := slices.DeleteFunc(slices.Clone(history), func(turn carrel.Turn) bool { return turn.N <= to })

		// What is kept is what is sent with the whole turn.
		if got, err := w.Send(system, history, current.Messages); err != nil {
			if len(kept) > 0 {
				t.Fatalf("it keeps %q beside a turn that is too large alone", contents(flat(kept)))
			}
		} else if want := slices.Concat(messages(system), flat(kept), current.Messages); contents(got) != contents(want) {
			t.Fatalf("it keeps %q, a send has %q", contents(want), contents(got))
		}

		// What comes next does not miss what was dropped.
		next := aTurn(t, last+2).Messages
		all, allErr := w.Send(system, append(slices.Clone(history), current), next)
		rest, restErr := w.Send(system, append(kept, current), next)
		if contents(all) != contents(rest) || (allErr == nil) != (restErr == nil) {
			t.Fatalf("the next send has %q, without a drop it has %q", contents(rest), contents(all))
		}
	})
}

// FuzzWindow checks what must hold whatever clients, models and providers
// say, and whatever a store has as a rate.
func FuzzWindow(f *testing.F) {
	f.Add(4, int64(0), int64(0), 0, "S", "U1 A1 U2 AT2 T2 A2", "U3", int64(7))
	f.Add(0, int64(40), int64(9), 300, "", "A0 U1 A1", "U2 AT T", int64(1)<<62)
	f.Add(1, int64(1), int64(1), -1, "x", "", "U", int64(-1))
	f.Fuzz(func(t *testing.T, most int, tokens, bytes int64, rate int, system, old, now string, counted int64) {
		var recent []carrel.Turn
		for i, m := range messages(old) {
			if m.Role == carrel.RoleUser || i == 0 {
				recent = append(recent, carrel.Turn{N: int64(len(recent)) + 1})
			}
			turn := &recent[len(recent)-1]
			turn.Messages = append(turn.Messages, m)
		}
		w := memory.Window{Messages: max(0, most), Tokens: max(0, tokens), Bytes: max(0, bytes), TokenRate: rate}
		current := messages("U " + now)
		if limit, bytes := w.Read(); limit <= 0 || bytes < 0 {
			t.Fatalf("it reads %d messages, %d bytes", limit, bytes)
		}
		if to := w.Drop(system, recent, int64(len(recent)), current); to < 0 || to > int64(len(recent)) {
			t.Fatalf("it drops up to %d of %d", to, len(recent))
		}
		sent, err := w.Send(system, recent, current)
		if err != nil {
			if w.Tokens == 0 || carrel.CodeOf(err) != abi.ContextTooLarge {
				t.Fatal(err)
			}
			return
		}
		var lead []carrel.Message
		if system != "" {
			lead = []carrel.Message{{Role: carrel.RoleSystem, Content: system}}
		}
		n := len(sent) - len(current)
		if n < len(lead) || !reflect.DeepEqual(sent[:len(lead)], lead) && len(lead) > 0 || !reflect.DeepEqual(sent[n:], current) {
			t.Fatalf("sent %q", contents(sent))
		}
		if len(sent) > n && sent[len(lead)].Role != carrel.RoleUser {
			t.Fatalf("the first message is %+v", sent[len(lead)])
		}
		all, _ := cost(sent, rate)
		if w.Tokens > 0 && all > w.Tokens || w.Messages > 0 && n > len(lead) && len(sent) > w.Messages {
			t.Fatalf("%d messages, %d tokens in %+v", len(sent), all, w)
		}
		if got := memory.TokenRate(sent, carrel.Usage{InputTokens: counted}); got != 0 && (got < 100 || got > 1000) {
			t.Fatalf("the rate is %d", got)
		}
	})
}
