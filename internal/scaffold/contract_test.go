package scaffold_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/imports"
	guestsdk "github.com/carrelhost/carrel/sdk/go"
	"github.com/carrelhost/carrel/sdk/go/carreltest"
)

// invocation is what a host's imports talk to: it remembers what reached it.
type invocation struct {
	asked  []any
	stored []imports.Message
}

func (i *invocation) note(what ...any) { i.asked = append(i.asked, what...) }

func (i *invocation) Describe() imports.Context {
	return imports.Context{
		Tenant: "acme", Plugin: "p", Version: "v", Service: "S", Method: "m", RequestID: "r", InvocationID: "i",
		SessionID: "s", Subject: "ada", MemoryID: "7",
	}
}

func (i *invocation) Invoke(_ context.Context, r imports.Invoke) (imports.Invoked, error) {
	i.note(r.Plugin, r.Service, r.Method, string(r.Args))
	return imports.Invoked{Output: "said", MemoryID: "7", Usage: imports.Usage{InputTokens: 1, OutputTokens: 2}}, nil
}

func (i *invocation) Generate(_ context.Context, r imports.Generate) (imports.Generated, error) {
	i.note(r)
	return imports.Generated{Text: "generated", FinishReason: "stop", Model: "m-1", Usage: imports.Usage{InputTokens: 3}}, nil
}

func (i *invocation) DefaultMemoryID(_ context.Context, s carrel.ServiceName, m carrel.MethodName) (imports.Memory, error) {
	i.note(s, m)
	return imports.Memory{MemoryID: "r#S.m", Key: "k"}, nil
}

// Messages returns one message at a time: pages may be shorter than asked for.
func (i *invocation) Messages(_ context.Context, of imports.Memory, after int64, _ int) ([]imports.Message, bool, error) {
	i.note(of, after)
	for n, m := range i.stored {
		if m.Seq > after {
			return i.stored[n : n+1], n+1 < len(i.stored), nil
		}
	}
	return nil, false, nil
}

func (i *invocation) Append(_ context.Context, to imports.Memory, turn []carrel.Message) (imports.Appended, error) {
	i.note(to, turn)
	return imports.Appended{Memory: to, Trimmed: 2}, nil
}

func (i *invocation) Delete(_ context.Context, m imports.Memory) (bool, error) {
	i.note(m)
	return true, nil
}

func (i *invocation) DeleteTurn(_ context.Context, m imports.Memory, turn int64) (bool, error) {
	i.note(m, turn)
	return true, nil
}

func (i *invocation) List(_ context.Context, prefix, after string, _ int) ([]imports.Listed, string, error) {
	i.note(prefix, after)
	next := map[string]string{"": "1", "1": ""}[after]
	return []imports.Listed{{MemoryID: prefix + after, Key: "k" + after, Kind: "explicit", Messages: 2, Bytes: 9}}, next, nil
}

// direct is a guest's host without a guest: calls go to the host's imports.
type direct struct {
	host   *imports.Host
	failed string
}

func (*direct) Input() ([]byte, error)               { return []byte("{}"), nil }
func (*direct) Output([]byte) error                  { return nil }
func (d *direct) Fail(code, message string)          { d.failed = code + ": " + message }
func (*direct) Emit(guestsdk.EmitKind, []byte) error { return nil }
func (*direct) Log(int, string)                      {}
func (*direct) Deadline() time.Time                  { return time.Time{} }
func (*direct) Random([]byte) error                  { return nil }
func (d *direct) Has(feature string) bool            { return d.host.Knows(feature) }

func (d *direct) Call(op abi.Op, request []byte) ([]byte, error) {
	b, refused := d.host.Do(context.Background(), op, request)
	if refused != nil {
		return nil, &guestsdk.Refusal{Op: string(op), Errno: refused.Errno, Code: refused.Code, Message: refused.Message, Remedy: refused.Remedy}
	}
	return b, nil
}

// TestTheSDKAndTheHostSpeakOfTheSameOperations sends every operation of the
// SDK through the host's own strict decoding, and its answers back.
func TestTheSDKAndTheHostSpeakOfTheSameOperations(t *testing.T) {
	temperature := 0.0
	ada := guestsdk.MemoryID("ada")
	turn := []guestsdk.Message{
		guestsdk.User("q"),
		{Role: guestsdk.RoleAssistant, ToolCalls: []guestsdk.ToolCall{{ID: "1", Name: "look", Arguments: []byte(`{"a":1}`)}}},
		{Role: guestsdk.RoleTool, ToolCallID: "1", Content: "found"},
		guestsdk.Assistant("a"),
	}
	read := []guestsdk.Message{guestsdk.System("s")}
	for _, m := range turn {
		m.Turn = 1
		read = append(read, m)
	}
	vocabulary := []carrel.Message{
		{Role: "user", Content: "q"},
		{Role: "assistant", ToolCalls: []carrel.ToolCall{{ID: "1", Name: "look", Args: []byte(`{"a":1}`)}}},
		{Role: "tool", ToolCallID: "1", Content: "found"},
		{Role: "assistant", Content: "a"},
	}
	in := &invocation{stored: []imports.Message{{Seq: 0, Role: "system", Content: "s"}}}
	for n, m := range vocabulary {
		in.stored = append(in.stored, imports.Message{
			Seq: int64(n + 1), Turn: 1, Role: string(m.Role), Content: m.Content, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID,
		})
	}
	steps := []struct {
		name string
		do   func(*guestsdk.Context) (any, error)
		want any
		ask  []any
	}{
		{"context", func(c *guestsdk.Context) (any, error) { return c.Info() }, guestsdk.Info{
			Tenant: "acme", Plugin: "p", Version: "v", Service: "S", Method: "m", RequestID: "r", InvocationID: "i",
			SessionID: "s", Subject: "ada", MemoryID: "7",
		}, nil},
		{"config", func(c *guestsdk.Context) (any, error) {
			var v map[string]any
			err := c.Config(&v)
			return v, err
		}, map[string]any{}, nil},
		{"invoke", func(c *guestsdk.Context) (any, error) {
			var out string
			i, err := c.Invoke("billing/com.acme.Bills.pay", map[string]int{"n": 1}, &out)
			return []any{out, i}, err
		}, []any{"said", guestsdk.Invocation{MemoryID: "7", Usage: guestsdk.Usage{InputTokens: 1, OutputTokens: 2}}},
			[]any{"billing", "com.acme.Bills", "pay", `{"n":1}`}},
		{"generate", func(c *guestsdk.Context) (any, error) {
			return c.Generate(guestsdk.Prompt{
				Model: "small", Messages: []guestsdk.Message{guestsdk.System("s"), guestsdk.User("u")},
				Generation: guestsdk.Generation{Temperature: &temperature},
			})
		}, guestsdk.Answer{Text: "generated", FinishReason: "stop", Model: "m-1", Usage: guestsdk.Usage{InputTokens: 3}}, []any{imports.Generate{
			Model: "small", Messages: []imports.GenerateMessage{{Role: "system", Content: "s"}, {Role: "user", Content: "u"}},
			Generation: abi.Generation{Temperature: &temperature},
		}}},
		{"default id", func(c *guestsdk.Context) (any, error) { return c.Memory().DefaultID("com.acme.S", "chat") },
			guestsdk.DefaultMemory{MemoryID: "r#S.m", Key: "k"}, []any{carrel.ServiceName("com.acme.S"), carrel.MethodName("chat")}},
		{"messages", func(c *guestsdk.Context) (any, error) { return c.Memory().Messages(ada) },
			read,
			[]any{imports.Memory{MemoryID: "ada"}, int64(-1), imports.Memory{MemoryID: "ada"}, int64(0), imports.Memory{MemoryID: "ada"}, int64(1),
				imports.Memory{MemoryID: "ada"}, int64(2), imports.Memory{MemoryID: "ada"}, int64(3)}},
		{"append", func(c *guestsdk.Context) (any, error) {
			return c.Memory().Append(guestsdk.MemoryKey("k"), turn...)
		}, int64(2),
			[]any{imports.Memory{Key: "k"}, vocabulary}},
		{"delete", func(c *guestsdk.Context) (any, error) { return c.Memory().Delete(ada) }, true, []any{imports.Memory{MemoryID: "ada"}}},
		{"delete a turn", func(c *guestsdk.Context) (any, error) { return c.Memory().DeleteTurn(ada, 7) }, true,
			[]any{imports.Memory{MemoryID: "ada"}, int64(7)}},
		{"delete what is no turn", func(c *guestsdk.Context) (any, error) {
			var r *guestsdk.Refusal
			if _, err := c.Memory().DeleteTurn(ada, 0); !errors.As(err, &r) {
				return nil, fmt.Errorf("got %w", err)
			}
			return r.Code, nil
		}, "invalid_params", nil},
		{"list", func(c *guestsdk.Context) (any, error) {
			var all []guestsdk.History
			for h, err := range c.Memory().List("a") {
				if err != nil {
					return nil, err
				}
				all = append(all, h)
			}
			return all, nil
		}, []guestsdk.History{{MemoryID: "a", Key: "k", Kind: "explicit", Messages: 2, Bytes: 9}, {MemoryID: "a1", Key: "k1", Kind: "explicit", Messages: 2, Bytes: 9}},
			[]any{"a", "", "a", "1"}},
		{"a refusal", func(c *guestsdk.Context) (any, error) {
			var r *guestsdk.Refusal
			if _, err := c.Memory().Append(ada, guestsdk.User("q")); !errors.As(err, &r) {
				return nil, fmt.Errorf("got %w", err)
			}
			return []any{r.Errno, r.Code}, nil
		}, []any{abi.EINVAL, "invalid_params"}, nil},
		{"an operation that there is not", func(c *guestsdk.Context) (any, error) { return c.Has("kv.get"), nil }, false, nil},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			in.asked = nil
			p := guestsdk.Plugin{Name: "p", Version: "1", Services: []guestsdk.Service{{Name: "S", Methods: []guestsdk.Method{
				guestsdk.Handler("m", "", func(c *guestsdk.Context, _ struct{}) (string, error) {
					got, err := step.do(c)
					if err == nil && !reflect.DeepEqual(got, step.want) {
						t.Errorf("got %+v, want %+v", got, step.want)
					}
					return "", err
				}),
			}}}}
			d := &direct{host: imports.New(in)}
			if result := p.Run(d, "s0_m"); result != 0 {
				t.Fatal(d.failed)
			}
			if !reflect.DeepEqual(in.asked, step.ask) {
				t.Errorf("the invocation was asked %+v, want %+v", in.asked, step.ask)
			}
		})
	}
}

// TestTheSimulatedHostHasWhatAHostHas asks both for every operation that there
// is a name of.
func TestTheSimulatedHostHasWhatAHostHas(t *testing.T) {
	names := append(abi.Ops(), "telepathy", "memory.forget")
	for _, f := range abi.Imports() {
		names = append(names, abi.Op(f.Name))
	}
	type answer struct {
		has     bool
		refusal guestsdk.Refusal // of what the host does not have
	}
	ask := func(c *guestsdk.Context) map[abi.Op]answer {
		out := map[abi.Op]answer{}
		for _, name := range names {
			a := answer{has: c.Has(string(name))}
			if r, ok := errors.AsType[*guestsdk.Refusal](c.Do(name, struct{}{}, nil)); ok && !a.has {
				a.refusal = *r
			}
			out[name] = a
		}
		return out
	}
	var got map[abi.Op]answer
	p := guestsdk.Plugin{Name: "p", Version: "1", Services: []guestsdk.Service{{Name: "S", Methods: []guestsdk.Method{
		guestsdk.Handler("m", "", func(c *guestsdk.Context, _ struct{}) (string, error) {
			got = ask(c)
			return "", nil
		}),
	}}}}
	if result := p.Run(&direct{host: imports.New(&invocation{})}, "s0_m"); result != 0 {
		t.Fatal("the handler failed")
	}
	want := got
	simulated, err := carreltest.New(p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := simulated.Call("m", nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if got[name] != want[name] {
			t.Errorf("%s: carreltest answers %+v, and a host %+v", name, got[name], want[name])
		}
	}
}
