package imports_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/imports"
)

// invocation writes down what reaches it, and answers with one message, memory
// or text, or with err.
type invocation struct {
	got string
	err error
}

func (v *invocation) saw(what string, args ...any) error {
	v.got = what
	for _, a := range args {
		b, _ := json.Marshal(a) // nothing here fails to encode
		v.got += " " + string(b)
	}
	return v.err
}

func (v *invocation) Describe() imports.Context {
	_ = v.saw("describe")
	return imports.Context{Tenant: "acme", Plugin: "p"}
}

func (v *invocation) Invoke(_ context.Context, r imports.Invoke) (imports.Invoked, error) {
	return imports.Invoked{Output: json.RawMessage(`{"a":1}`), Usage: imports.Usage{InputTokens: 1}}, v.saw("invoke", r)
}

func (v *invocation) Generate(_ context.Context, r imports.Generate) (imports.Generated, error) {
	return imports.Generated{Text: "A"}, v.saw("generate", r)
}

func (v *invocation) DefaultMemoryID(_ context.Context, s carrel.ServiceName, m carrel.MethodName) (imports.Memory, error) {
	return imports.Memory{MemoryID: "r#S.m", Key: "k"}, v.saw("default", s, m)
}

func (v *invocation) Messages(_ context.Context, of imports.Memory, after int64, limit int) ([]imports.Message, bool, error) {
	return []imports.Message{{Seq: 1, Turn: 1, Role: "user", Content: "U"}}, true, v.saw("messages", of, after, limit)
}

func (v *invocation) Append(_ context.Context, to imports.Memory, turn []carrel.Message) (imports.Appended, error) {
	return imports.Appended{Memory: imports.Memory{MemoryID: "1", Key: "k"}, Trimmed: int64(len(turn)) - 2}, v.saw("append", to, turn)
}

func (v *invocation) Delete(_ context.Context, m imports.Memory) (bool, error) {
	return true, v.saw("delete", m)
}

func (v *invocation) DeleteTurn(_ context.Context, m imports.Memory, turn int64) (bool, error) {
	return false, v.saw("delete turn", m, turn)
}

func (v *invocation) List(_ context.Context, prefix, after string, limit int) ([]imports.Listed, string, error) {
	return []imports.Listed{{MemoryID: "1", Kind: "explicit"}}, "9", v.saw("list", prefix, after, limit)
}

const turn = `"messages":[{"role":"user","content":"U"},{"role":"assistant","content":"A"}]`

func TestRequestsThatReachTheInvocation(t *testing.T) {
	const userAndAnswer = `[{"Role":"user","Content":"U","ToolCalls":null,"ToolCallID":""},{"Role":"assistant","Content":"A","ToolCalls":null,"ToolCallID":""}]`
	const generated = `{"text":"A","finishReason":"","model":"","usage":{"inputTokens":0,"outputTokens":0}}`
	const page = `{"messages":[{"seq":1,"turn":1,"role":"user","content":"U","at":"0001-01-01T00:00:00Z"}],"more":true}`
	const list = `{"memories":[{"memoryId":"1","key":"","kind":"explicit","messages":0,"bytes":0}],"next":"9"}`
	for name, tc := range map[string]struct {
		op            abi.Op
		request       string
		got, answered string
	}{
		"context": {abi.OpContext, `{}`, `describe`,
			`{"tenant":"acme","plugin":"p","version":"","service":"","method":"","requestId":"","invocationId":""}`},
		"invoke": {abi.OpInvoke, `{"plugin":"q","service":"S","method":"m","args":{"b":1,"a":[1.0]}}`,
			`invoke {"plugin":"q","service":"S","method":"m","args":{"b":1,"a":[1.0]}}`, `{"output":{"a":1},"usage":{"inputTokens":1,"outputTokens":0}}`},
		"invoke without args": {abi.OpInvoke, `{"service":"S","method":"m"}`, `invoke {"plugin":"","service":"S","method":"m","args":null}`,
			`{"output":{"a":1},"usage":{"inputTokens":1,"outputTokens":0}}`},
		"a model call": {abi.OpModelGenerate, `{"messages":[{"role":"user","content":"U"}]}`,
			`generate {"model":"","messages":[{"role":"user","content":"U"}]}`, generated},
		"a model call with every option, at its bounds": {abi.OpModelGenerate,
			`{"model":"m","temperature":2,"topP":0,"maxOutputTokens":1,"stop":["x"],"randomSeed":-9223372036854775808,"reasoningEffort":"low","messages":[{"role":"system","content":""},{"role":"assistant","content":"A"}]}`,
			`generate {"model":"m","messages":[{"role":"system","content":""},{"role":"assistant","content":"A"}],"temperature":2,"topP":0,"maxOutputTokens":1,"stop":["x"],"randomSeed":-9223372036854775808,"reasoningEffort":"low"}`, generated},
		"a default id":             {abi.OpMemoryDefaultID, `{"service":"com.acme.S","method":"m"}`, `default "com.acme.S" "m"`, `{"memoryId":"r#S.m","key":"k"}`},
		"messages by memory id":    {abi.OpMemoryMessages, `{"memoryId":"1"}`, `messages {"memoryId":"1"} -1 100`, page},
		"messages by key":          {abi.OpMemoryMessages, `{"key":"k","after":0,"limit":1000}`, `messages {"key":"k"} 0 1000`, page},
		"messages behind the last": {abi.OpMemoryMessages, fmt.Sprintf(`{"key":"k","after":%d,"limit":1}`, int64(math.MaxInt64)), `messages {"key":"k"} 9223372036854775807 1`, page},
		"an append by memory id":   {abi.OpMemoryAppend, `{"memoryId":"1",` + turn + `}`, `append {"memoryId":"1"} ` + userAndAnswer, `{"memoryId":"1","key":"k"}`},
		"an append by key":         {abi.OpMemoryAppend, `{"key":"k",` + turn + `}`, `append {"key":"k"} ` + userAndAnswer, `{"memoryId":"1","key":"k"}`},
		"a deletion by memory id":  {abi.OpMemoryDelete, `{"memoryId":"1"}`, `delete {"memoryId":"1"}`, `{"deleted":true}`},
		"a deletion by key":        {abi.OpMemoryDelete, `{"key":"k"}`, `delete {"key":"k"}`, `{"deleted":true}`},
		"an append to a full history": {abi.OpMemoryAppend, `{"memoryId":"1","messages":[{"role":"user","content":"U"},{"role":"assistant","content":"","toolCalls":[{"id":"c","name":"t","arguments":{}}]},{"role":"tool","content":"R","toolCallId":"c"},{"role":"assistant","content":""}]}`,
			`append {"memoryId":"1"} [{"Role":"user","Content":"U","ToolCalls":null,"ToolCallID":""},{"Role":"assistant","Content":"","ToolCalls":[{"id":"c","name":"t","arguments":{}}],"ToolCallID":""},{"Role":"tool","Content":"R","ToolCalls":null,"ToolCallID":"c"},{"Role":"assistant","Content":"","ToolCalls":null,"ToolCallID":""}]`,
			`{"memoryId":"1","key":"k","trimmed":2}`},
		"a deletion of one turn":      {abi.OpMemoryDelete, `{"memoryId":"1","turn":1}`, `delete turn {"memoryId":"1"} 1`, `{"deleted":false}`},
		"a deletion of the last turn": {abi.OpMemoryDelete, fmt.Sprintf(`{"key":"k","turn":%d}`, int64(math.MaxInt64)), `delete turn {"key":"k"} 9223372036854775807`, `{"deleted":false}`},
		"a list":                      {abi.OpMemoryList, `{}`, `list "" "" 100`, list},
		"a list with all it can have": {abi.OpMemoryList, `{"prefix":"a","after":"9","limit":2}`, `list "a" "9" 2`, list},
		"the configuration":           {abi.OpConfigGet, `{}`, ``, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			v := &invocation{}
			result, refused := imports.New(v).Do(t.Context(), tc.op, []byte(tc.request))
			if refused != nil {
				t.Fatalf("refused: %+v", refused)
			}
			if v.got != tc.got || string(result) != tc.answered {
				t.Errorf("the invocation saw\n%s\nand the guest\n%s\nwant\n%s\nand\n%s", v.got, result, tc.got, tc.answered)
			}
		})
	}
}

func many(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }

func TestRequestsThatAreRefused(t *testing.T) {
	good := map[abi.Op]string{
		abi.OpContext: `{}`, abi.OpConfigGet: `{}`, abi.OpMemoryList: `{}`, abi.OpMemoryDelete: `{"memoryId":"1"}`,
		abi.OpInvoke: `{"service":"S","method":"m"}`, abi.OpModelGenerate: `{"messages":[{"role":"user","content":"U"}]}`,
		abi.OpMemoryDefaultID: `{"service":"S","method":"m"}`, abi.OpMemoryMessages: `{"memoryId":"1"}`, abi.OpMemoryAppend: `{"memoryId":"1",` + turn + `}`,
	}
	type bad struct {
		op      abi.Op
		request string
		code    abi.Code
	}
	cases := map[string]bad{}
	for op, request := range good {
		more := ","
		if request == `{}` {
			more = ""
		}
		cases[string(op)+" of nothing"] = bad{op, ``, abi.MalformedJSON}
		cases[string(op)+" of what is no JSON"] = bad{op, `{`, abi.MalformedJSON}
		cases[string(op)+" of bytes that are no text"] = bad{op, "{\"\xff\":1}", abi.MalformedJSON}
		cases[string(op)+" of an array"] = bad{op, `[]`, abi.BadRequest}
		cases[string(op)+" of a string"] = bad{op, `"x"`, abi.BadRequest}
		cases[string(op)+" with more behind it"] = bad{op, request + `{}`, abi.MalformedJSON}
		cases[string(op)+" with an unknown member"] = bad{op, strings.Replace(request, "{", `{"tenant":"other"`+more, 1), abi.BadRequest}
		cases[string(op)+" with a member twice"] = bad{op, `{"x":1,"x":1}`, abi.MalformedJSON}
		cases[string(op)+" nested without an end"] = bad{op, `{"args":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`, abi.MalformedJSON}
	}
	generate := func(members string) string {
		return `{` + members + `"messages":[{"role":"user","content":"U"}]}`
	}
	for name, c := range map[string]bad{
		"a member in another case":                {abi.OpMemoryDelete, `{"memoryid":"1"}`, abi.BadRequest},
		"a memory id that is no string":           {abi.OpMemoryDelete, `{"memoryId":1}`, abi.BadRequest},
		"neither memory id nor key to delete":     {abi.OpMemoryDelete, `{}`, abi.InvalidParams},
		"both memory id and key to delete":        {abi.OpMemoryDelete, `{"memoryId":"1","key":"k"}`, abi.InvalidParams},
		"an empty memory id to delete":            {abi.OpMemoryDelete, `{"memoryId":""}`, abi.InvalidParams},
		"a turn 0 to delete":                      {abi.OpMemoryDelete, `{"memoryId":"1","turn":0}`, abi.InvalidParams},
		"a turn below 0 to delete":                {abi.OpMemoryDelete, `{"memoryId":"1","turn":-1}`, abi.InvalidParams},
		"half a turn to delete":                   {abi.OpMemoryDelete, `{"memoryId":"1","turn":1.5}`, abi.InvalidParams},
		"a turn beyond all numbers to delete":     {abi.OpMemoryDelete, `{"memoryId":"1","turn":9223372036854775808}`, abi.InvalidParams},
		"a turn that is null":                     {abi.OpMemoryDelete, `{"memoryId":"1","turn":null}`, abi.BadRequest},
		"a turn of another type":                  {abi.OpMemoryDelete, `{"memoryId":"1","turn":"1"}`, abi.BadRequest},
		"a turn of no history":                    {abi.OpMemoryDelete, `{"turn":1}`, abi.InvalidParams},
		"neither memory id nor key to read":       {abi.OpMemoryMessages, `{"limit":1}`, abi.InvalidParams},
		"both memory id and key to read":          {abi.OpMemoryMessages, `{"memoryId":"1","key":"k"}`, abi.InvalidParams},
		"a limit below 1":                         {abi.OpMemoryMessages, `{"memoryId":"1","limit":-1}`, abi.InvalidParams},
		"a limit above 1000":                      {abi.OpMemoryMessages, `{"memoryId":"1","limit":1001}`, abi.InvalidParams},
		"a limit that is no whole number":         {abi.OpMemoryMessages, `{"memoryId":"1","limit":1.5}`, abi.BadRequest},
		"a limit of another type":                 {abi.OpMemoryMessages, `{"memoryId":"1","limit":"1"}`, abi.BadRequest},
		"an after below 0":                        {abi.OpMemoryMessages, `{"memoryId":"1","after":-1}`, abi.InvalidParams},
		"an after beyond all numbers":             {abi.OpMemoryMessages, `{"memoryId":"1","after":9223372036854775808}`, abi.BadRequest},
		"an after of messages as of a list":       {abi.OpMemoryMessages, `{"memoryId":"1","after":"9"}`, abi.BadRequest},
		"a list with a limit of 1001":             {abi.OpMemoryList, `{"limit":1001}`, abi.InvalidParams},
		"a list with a negative limit":            {abi.OpMemoryList, `{"limit":-5}`, abi.InvalidParams},
		"a list after a number":                   {abi.OpMemoryList, `{"after":9}`, abi.BadRequest},
		"neither memory id nor key to append":     {abi.OpMemoryAppend, `{` + turn + `}`, abi.InvalidParams},
		"both memory id and key to append":        {abi.OpMemoryAppend, `{"memoryId":"1","key":"k",` + turn + `}`, abi.InvalidParams},
		"an append of nothing":                    {abi.OpMemoryAppend, `{"memoryId":"1","messages":[]}`, abi.InvalidParams},
		"an append without messages":              {abi.OpMemoryAppend, `{"memoryId":"1"}`, abi.InvalidParams},
		"an append of half a turn":                {abi.OpMemoryAppend, `{"memoryId":"1","messages":[{"role":"user","content":"U"}]}`, abi.InvalidParams},
		"an append of too many messages":          {abi.OpMemoryAppend, `{"memoryId":"1","messages":[` + many(257, `{"role":"user","content":"U"}`) + `]}`, abi.LimitExceeded},
		"an append that sets a seq":               {abi.OpMemoryAppend, `{"memoryId":"1","messages":[{"role":"user","content":"U","seq":1},{"role":"assistant","content":"A"}]}`, abi.BadRequest},
		"a service that is no name":               {abi.OpMemoryDefaultID, `{"service":"a b","method":"m"}`, abi.BadRequest},
		"a method that is no name":                {abi.OpMemoryDefaultID, `{"service":"S","method":"a.b"}`, abi.BadRequest},
		"no method":                               {abi.OpMemoryDefaultID, `{"service":"S"}`, abi.BadRequest},
		"a memory id beside args":                 {abi.OpInvoke, `{"service":"S","method":"m","memoryId":"1"}`, abi.BadRequest},
		"a service of another type":               {abi.OpInvoke, `{"service":{},"method":"m"}`, abi.BadRequest},
		"a model call without messages":           {abi.OpModelGenerate, `{"model":"m"}`, abi.InvalidParams},
		"a model call of a tool's message":        {abi.OpModelGenerate, `{"messages":[{"role":"tool","content":"r"}]}`, abi.InvalidParams},
		"a model call of no role":                 {abi.OpModelGenerate, `{"messages":[{"content":"r"}]}`, abi.InvalidParams},
		"a model call of an empty question":       {abi.OpModelGenerate, `{"messages":[{"role":"user","content":"U"},{"role":"user","content":""}]}`, abi.InvalidParams},
		"a model call of parts":                   {abi.OpModelGenerate, `{"messages":[{"role":"user","content":[]}]}`, abi.BadRequest},
		"a temperature above 2":                   {abi.OpModelGenerate, generate(`"temperature":2.1,`), abi.InvalidParams},
		"a temperature below 0":                   {abi.OpModelGenerate, generate(`"temperature":-0.1,`), abi.InvalidParams},
		"a topP above 1":                          {abi.OpModelGenerate, generate(`"topP":1.1,`), abi.InvalidParams},
		"no output tokens":                        {abi.OpModelGenerate, generate(`"maxOutputTokens":0,`), abi.InvalidParams},
		"output tokens of 32 bits":                {abi.OpModelGenerate, generate(`"maxOutputTokens":2147483648,`), abi.InvalidParams},
		"an empty stop sequence":                  {abi.OpModelGenerate, generate(`"stop":[""],`), abi.InvalidParams},
		"a stop sequence that is too long":        {abi.OpModelGenerate, generate(`"stop":["` + strings.Repeat("x", 257) + `"],`), abi.InvalidParams},
		"too many stop sequences":                 {abi.OpModelGenerate, generate(`"stop":[` + many(17, `"x"`) + `],`), abi.InvalidParams},
		"an effort that is too long":              {abi.OpModelGenerate, generate(`"reasoningEffort":"` + strings.Repeat("x", 64) + `",`), abi.InvalidParams},
		"a seed that is no whole number":          {abi.OpModelGenerate, generate(`"randomSeed":1.5,`), abi.BadRequest},
		"a number that arithmetic would choke on": {abi.OpInvoke, `{"service":"S","method":"m","args":{"n":1e1000000}}`, abi.MalformedJSON},
	} {
		cases[name] = c
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := &invocation{}
			result, refused := imports.New(v).Do(t.Context(), tc.op, []byte(tc.request))
			if refused == nil {
				t.Fatalf("got %s; the invocation saw %s", result, v.got)
			}
			want := abi.EINVAL
			if tc.code == abi.LimitExceeded {
				want = abi.EQUOTA
			}
			if refused.Code != tc.code.String() || refused.Errno != want || refused.Message == "" || v.got != "" || result != nil {
				t.Errorf("got %+v, the invocation saw %q", refused, v.got)
			}
		})
	}
}

func TestAHugeRequestIsReadOnce(t *testing.T) {
	huge := strings.Repeat("x", abi.MaxRequestBytes-100)
	v := &invocation{}
	if _, refused := imports.New(v).Do(t.Context(), abi.OpMemoryAppend, []byte(
		`{"memoryId":"1","messages":[{"role":"user","content":"`+huge+`"},{"role":"assistant","content":"A"}]}`)); refused != nil || !strings.Contains(v.got, huge) {
		t.Errorf("got %+v", refused)
	}
	v = &invocation{}
	faults := `{"memoryId":"1","messages":[` + many(20000, `{"role":"x","content":""}`) + `]}`
	if _, refused := imports.New(v).Do(t.Context(), abi.OpMemoryAppend, []byte(faults)); refused == nil || len(refused.Message) > 1000 {
		t.Errorf("got %+v", refused)
	}
}

func TestOperationsThatAreNone(t *testing.T) {
	v := &invocation{}
	h := imports.New(v)
	for _, op := range []abi.Op{"", "nope", "Context", "context ", abi.OpKVGet, abi.OpKVPut, abi.OpKVDelete, abi.OpKVList, abi.OpKVCAS, abi.OpHTTPFetch} {
		result, refused := h.Do(t.Context(), op, []byte(`{}`))
		if refused == nil || refused.Errno != abi.ENOSYS || result != nil || refused.Remedy == "" || v.got != "" {
			t.Errorf("%q came to %s, %+v", op, result, refused)
		}
		if h.Knows(string(op)) {
			t.Errorf("it says that it knows %q", op)
		}
	}
	known := 0
	for _, op := range abi.Ops() {
		if _, refused := h.Do(t.Context(), op, nil); h.Knows(string(op)) != (refused.Errno != abi.ENOSYS) {
			t.Errorf("%s: it knows it %t, and refuses it with %+v", op, h.Knows(string(op)), refused)
		}
		if h.Knows(string(op)) {
			known++
		}
	}
	if known != 9 {
		t.Errorf("it knows %d operations", known)
	}
}

// Every failure has an errno of the contract, so that a guest can tell what to
// do; and nothing of an unclassified one reaches it.
func TestEveryCodeHasAnErrno(t *testing.T) {
	of := map[abi.Errno][]string{}
	for _, code := range abi.Codes() {
		v := &invocation{err: fmt.Errorf("outside: %w", &carrel.Error{
			Op: "secret.Op", Code: code, Msg: "told", Limit: "aLimit", Err: errors.New("secret cause"),
		})}
		_, refused := imports.New(v).Do(t.Context(), abi.OpMemoryDelete, []byte(`{"key":"k"}`))
		if refused == nil || refused.Errno.String() == "EUNKNOWN" || refused.Errno == abi.ENOSYS || refused.Code != code.String() {
			t.Errorf("%v is refused with %+v", code, refused)
			continue
		}
		want := "told (limit aLimit)"
		if code == abi.Internal {
			want = "the host failed"
		}
		if refused.Message != want {
			t.Errorf("%v tells %q, want %q", code, refused.Message, want)
		}
		of[refused.Errno] = append(of[refused.Errno], code.String())
	}
	for errno, want := range map[abi.Errno][]string{
		abi.ENOENT: {"not_found"}, abi.ETIMEDOUT: {"timeout"}, abi.EBUSY: {"memory_busy", "session_busy", "overloaded"},
		abi.EPERM:     {"unauthenticated", "forbidden", "wrong_host", "guard_refused"},
		abi.ECANCELED: {"scope_closed", "session_closed", "canceled", "draining"},
		abi.EQUOTA:    {"limit_exceeded", "fuel_exhausted", "budget_exceeded", "quota_exceeded", "rate_limited"},
		abi.E2BIG:     {"too_large", "context_too_large"},
	} {
		slices.Sort(want)
		if slices.Sort(of[errno]); !slices.Equal(of[errno], want) {
			t.Errorf("%v stands for %v, want %v", errno, of[errno], want)
		}
	}
}

func TestNothingInternalReachesAGuest(t *testing.T) {
	secret := errors.New("SECRET at 10.0.0.1")
	for name, tc := range map[string]struct {
		err     error
		errno   abi.Errno
		code    string
		message string
	}{
		"an error that nobody classified":     {secret, abi.EIO, "internal", "the host failed"},
		"a wrapped one":                       {fmt.Errorf("read /var/SECRET: %w", secret), abi.EIO, "internal", "the host failed"},
		"an internal one that says more":      {&carrel.Error{Code: abi.Internal, Msg: "SECRET", Err: secret}, abi.EIO, "internal", "the host failed"},
		"one whose message is not to be told": {&carrel.Error{Code: abi.ModelFailed, Err: secret}, abi.EIO, "model_failed", "the host failed"},
		"one without a code":                  {&carrel.Error{Msg: "SECRET", Err: secret}, abi.EIO, "internal", "the host failed"},
		"a deadline":                          {fmt.Errorf("SECRET: %w", context.DeadlineExceeded), abi.ETIMEDOUT, "timeout", "the host failed"},
		"a cancellation":                      {fmt.Errorf("SECRET: %w", context.Canceled), abi.ECANCELED, "canceled", "the host failed"},
		"a classified one around another":     {&carrel.Error{Op: "SECRET", Code: abi.StorageFull, Msg: "no room", Err: secret}, abi.EIO, "storage_full", "no room"},
		"a limit that its message names":      {carrel.FailLimit("SECRET", abi.QuotaExceeded, "sessions", "all sessions are open"), abi.EQUOTA, "quota_exceeded", "all sessions are open"},
		"faults, as many as can be told": {&carrel.Error{Code: abi.InvalidParams, Msg: "bad", Faults: slices.Repeat([]carrel.Fault{{Pointer: "/a", Message: "no"}}, 20)},
			abi.EINVAL, "invalid_params", "bad" + strings.Repeat("; /a: no", 8)},
	} {
		t.Run(name, func(t *testing.T) {
			for _, op := range []abi.Op{abi.OpInvoke, abi.OpMemoryDelete, abi.OpMemoryList} {
				request := map[abi.Op]string{abi.OpInvoke: `{"service":"S","method":"m"}`, abi.OpMemoryDelete: `{"key":"k"}`, abi.OpMemoryList: `{}`}[op]
				result, refused := imports.New(&invocation{err: tc.err}).Do(t.Context(), op, []byte(request))
				if refused == nil || result != nil || refused.Errno != tc.errno || refused.Code != tc.code || refused.Message != tc.message || refused.Remedy != "" {
					t.Errorf("%s: got %s, %+v", op, result, refused)
				}
			}
		})
	}
}

// FuzzDo checks that whatever a guest asks, it is answered with JSON or
// refused with an errno of the contract and a text.
func FuzzDo(f *testing.F) {
	for i, op := range abi.Ops() {
		f.Add(string(op), []byte(`{"memoryId":"1","service":"S","method":"m"}`))
		f.Add(string(op), []byte([]string{`{}`, `{"key":"k","limit":1}`, `{"messages":[{"role":"user","content":"\u0000"}]}`}[i%3]))
	}
	f.Add("memory.append", []byte(`{"memoryId":"1",`+turn+`}`))
	f.Add("memory.delete", []byte(`{"memoryId":"1","turn":1}`))
	f.Add("memory.delete", []byte(`{"key":"k","turn":null}`))
	f.Add("\xff", []byte("\xff"))
	f.Fuzz(func(t *testing.T, op string, request []byte) {
		for _, failure := range []error{nil, errors.New("SECRET")} {
			h := imports.New(&invocation{err: failure})
			result, refused := h.Do(t.Context(), abi.Op(op), request)
			if (result == nil) == (refused == nil) {
				t.Fatalf("got both or neither of %s and %+v", result, refused)
			}
			if refused == nil {
				if !json.Valid(result) {
					t.Errorf("the result is %q", result)
				}
				continue
			}
			if _, known := abi.ParseCode(refused.Code); !known || refused.Errno.String() == "EUNKNOWN" || refused.Message == "" ||
				utf8.Valid(request) && !utf8.ValidString(refused.Message) || strings.Contains(refused.Message, "SECRET") && !strings.Contains(string(request), "SECRET") {
				t.Errorf("got %+v", refused)
			}
			if (refused.Errno == abi.ENOSYS) == h.Knows(op) {
				t.Errorf("%q is refused with %+v", op, refused)
			}
		}
	})
}
