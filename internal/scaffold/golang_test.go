package scaffold_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/internal/scaffold"
	guestsdk "github.com/carrelhost/carrel/sdk/go"
	"github.com/carrelhost/carrel/sdk/go/carreltest"
)

// newGo writes a new Go project, replaces files in it and returns its folder.
func newGo(t *testing.T, replaced map[string]string) string {
	t.Helper()
	offline(t)
	dir := filepath.Join(t.TempDir(), "new")
	if err := scaffold.New(dir, "hello", scaffold.Go); err != nil {
		t.Fatal(err)
	}
	write(t, dir, replaced)
	return dir
}

func goTool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
}

func TestANewGoProjectPassesItsTestsAndRuns(t *testing.T) {
	dir := newGo(t, nil)
	goTool(t, dir, "vet", "./...")
	goTool(t, dir, "test", "./...")
	wasm, m := built(t, dir, "hello")
	call := guest(t, wasm, m)
	const export = "s0_welcome"
	host := answers{abi.OpInvoke: func(request []byte) ([]byte, *sandbox.Refusal) {
		const want = `{"service":"com.example.Hello","method":"chat","args":{"id":"7","msg":"Hello, Ada!"}}`
		if string(request) != want {
			t.Errorf("the host was asked %s, want %s", request, want)
		}
		return []byte(`{"output":"Nice to <meet> you.","usage":{}}`), nil
	}}
	out, r, err := call(export, `{"id":"7","name":"Ada"}`, host)
	if want := `{"greeting":"Hello, Ada!","answer":"Nice to <meet> you."}`; err != nil || out != want {
		t.Errorf("got %q, %v, want %q\n%v", out, err, want, r.Log)
	}
	if want := []sandbox.LogLine{{Level: 1, Text: "welcome id=7"}}; !reflect.DeepEqual(r.Log, want) {
		t.Errorf("logged %v, want %v", r.Log, want)
	}
	_, _, err = call(export, `{"id":"7","name":""}`, host)
	if e, ok := errors.AsType[*carrel.Error](err); !ok || e.Code != abi.GuestFailed || !strings.Contains(e.Error(), "name is empty") {
		t.Errorf("got %v", err)
	}
	t.Run("and is whole when it is built by hand", func(t *testing.T) {
		t.Setenv("GOOS", "wasip1")
		t.Setenv("GOARCH", "wasm")
		goTool(t, dir, "build", "-buildmode=c-shared", "-o", "byhand.wasm", ".")
		byHand, err := os.ReadFile(filepath.Join(dir, "byhand.wasm"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := sandbox.New(t.Context(), sandbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer closing(t, s.Close)
		report, err := s.Admit(t.Context(), sandbox.Candidate{Module: byHand})
		if err != nil {
			t.Fatal(err)
		}
		if !report.Described || !bytes.HasSuffix(wasm, report.Manifest) {
			t.Errorf("it describes itself as %s", report.Manifest)
		}
	})
}

// everything is a plugin that asks the host for all that there is.
const everything = `package main

import (
	"errors"
	"strings"

	carrel "github.com/carrelhost/carrel/sdk/go"
)

var plugin = carrel.Plugin{
	Name: "hello", Version: "1",
	DefaultMemoryID: &carrel.DefaultMemoryID{Func: func(ctx *carrel.Context) (string, error) {
		info, err := ctx.Info()
		return info.Subject, err
	}},
	Services: []carrel.Service{{Name: "S", Methods: []carrel.Method{
		carrel.Handler("large", "", large),
		carrel.Handler("ask", "", ask),
		carrel.Handler("random", "", random),
		carrel.Handler("crash", "", crash),
		carrel.Handler("fail", "", fail),
		carrel.Handler("stream", "", stream),
	}}},
}

type text struct {
	Text string
}

func large(ctx *carrel.Context, in text) (text, error) {
	var out text
	err := ctx.Do("config.get", in, &out)
	return out, err
}

type refusal struct {
	Errno                 int32
	Code, Message, Remedy string
	Known, Unknown, Time  bool
}

func ask(ctx *carrel.Context, in text) (refusal, error) {
	err := ctx.Do("kv.get", in, nil)
	var r *carrel.Refusal
	if !errors.As(err, &r) {
		return refusal{}, errors.New("it was not refused")
	}
	return refusal{int32(r.Errno), r.Code, r.Message, r.Remedy, ctx.Has("config.get"), ctx.Has("kv.put"), !ctx.Deadline().IsZero()}, nil
}

func stream(ctx *carrel.Context, in text) (refusal, error) {
	var r *carrel.Refusal
	if !errors.As(errors.Join(ctx.Emit("x"), ctx.EmitEvent(in)), &r) {
		return refusal{}, errors.New("it was not refused")
	}
	return refusal{int32(r.Errno), r.Code, r.Message, r.Remedy, ctx.Has("config.get"), ctx.Has("emit"), true}, nil
}

func random(ctx *carrel.Context, _ struct{}) (uint64, error) { return ctx.Rand().Uint64(), nil }

func crash(*carrel.Context, struct{}) (string, error) { panic("ouch at sea") }

func fail(_ *carrel.Context, in text) (string, error) { return "", errors.New(strings.Repeat(in.Text, 9000)) }

func main() { plugin.Main() }
`

func TestAGoGuestAndItsHostUnderstandEachOther(t *testing.T) {
	dir := newGo(t, map[string]string{"plugin.go": everything})
	if err := os.Remove(filepath.Join(dir, "plugin_test.go")); err != nil {
		t.Fatal(err)
	}
	wasm, m := built(t, dir, "hello")
	call := guest(t, wasm, m)
	t.Run("large inputs, requests, results and outputs arrive whole", func(t *testing.T) {
		body := `{"Text":"` + strings.Repeat("grüße ", 50_000) + `"}`
		echo := answers{abi.OpConfigGet: func(request []byte) ([]byte, *sandbox.Refusal) { return request, nil }}
		if out, r, err := call("s0_large", body, echo); err != nil || out != body {
			t.Errorf("got %d bytes, %v, want %d\n%v", len(out), err, len(body), r.Log)
		}
	})
	t.Run("refusals are told in full", func(t *testing.T) {
		long := strings.Repeat("long ", 1000)
		host := answers{
			abi.OpConfigGet: answer("{}"),
			abi.OpKVGet: func([]byte) ([]byte, *sandbox.Refusal) {
				return nil, &sandbox.Refusal{Errno: abi.EPERM, Code: "forbidden", Message: long, Remedy: "ask the owner"}
			},
		}
		out, _, err := call("s0_ask", `{"Text":"x"}`, host)
		if err != nil {
			t.Fatal(err)
		}
		got := object(t, out)
		want := map[string]any{"Errno": 2.0, "Code": "forbidden", "Message": long, "Remedy": "ask the owner", "Known": true, "Unknown": false, "Time": true}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %v", got)
		}
	})
	t.Run("streams are refused as carreltest refuses them", func(t *testing.T) {
		out, _, err := call("s0_stream", `{"Text":"x"}`, answers{abi.OpConfigGet: answer("{}")})
		if err != nil {
			t.Fatal(err)
		}
		h, err := carreltest.New(guestsdk.Plugin{Name: "p", Version: "1", Services: []guestsdk.Service{{Name: "S", Methods: []guestsdk.Method{
			guestsdk.Handler("stream", "", func(ctx *guestsdk.Context, _ struct{}) (map[string]any, error) {
				r, ok := errors.AsType[*guestsdk.Refusal](ctx.Emit("x"))
				if !ok {
					return nil, errors.New("it was not refused")
				}
				return map[string]any{"Errno": r.Errno, "Code": r.Code, "Message": r.Message, "Remedy": r.Remedy,
					"Known": ctx.Has("config.get"), "Unknown": ctx.Has("emit"), "Time": true}, nil
			}),
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		simulated, err := h.Call("stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := object(t, out), object(t, string(simulated)); !reflect.DeepEqual(got, want) {
			t.Errorf("a host answers %v, carreltest %v", got, want)
		}
	})
	t.Run("every call has its own generator", func(t *testing.T) {
		first, _, err1 := call("s0_random", "{}", nil)
		second, _, err2 := call("s0_random", "{}", nil)
		if err := errors.Join(err1, err2); err != nil || first == second {
			t.Errorf("got %s and %s, %v", first, second, err)
		}
	})
	t.Run("a panic ends the guest, its stack is in the log", func(t *testing.T) {
		_, r, err := call("s0_crash", "{}", nil)
		if carrel.CodeOf(err) != abi.GuestTrap {
			t.Errorf("got %v", err)
		}
		var log strings.Builder
		for _, l := range r.Log {
			log.WriteString(l.Text + "\n")
		}
		if !strings.Contains(log.String(), "ouch at sea") || !strings.Contains(log.String(), "main.crash") {
			t.Errorf("the log is %q", log.String())
		}
	})
	t.Run("a failure arrives even if its text is too long", func(t *testing.T) {
		_, _, err := call("s0_fail", `{"Text":"<ä>"}`, nil)
		e, ok := errors.AsType[*carrel.Error](err)
		if !ok || e.Code != abi.GuestFailed || !strings.Contains(e.Error(), "<ä><ä>") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the provider of default ids is an export", func(t *testing.T) {
		out, _, err := call(m.DefaultMemoryID.Export, "{}", answers{abi.OpContext: answer(`{"subject":"ada"}`)})
		if err != nil || out != "ada" {
			t.Errorf("got %q, %v", out, err)
		}
	})
}

func TestAPluginMayBeAPackageOfALargerModule(t *testing.T) {
	dir := newGo(t, nil)
	inside := filepath.Join(dir, "plugins", "counter")
	if err := os.MkdirAll(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, inside, map[string]string{"plugin.go": `package main

import carrel "github.com/carrelhost/carrel/sdk/go"

var plugin = carrel.Plugin{Name: "counter", Version: "1"}

func main() { plugin.Main() }
`})
	if _, m := built(t, inside, "counter"); m.Version != "1" {
		t.Errorf("got %+v", m)
	}
}

func TestGoBuildsAreReproducible(t *testing.T) {
	first, _ := built(t, newGo(t, nil), "hello")
	dir := newGo(t, nil)
	second, _ := built(t, dir, "hello")
	if !bytes.Equal(first, second) {
		t.Error("two folders with one content give two modules")
	}
	exports := filepath.Join(dir, "carrel_exports.go")
	before, err := os.Stat(exports)
	if err != nil {
		t.Fatal(err)
	}
	if third, _ := built(t, dir, "hello"); !bytes.Equal(first, third) {
		t.Error("building twice gives two modules")
	}
	if after, err := os.Stat(exports); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the exports were written anew although nothing changed, %v", err)
	}
}

func TestGoBuildsThatFailSayWhy(t *testing.T) {
	const main = "package main\n\nimport carrel \"github.com/carrelhost/carrel/sdk/go\"\n\n"
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"what the compiler says": {map[string]string{"plugin.go": "package main\n\nfunc main() { oops() }\n"}, "undefined: oops"},
		"no program":             {map[string]string{"plugin.go": "package hello\n"}, "main package"},
		"a main that tells nothing": {map[string]string{"plugin.go": "package main\n\nfunc main() {}\n"},
			"its main must be: func main() { plugin.Main() }"},
		"faults of the declaration": {map[string]string{"plugin.go": main +
			"var plugin = carrel.Plugin{Name: \"hello\", Services: []carrel.Service{{Name: \"S\"}, {Name: \"S\"}}}\n\nfunc main() { plugin.Main() }\n"},
			"there are two of that name"},
		"faults that the host would find": {map[string]string{"plugin.go": main +
			"var plugin = carrel.Plugin{Name: \"Hello\", Version: \"1\"}\n\nfunc main() { plugin.Main() }\n"}, "a plugin's name is"},
		"a file of the user's own": {map[string]string{"carrel_exports.go": "package main\n"}, "is not a generated file"},
		"a variable of another name": {map[string]string{"plugin.go": main +
			"var other = carrel.Plugin{Name: \"hello\", Version: \"1\"}\n\nfunc main() { other.Main() }\n"}, "undefined: plugin"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newGo(t, tc.files)
			if err := os.Remove(filepath.Join(dir, "plugin_test.go")); err != nil {
				t.Fatal(err)
			}
			_, err := scaffold.Build(t.Context(), dir)
			said := fmt.Sprint(err)
			if e, ok := errors.AsType[*carrel.Error](err); ok {
				said += fmt.Sprint(e.Faults)
			}
			if err == nil || !strings.Contains(said, tc.want) {
				t.Errorf("got %s", said)
			}
			for _, f := range files(t, dir) {
				if strings.HasSuffix(f, ".wasm") {
					t.Errorf("there is a module: %s", f)
				}
			}
		})
	}
}

func TestABuildEndsWithItsContext(t *testing.T) {
	dir := newGo(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := scaffold.Build(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
