package carreltest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	carrel "github.com/carrelhost/carrel/sdk/go"
	"github.com/carrelhost/carrel/sdk/go/carreltest"

	"github.com/carrelhost/carrel/abi"
)

// plugin returns a plugin whose only handler is f.
func plugin[In, Out any](f func(*carrel.Context, In) (Out, error)) carrel.Plugin {
	return carrel.Plugin{
		Name: "test", Version: "1",
		Services: []carrel.Service{{Name: "com.acme.Test", Methods: []carrel.Method{
			carrel.Handler("run", "", f),
			carrel.Chat("chat", carrel.ChatMethod{MemoryID: "id"}),
			carrel.Handler("double", "", double),
		}}},
		Capabilities: carrel.Capabilities{Models: []string{"small"}, Call: []string{"billing/com.acme.Bills.*"}},
	}
}

type number struct {
	N int `json:"n"`
}

func double(_ *carrel.Context, in number) (number, error) {
	if in.N < 0 {
		return number{}, carrel.Fail("negative", "n must not be negative")
	}
	return number{2 * in.N}, nil
}

func hostOf[In, Out any](t *testing.T, f func(*carrel.Context, In) (Out, error)) *carreltest.Host {
	t.Helper()
	h, err := carreltest.New(plugin(f))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// in runs f as a handler without params.
func in(t *testing.T, h func(*carreltest.Host), f func(*carrel.Context) error) (*carreltest.Host, error) {
	t.Helper()
	host := hostOf(t, func(ctx *carrel.Context, _ struct{}) (string, error) { return "", f(ctx) })
	if h != nil {
		h(host)
	}
	_, err := host.Call("run", nil)
	return host, err
}

// refusalOf returns the refusal that an error is.
func refusalOf(t *testing.T, err error) *carrel.Refusal {
	t.Helper()
	var r *carrel.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("got %v, want a refusal", err)
	}
	return r
}

func TestHandlersAreCalledByNameWithTypesOrJSON(t *testing.T) {
	h := hostOf(t, func(_ *carrel.Context, in number) (string, error) { return fmt.Sprint("<", in.N, ">"), nil })
	if got, err := carreltest.Call[number](h, "com.acme.Test.double", number{21}); err != nil || got.N != 42 {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := carreltest.Call[string](h, "run", number{7}); err != nil || got != "<7>" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := h.Call("run", json.RawMessage(`{"n":7}`)); err != nil || string(got) != "<7>" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := h.Call("double", map[string]int{"n": 1}); err != nil || string(got) != `{"n":2}` {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestCallsThatWouldNotReachTheHandler(t *testing.T) {
	for name, tc := range map[string]struct {
		method string
		params any
		want   string
	}{
		"no such method":          {"nope", nil, `no method "nope"`},
		"a chat method":           {"chat", nil, "is a chat method"},
		"a param is missing":      {"double", nil, `"/n" is missing`},
		"a param of another type": {"double", json.RawMessage(`{"n":"1"}`), `"/n" must be of type integer`},
		"no object":               {"double", json.RawMessage(`[]`), "must be of type object"},
		"a value without JSON":    {"double", func() {}, "encode the params"},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostOf(t, double)
			if _, err := h.Call(tc.method, tc.params); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestFailuresArriveAsTheCallerSeesThem(t *testing.T) {
	long := strings.Repeat("ä", abi.MaxGuestMessageBytes)
	for name, tc := range map[string]struct {
		err  error
		want carrel.Error
	}{
		"a code of the plugin's own":       {carrel.Fail("no_order", "there is no order 7"), carrel.Error{Code: "no_order", Message: "there is no order 7"}},
		"wrapped":                          {fmt.Errorf("look up: %w", carrel.Fail("no_order", "none")), carrel.Error{Code: "no_order", Message: "none"}},
		"any other error":                  {errors.New("boom"), carrel.Error{Code: "failed", Message: "boom"}},
		"a code that no host takes":        {carrel.Fail("No Order", "none"), carrel.Error{Code: "failed", Message: "No Order: none"}},
		"a message that is no UTF-8":       {errors.New("\xff there"), carrel.Error{Code: "failed", Message: "\ufffd there"}},
		"a message that is longer is cut":  {errors.New(long), carrel.Error{Code: "failed", Message: long[:abi.MaxGuestMessageBytes-4] + "…"}},
		"a refusal that the handler tells": {&carrel.Refusal{Op: "invoke", Errno: abi.EBUSY}, carrel.Error{Code: "failed", Message: "invoke: EBUSY"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := in(t, nil, func(*carrel.Context) error { return tc.err })
			var got *carrel.Error
			if !errors.As(err, &got) || *got != tc.want {
				t.Errorf("got %v, want %v", err, &tc.want)
			}
		})
	}
}

func TestParamsThatTheSchemaAcceptsAndTheTypeDoesNot(t *testing.T) {
	h := hostOf(t, func(_ *carrel.Context, _ struct{ At time.Time }) (string, error) { return "", nil })
	_, err := h.Call("run", map[string]string{"At": "tomorrow"})
	var failed *carrel.Error
	if !errors.As(err, &failed) || failed.Code != "invalid_params" {
		t.Errorf("got %v", err)
	}
}

func TestOutputsMatchTheirSchemasAlsoWhenTheyAreEmpty(t *testing.T) {
	type output struct {
		List  []string          `json:"list"`
		Map   map[string]number `json:"map"`
		Point *number           `json:"point"`
		Any   any               `json:"any"`
		Bytes []byte            `json:"bytes"`
		At    time.Time         `json:"at"`
		Left  []string          `json:"left,omitempty"`
	}
	for name, out := range map[string]output{
		"everything is nil": {},
		"nothing is":        {[]string{"a"}, map[string]number{"a": {1}}, &number{2}, 3, []byte("b"), time.Unix(1, 0), []string{"c"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostOf(t, func(*carrel.Context, struct{}) (output, error) { return out, nil })
			if _, err := h.Call("run", nil); err != nil {
				t.Error(err)
			}
		})
	}
}

type liar struct{}

func (liar) MarshalText() ([]byte, error) { return nil, errors.New("will not") }

func TestAnOutputWithoutJSONIsAFailure(t *testing.T) {
	h := hostOf(t, func(*carrel.Context, struct{}) (liar, error) { return liar{}, nil })
	if _, err := h.Call("run", nil); err == nil || !strings.Contains(err.Error(), "encode the output") {
		t.Errorf("got %v", err)
	}
}

func TestAPanicIsTheTests(t *testing.T) {
	defer func() {
		if got := recover(); got != "ouch" {
			t.Errorf("got %v", got)
		}
	}()
	_, err := in(t, nil, func(*carrel.Context) error { panic("ouch") })
	t.Errorf("it came back: %v", err)
}

func TestGenerate(t *testing.T) {
	temperature := 0.0
	prompt := carrel.Prompt{
		Messages: []carrel.Message{carrel.System("Be nice."), carrel.User("Hi"), carrel.Assistant("Yes?"), carrel.User("Bye")},
	}
	prompt.Temperature = &temperature
	host, err := in(t, func(h *carreltest.Host) { h.Model = carreltest.Texts("Hello") }, func(ctx *carrel.Context) error {
		a, err := ctx.Generate(prompt)
		if err != nil || a.Text != "Hello" || a.FinishReason != "stop" || a.Model != "default" {
			t.Errorf("got %+v, %v", a, err)
		}
		_, err = ctx.Generate(prompt)
		if r := refusalOf(t, err); r.Code != "model_failed" {
			t.Errorf("got %v", r)
		}
		_, err = ctx.Generate(carrel.Prompt{Model: "huge", Messages: prompt.Messages})
		if r := refusalOf(t, err); r.Errno != abi.EPERM || !strings.Contains(r.Remedy, `"huge"`) {
			t.Errorf("got %v", r)
		}
		_, err = ctx.Generate(carrel.Prompt{Model: "small"})
		if r := refusalOf(t, err); r.Errno != abi.EINVAL {
			t.Errorf("got %v", r)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"messages":[{"role":"system","content":"Be nice."},{"role":"user","content":"Hi"},` +
		`{"role":"assistant","content":"Yes?"},{"role":"user","content":"Bye"}],"temperature":0}`
	if got := string(host.Asked[0].Request); got != want {
		t.Errorf("the host was asked\n%s, want\n%s", got, want)
	}
}

func TestGenerateWithoutAModel(t *testing.T) {
	_, err := in(t, nil, func(ctx *carrel.Context) error {
		_, err := ctx.Generate(carrel.Prompt{Messages: []carrel.Message{carrel.User("Hi")}})
		if r := refusalOf(t, err); !strings.Contains(r.Message, "set Model") {
			t.Errorf("got %v", r)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWhatAHandlerKnowsAndTells(t *testing.T) {
	deadline := time.Now().Add(time.Hour)
	host, err := in(t, func(h *carreltest.Host) {
		h.Info.Subject = "ada"
		h.Config = map[string]any{"city": "Wien"}
		h.Deadline = deadline
	}, func(ctx *carrel.Context) error {
		info, err := ctx.Info()
		if err != nil || info.Subject != "ada" || info.Plugin != "test" || info.Service != "com.acme.Test" || info.Method != "run" {
			t.Errorf("got %+v, %v", info, err)
		}
		var config struct{ City string }
		if err := ctx.Config(&config); err != nil || config.City != "Wien" {
			t.Errorf("got %+v, %v", config, err)
		}
		if !ctx.Deadline().Equal(deadline) {
			t.Errorf("got %v", ctx.Deadline())
		}
		if !ctx.Has("invoke") || ctx.Has("http.fetch") || ctx.Has("telepathy") {
			t.Error("features are wrong")
		}
		if r := refusalOf(t, ctx.Do("http.fetch", struct{}{}, nil)); r.Errno != abi.ENOSYS {
			t.Errorf("got %v", r)
		}
		log := ctx.Log().With("id", 7)
		log.Debug("a \"quote\"", "time", "now", "level", "high", "msg", "mine")
		log.WithGroup("order").Info("plain", "no", 8, slog.Group("by", "who", "Ada L"))
		ctx.Log().Warn("careful")
		ctx.Log().Error("gone", "err", errors.New("no disk"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantLogs := []carreltest.Line{
		{Level: 0, Text: `a "quote" id=7 time=now level=high msg=mine`},
		{Level: 1, Text: `plain id=7 order.no=8 order.by.who="Ada L"`},
		{Level: 2, Text: "careful"},
		{Level: 3, Text: `gone err="no disk"`},
	}
	if !slices.Equal(host.Logs, wantLogs) {
		t.Errorf("logged %+v, want %+v", host.Logs, wantLogs)
	}
}

func TestStreamsFailAsOnEveryHost(t *testing.T) {
	h := hostOf(t, func(ctx *carrel.Context, _ struct{}) (string, error) {
		if ctx.Has("emit") {
			t.Error("it has emit")
		}
		for what, err := range map[string]error{"a text": ctx.Emit("Hel"), "an event": ctx.EmitEvent(number{1})} {
			want := carrel.Refusal{Op: "emit", Errno: abi.ENOSYS, Code: "not_found", Message: "this host has no streams", Remedy: "use `call` and write the whole result"}
			if r := refusalOf(t, err); *r != want {
				t.Errorf("%s: got %+v", what, r)
			}
		}
		return "", ctx.Emit("lo")
	})
	if _, err := h.Call("run", nil); err == nil || !strings.Contains(err.Error(), "emit: ENOSYS (not_found): this host has no streams") {
		t.Errorf("got %v", err)
	}
}

func TestParamsOfTheHandlersOwnTypeAreAccepted(t *testing.T) {
	type params struct {
		Unit *string           `json:"unit"`
		Tags []string          `json:"tags"`
		Map  map[string]number `json:"map"`
	}
	h := hostOf(t, func(_ *carrel.Context, in params) (string, error) {
		if in.Unit != nil || len(in.Tags) > 0 {
			t.Errorf("got %+v", in)
		}
		return "done", nil
	})
	if out, err := h.Call("run", params{}); err != nil || string(out) != "done" {
		t.Errorf("got %s, %v", out, err)
	}
}

func TestRandIsSeededForEachCall(t *testing.T) {
	h := hostOf(t, func(ctx *carrel.Context, _ struct{}) (uint64, error) {
		if a, b := ctx.Rand().Uint64(), ctx.Rand().Uint64(); a != b {
			return a, nil
		}
		return 0, errors.New("the generator began anew within the call")
	})
	first, err1 := h.Call("run", nil)
	second, err2 := h.Call("run", nil)
	if err := errors.Join(err1, err2); err != nil || string(first) == string(second) {
		t.Errorf("got %s, then %s, %v", first, second, err)
	}
}

func TestANewHostNeedsASoundDeclaration(t *testing.T) {
	if _, err := carreltest.New(carrel.Plugin{}); err == nil {
		t.Error("there is no error")
	}
}

func TestAnOutputLargerThanAHostTakes(t *testing.T) {
	h := hostOf(t, func(*carrel.Context, struct{}) (string, error) { return strings.Repeat("x", 1<<20+1), nil })
	if _, err := h.Call("run", nil); err == nil || !strings.Contains(err.Error(), "E2BIG") {
		t.Errorf("got %v", err)
	}
}

func TestMethodsOfOneNameInTwoServices(t *testing.T) {
	h, err := carreltest.New(carrel.Plugin{Name: "p", Version: "1", Services: []carrel.Service{
		{Name: "A", Methods: []carrel.Method{carrel.Handler("double", "", double)}},
		{Name: "B", Methods: []carrel.Method{carrel.Handler("double", "", double)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Call("double", number{1}); err == nil || !strings.Contains(err.Error(), "A.double, B.double") {
		t.Errorf("got %v", err)
	}
	if got, err := carreltest.Call[number](h, "B.double", number{1}); err != nil || got.N != 2 {
		t.Errorf("got %v, %v", got, err)
	}
}
