package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
)

// echo is a host that answers an operation with its request.
func echo() *host {
	return &host{
		do:    func(_ context.Context, _ abi.Op, request []byte) ([]byte, *sandbox.Refusal) { return request, nil },
		knows: func(feature string) bool { return feature == "context" || feature == "é" },
	}
}

func TestImports(t *testing.T) {
	const (
		inval  = -int64(abi.EINVAL)
		noent  = -int64(abi.ENOENT)
		toobig = -int64(abi.E2BIG)
		quota  = -int64(abi.EQUOTA)
		nosys  = -int64(abi.ENOSYS)
	)
	data := map[int32]string{
		0:   "context",
		100: `{"code":"out_of_stock","message":"none left"}`,
		200: `{"code":"x","message":"y","more":1}`,
		300: "\xff\xfe",
		400: strings.Repeat("a", 65),
		500: `{"a":1}`,
		600: "é",
		700: `{"code":"Out","message":"y"}`,
		800: `{"code":"x"}`,
		900: `{"code":"last","message":"wins"}`,
	}
	handle := func(h, n int64) int64 { return h<<32 | n }
	for caseName, tc := range map[string]struct {
		cfg   sandbox.Config
		input string
		steps []step
		want  []int64
		show  [2]uint32
		shown string
		err   abi.Code
	}{
		"input_len is the input's length": {input: "hello", steps: []step{{"input_len", nil}}, want: []int64{5}},
		"input_read copies what is there": {
			input: "hello", steps: []step{{"input_read", []int64{1000, 0, 100}}, {"input_read", []int64{1010, 3, 1}}, {"input_read", []int64{1020, 5, 9}}, {"input_read", []int64{1020, mostOfI32, 9}}},
			want: []int64{5, 1, 0, 0}, show: [2]uint32{1000, 11}, shown: "hello\x00\x00\x00\x00\x00l"},
		"input_read refuses a destination outside": {
			input: "hello", steps: []step{{"input_read", []int64{probeBytes - 4, 0, 5}}, {"input_read", []int64{mostOfI32, 0, 1}}, {"input_read", []int64{8, 0, mostOfI32}}, {"input_read", []int64{mostOfI32, 0, mostOfI32}}},
			want: []int64{inval, inval, inval, inval}},
		"output_write refuses what is outside": {
			steps: []step{{"output_write", []int64{probeBytes, 1}}, {"output_write", []int64{mostOfI32, mostOfI32}}, {"output_write", []int64{beyondMemory, 0}}, {"output_write", []int64{probeBytes, 0}}},
			want:  []int64{inval, inval, inval, 0}},
		"output_write has a cap and then takes what still fits": {
			cfg: sandbox.Config{OutputBytes: 10}, steps: []step{{"output_write", []int64{0, 7}}, {"output_write", []int64{0, 4}}, {"output_write", []int64{0, 3}}, {"output_write", []int64{0, 1}}, {"output_write", []int64{0, 0}}},
			want: []int64{0, toobig, 0, toobig, 0}},
		"error_set is the call's failure, and the last one wins": {
			steps: []step{{"error_set", []int64{100, 45}}, {"error_set", []int64{900, 32}}}, want: []int64{0, 0}, err: abi.GuestFailed},
		"a faulty error_set changes nothing": {
			steps: []step{{"error_set", []int64{200, 35}}, {"error_set", []int64{300, 2}}, {"error_set", []int64{700, 28}}, {"error_set", []int64{800, 12}}, {"error_set", []int64{0, 0}},
				{"error_set", []int64{100, 44}}, {"error_set", []int64{0, abi.MaxGuestErrorBytes + 1}}, {"error_set", []int64{probeBytes, 1}}, {"error_set", []int64{mostOfI32, mostOfI32}}},
			want: slices.Repeat([]int64{inval}, 9)},
		"streams are not there": {
			steps: []step{{"emit", []int64{0, 0, 1}}, {"open", []int64{0, 7, 0, 0}}, {"next", []int64{1}}, {"send", []int64{1, 0, 1}}}, want: []int64{nosys, nosys, nosys, nosys}},
		"call, read and close": {
			steps: []step{{"call", []int64{0, 7, 500, 7}}, {"call", []int64{0, 7, 500, 0}}, {"read", []int64{1, 0, 1000, 100}}, {"read", []int64{1, 5, 1010, 1}}, {"read", []int64{1, 7, 1010, 1}}, {"read", []int64{2, 0, 1010, 1}}, {"close", []int64{1}}},
			want:  []int64{handle(1, 7), handle(2, 0), 7, 1, 0, 0, 0}, show: [2]uint32{1000, 11}, shown: `{"a":1}` + "\x00\x00\x001"},
		"call refuses what is outside": {
			steps: []step{{"call", []int64{probeBytes, 1, 0, 1}}, {"call", []int64{0, 7, probeBytes, 1}}, {"call", []int64{mostOfI32, 7, 0, 1}}, {"call", []int64{0, 7, mostOfI32, mostOfI32}}, {"call", []int64{0, mostOfI32, 0, 1}}},
			want:  slices.Repeat([]int64{inval}, 5)},
		"call refuses names that are too long, empty or no text": {
			steps: []step{{"call", []int64{400, 65, 0, 0}}, {"call", []int64{400, 0, 0, 0}}, {"call", []int64{300, 2, 0, 0}}}, want: []int64{inval, inval, inval}},
		"call takes the longest name": {steps: []step{{"call", []int64{400, 64, 0, 0}}}, want: []int64{handle(1, 0)}},
		"host calls are counted": {
			cfg: sandbox.Config{HostCalls: 3}, steps: []step{{"call", []int64{0, 7, 0, 0}}, {"call", []int64{0, 7, 0, 0}}, {"close", []int64{1}}}, want: []int64{handle(1, 0), handle(2, 0), 0}},
		"handles do not come back": {
			steps: []step{{"call", []int64{0, 7, 500, 7}}, {"close", []int64{1}}, {"close", []int64{1}}, {"read", []int64{1, 0, 1000, 1}}, {"call", []int64{0, 7, 500, 7}}, {"read", []int64{0, 0, 1000, 1}}, {"read", []int64{mostOfI32, 0, 1000, 1}}, {"close", []int64{0}}},
			want:  []int64{handle(1, 7), 0, noent, noent, handle(2, 7), noent, noent, noent}},
		"read refuses a destination outside": {
			steps: []step{{"call", []int64{0, 7, 500, 7}}, {"read", []int64{1, 0, probeBytes - 1, 2}}, {"read", []int64{1, 0, mostOfI32, mostOfI32}}, {"read", []int64{1, mostOfI32, 0, 1}}},
			want:  []int64{handle(1, 7), inval, inval, 0}},
		"results are bounded until they are closed": {
			cfg: sandbox.Config{ResultBytes: 10}, steps: []step{{"call", []int64{0, 7, 500, 7}}, {"call", []int64{0, 7, 500, 7}}, {"close", []int64{1}}, {"call", []int64{0, 7, 500, 7}}},
			want: []int64{handle(1, 7), quota, 0, handle(2, 7)}},
		"log takes the four levels": {
			steps: []step{{"log", []int64{0, 0, 7}}, {"log", []int64{3, 600, 2}}, {"log", []int64{4, 0, 1}}, {"log", []int64{-1, 0, 1}}, {"log", []int64{0, 300, 2}}}, want: []int64{0, 0, inval, inval, 0}},
		"log refuses what is outside": {
			steps: []step{{"log", []int64{0, probeBytes, 1}}, {"log", []int64{0, mostOfI32, mostOfI32}}}, want: []int64{inval, inval}},
		"random has a cap and bounds": {
			steps: []step{{"random", []int64{1000, 32}}, {"random", []int64{0, abi.MaxRandomBytes + 1}}, {"random", []int64{probeBytes - 1, 2}}, {"random", []int64{mostOfI32, mostOfI32}}, {"random", []int64{0, 0}}},
			want:  []int64{0, toobig, inval, inval, 0}},
		"feature asks the host": {
			steps: []step{{"feature", []int64{0, 7}}, {"feature", []int64{600, 2}}, {"feature", []int64{0, 3}}, {"feature", []int64{300, 2}}, {"feature", []int64{400, 65}}, {"feature", []int64{probeBytes, 1}}, {"feature", []int64{mostOfI32, mostOfI32}}},
			want:  []int64{1, 1, 0, inval, 0, inval, inval}},
		"last_error is nothing at first, and refuses what is outside": {
			steps: []step{{"last_error", []int64{0, 100}}, {"last_error", []int64{probeBytes, 1}}, {"last_error", []int64{mostOfI32, mostOfI32}}, {"last_error", []int64{0, 1}}}, want: []int64{0, inval, inval, 0}},
	} {
		t.Run(caseName, func(t *testing.T) {
			p := &probe{cfg: tc.cfg, input: []byte(tc.input), data: data, steps: tc.steps, show: tc.show, host: echo()}
			got := p.run(t)
			if !slices.Equal(got.values, tc.want) {
				t.Errorf("got %d, want %d", got.values, tc.want)
			}
			if string(got.memory) != tc.shown {
				t.Errorf("the memory has %q, want %q", got.memory, tc.shown)
			}
			wantCode(t, got.err, tc.err)
		})
	}
}

func TestErrorSetBecomesTheError(t *testing.T) {
	long := strings.Repeat("m", abi.MaxGuestMessageBytes)
	for caseName, tc := range map[string]struct {
		json          string
		code, message string
	}{
		"plain":                                {`{"code":"out_of_stock","message":"none left"}`, "out_of_stock", "none left"},
		"the longest message, escaped":         {`{"code":"x","message":"` + strings.Repeat(`\u006d`, len(long)) + `"}`, "x", long},
		"the longest code":                     {`{"code":"` + strings.Repeat("c", 64) + `","message":""}`, strings.Repeat("c", 64), ""},
		"a host's code is the guest's own":     {`{"code":"internal","message":"mine"}`, "internal", "mine"},
		"one byte more of a message is a no":   {`{"code":"x","message":"` + long + `m"}`, "", ""},
		"one byte more of a code is a no":      {`{"code":"` + strings.Repeat("c", 65) + `","message":""}`, "", ""},
		"another case of a member is a no":     {`{"Code":"x","message":"y"}`, "", ""},
		"the same member twice is a no":        {`{"code":"x","code":"x","message":"y"}`, "", ""},
		"something behind the object is a no":  {`{"code":"x","message":"y"} 1`, "", ""},
		"a number for a message is a no":       {`{"code":"x","message":1}`, "", ""},
		"null for a message is a no":           {`{"code":"x","message":null}`, "", ""},
		"a list is a no":                       {`["x","y"]`, "", ""},
		"an empty code is a no":                {`{"code":"","message":"y"}`, "", ""},
		"invalid UTF-8 in the message is a no": {"{\"code\":\"x\",\"message\":\"\xff\"}", "", ""},
	} {
		t.Run(caseName, func(t *testing.T) {
			p := &probe{data: map[int32]string{0: tc.json}, steps: []step{{"error_set", []int64{0, int64(len(tc.json))}}}}
			got := p.run(t)
			if tc.code == "" {
				if got.err != nil || got.values[0] != -int64(abi.EINVAL) {
					t.Errorf("got %d and %v", got.values, got.err)
				}
				return
			}
			e := asError(t, got.err)
			if e.Code != abi.GuestFailed || e.GuestCode != tc.code || e.Msg != tc.message {
				t.Errorf("got %v, %q, %q", e.Code, e.GuestCode, e.Msg)
			}
		})
	}
}

func asError(t *testing.T, err error) *carrel.Error {
	t.Helper()
	e, ok := err.(*carrel.Error) //nolint:errorlint // the outermost error is meant
	if !ok {
		t.Fatalf("got %v", err)
	}
	return e
}

// TestLastError checks what a guest reads about a refusal, the host's own and
// the sandbox's.
func TestLastError(t *testing.T) {
	refusing := func(_ context.Context, op abi.Op, _ []byte) ([]byte, *sandbox.Refusal) {
		switch op {
		case "kv.get":
			return nil, &sandbox.Refusal{Errno: abi.EPERM, Code: "forbidden", Message: "no kv\xff", Remedy: `add "kv": true`}
		case "strange":
			return nil, &sandbox.Refusal{Errno: 77, Code: "internal", Message: "odd"}
		default:
			return make([]byte, 100), nil
		}
	}
	for caseName, tc := range map[string]struct {
		cfg                   sandbox.Config
		steps                 []step
		errno                 abi.Errno
		code, message, remedy string
	}{
		"the host refuses":           {steps: []step{{"call", []int64{0, 6, 0, 0}}}, errno: abi.EPERM, code: "forbidden", message: "no kv\ufffd", remedy: `add "kv": true`},
		"an errno that nobody knows": {steps: []step{{"call", []int64{10, 7, 0, 0}}}, errno: abi.EIO, code: "internal", message: "odd"},
		"too many host calls": {cfg: sandbox.Config{HostCalls: 1}, steps: []step{{"call", []int64{20, 1, 0, 0}}, {"call", []int64{20, 1, 0, 0}}},
			errno: abi.EQUOTA, code: "limit_exceeded", message: "this call has made its 1 host calls (limit sandbox.hostCalls)", remedy: "make fewer, larger calls"},
		"results too large": {cfg: sandbox.Config{ResultBytes: 50}, steps: []step{{"call", []int64{20, 1, 0, 0}}},
			errno: abi.EQUOTA, code: "limit_exceeded", message: "more than 50 bytes (limit sandbox.resultBytes)", remedy: "close"},
		"output too large": {cfg: sandbox.Config{OutputBytes: 5}, steps: []step{{"output_write", []int64{0, 6}}},
			errno: abi.E2BIG, code: "too_large", message: "longer than 5 bytes (limit sandbox.outputBytes)", remedy: "write less"},
		"a stream": {steps: []step{{"open", []int64{0, 6, 0, 0}}}, errno: abi.ENOSYS, code: "not_found", message: "no streams", remedy: "`call`"},
	} {
		t.Run(caseName, func(t *testing.T) {
			p := &probe{cfg: tc.cfg, data: map[int32]string{0: "kv.get", 10: "strange"}, host: &host{do: refusing}, silent: tc.errno == abi.EQUOTA,
				steps: append(slices.Clone(tc.steps), step{"last_error", []int64{1000, 500}}, step{"last_error", []int64{2000, 3}},
					step{"log", []int64{1, 1000, 500}}, step{"log", []int64{1, 2000, 4}})}
			got := p.run(t)
			if len(got.result.Log) != 2 {
				t.Fatalf("the log has %v", got.result.Log)
			}
			text, cut := got.result.Log[0].Text, got.result.Log[1].Text
			text = strings.TrimRight(text, "\x00")
			var told struct{ Code, Message, Remedy string }
			if err := json.Unmarshal([]byte(text), &told); err != nil {
				t.Fatalf("%v in %q", err, text)
			}
			if told.Code != tc.code || !strings.Contains(told.Message, tc.message) || !strings.Contains(told.Remedy, tc.remedy) {
				t.Errorf("got %+v", told)
			}
			if cut != text[:3]+"\x00" {
				t.Errorf("three bytes of it are %q", cut)
			}
			if len(got.values) > 0 {
				i := len(tc.steps) - 1
				if got.values[i] != -int64(tc.errno) || got.values[i+1] != int64(len(text)) || got.values[i+2] != int64(len(text)) {
					t.Errorf("got %d for a text of %d bytes", got.values, len(text))
				}
			}
		})
	}
}

func TestRequestsAreCopiedAndBounded(t *testing.T) {
	var seen [][]byte
	h := &host{do: func(_ context.Context, _ abi.Op, request []byte) ([]byte, *sandbox.Refusal) {
		seen = append(seen, request)
		return []byte("ok"), nil
	}}
	p := &probe{data: map[int32]string{0: "op", 10: "first"}, host: h, input: []byte("later"), steps: []step{
		{"call", []int64{0, 2, 10, 5}}, {"input_read", []int64{10, 0, 5}}, {"call", []int64{0, 2, 10, 5}}}}
	p.run(t)
	if len(seen) != 2 || !bytes.Equal(seen[0], []byte("first")) || !bytes.Equal(seen[1], []byte("later")) {
		t.Errorf("the host saw %q", seen)
	}
}

func TestClocksAndDeadline(t *testing.T) {
	p := &probe{steps: []step{{"now_ns", nil}, {"deadline_ms", nil}, {"random", []int64{0, 16}}}, show: [2]uint32{0, 16}}
	a, b := p.run(t), p.run(t)
	if a.values[0] < 1_700_000_000_000_000_000 || b.values[0] < a.values[0] {
		t.Errorf("the clock showed %d, then %d", a.values[0], b.values[0])
	}
	if ms := a.values[1]; ms < 1 || ms > 60_000 {
		t.Errorf("%d ms are left of a minute", ms)
	}
	if bytes.Equal(a.memory, b.memory) || bytes.Equal(a.memory, make([]byte, 16)) {
		t.Errorf("random bytes are %x and %x", a.memory, b.memory)
	}
}

func FuzzImports(f *testing.F) {
	for i := range abi.Imports() {
		f.Add(uint8(i), uint32(0), uint32(7), uint32(100), uint32(7))
		f.Add(uint8(i), uint32(mostOfI32), uint32(mostOfI32), uint32(mostOfI32), uint32(mostOfI32))
	}
	s := newSandbox(f, sandbox.Config{})
	funcs := abi.Imports()
	f.Fuzz(func(t *testing.T, which uint8, a, b, c, d uint32) {
		fn := funcs[int(which)%len(funcs)]
		args := []int64{int64(a), int64(b), int64(c), int64(d)}[:len(fn.Params)]
		p := &probe{data: map[int32]string{0: "context", 100: `{"code":"a","message":"b"}`},
			steps: []step{{"call", []int64{0, 7, 100, 7}}, {fn.Name, args}}}
		plugin := open(t, s, p.bytes())
		defer closing(t, plugin)
		_, err := plugin.Call(t.Context(), sandbox.Call{Export: "run", Host: echo()})
		if err != nil && carrel.CodeOf(err) != abi.GuestFailed {
			t.Errorf("%s%d: %v", fn.Name, args, err)
		}
	})
}

func TestAHostThatPanicsIsNotTheGuestsFault(t *testing.T) {
	h := &host{do: func(context.Context, abi.Op, []byte) ([]byte, *sandbox.Refusal) { panic("secret") }}
	p := &probe{data: map[int32]string{0: "op"}, steps: []step{{"call", []int64{0, 2, 0, 0}}}, host: h, cfg: sandbox.Config{Slots: 1}}
	got := p.run(t)
	e := asError(t, got.err)
	if e.Code != abi.Internal || e.Msg != "" || !strings.Contains(e.Error(), "secret") {
		t.Errorf("got %v", got.err)
	}
	if len(got.result.Log) != 0 {
		t.Errorf("the guest's log has %v", got.result.Log)
	}
}
