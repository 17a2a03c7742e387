package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/httpapi"
	"github.com/carrelhost/carrel/host/memory"
)

const (
	headLine   = `{"format":"carrel.history/v1","plugin":"acme","memoryId":"1","kind":"explicit","createdAt":"2026-01-02T03:04:05Z","messages":5}`
	systemLine = `{"seq":0,"turn":0,"role":"system","content":"S"}`
	userLine   = `{"seq":1,"turn":1,"role":"user","content":"U"}`
	callLine   = `{"seq":2,"turn":1,"role":"assistant","content":"","toolCalls":[{"id":"c","name":"add","arguments":{"a":1}}]}`
	resultLine = `{"seq":3,"turn":1,"role":"tool","content":"R","toolCallId":"c"}`
	answerLine = `{"seq":4,"turn":1,"role":"assistant","content":"A","at":"2026-01-02T03:04:06.5Z","origin":"plugin"}`
)

func endLine(n int) string { return `{"end":true,"messages":` + strconv.Itoa(n) + `}` }

func joined(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

func TestAnImportIsReadLineByLine(t *testing.T) {
	for name, body := range map[string]string{
		"as it was exported":          joined(headLine, systemLine, userLine, callLine, resultLine, answerLine, endLine(5)),
		"without the last line break": strings.TrimSuffix(joined(headLine, systemLine, userLine, callLine, resultLine, answerLine, endLine(5)), "\n"),
		"with carriage returns":       strings.ReplaceAll(joined(headLine, systemLine, userLine, callLine, resultLine, answerLine, endLine(5)), "\n", "\r\n"),
	} {
		got, err := httpapi.ReadHistory([]byte(body), importLimits(5))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.Head.Plugin != "acme" || got.System != "S" || len(got.Turns) != 1 || len(got.Turns[0].Messages) != 4 {
			t.Errorf("%s: it is %+v", name, got)
			continue
		}
		turn := got.Turns[0]
		if turn.Origin != carrel.OriginImport || !turn.At.Equal(time.Date(2026, 1, 2, 3, 4, 6, 5e8, time.UTC)) {
			t.Errorf("%s: the turn is %q, at %v", name, turn.Origin, turn.At)
		}
		if c := turn.Messages[1].ToolCalls[0]; c.ID != "c" || c.Name != "add" || string(c.Args) != `{"a":1}` {
			t.Errorf("%s: the tool call is %+v", name, c)
		}
	}
	for name, body := range map[string]string{
		"no message":          joined(headLine, endLine(0)),
		"a system message":    joined(headLine, systemLine, endLine(1)),
		"turns with gaps":     joined(headLine, `{"seq":7,"turn":3,"role":"user","content":"U"}`, `{"seq":9,"turn":3,"role":"assistant","content":"A"}`, endLine(2)),
		"a history's owner":   joined(strings.Replace(headLine, `"explicit"`, `"plugin","owner":"subject:ada"`, 1), endLine(0)),
		"a session's history": joined(strings.Replace(headLine, `"explicit"`, `"session"`, 1), endLine(0)),
	} {
		if _, err := httpapi.ReadHistory([]byte(body), importLimits(5)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnImportThatIsNoHistoryIsRefusedByLine(t *testing.T) {
	with := func(line string) string { return joined(headLine, systemLine, userLine, line, endLine(3)) }
	for name, c := range map[string]struct {
		body string
		code abi.Code
		says string // the beginning of the message
	}{
		"it is empty":                                {"", abi.InvalidParams, `line 1: the first line of an export is missing, {"format":"carrel.history/v1",…}`},
		"it is one JSON document":                    {`[` + headLine + `]`, abi.BadRequest, "line 1: "},
		"its first line is cut":                      {headLine[:30], abi.MalformedJSON, "line 1: "},
		"the format is another":                      {strings.Replace(headLine, "/v1", "/v2", 1), abi.InvalidParams, "line 1: this host reads"},
		"the head has a member too many":             {strings.Replace(headLine, `"kind"`, `"colour":"red","kind"`, 1), abi.BadRequest, "line 1: "},
		"the head has a member twice":                {strings.Replace(headLine, `"kind"`, `"plugin":"b","kind"`, 1), abi.MalformedJSON, "line 1: "},
		"the kind is none":                           {strings.Replace(headLine, "explicit", "eternal", 1), abi.InvalidParams, "line 1: it is explicit, request"},
		"an explicit history has an owner":           {strings.Replace(headLine, `"kind"`, `"owner":"subject:a","kind"`, 1), abi.InvalidParams, "line 1: a history of the kind plugin"},
		"the owner is no name of one":                {strings.Replace(headLine, `"explicit"`, `"plugin","owner":"ada"`, 1), abi.InvalidParams, "line 1: an owner is as an export names it"},
		"it has only a head":                         {joined(headLine), abi.InvalidParams, `line 2: the last line, {"end":true,…}, is missing: the export was cut`},
		"the end is missing":                         {joined(headLine, systemLine, userLine, `{"seq":2,"turn":1,"role":"assistant","content":"A"}`), abi.InvalidParams, "line 5: the last line"},
		"the end counts too few":                     {joined(headLine, systemLine, endLine(0)), abi.InvalidParams, "line 3: it must be the number"},
		"the end has no count":                       {joined(headLine, `{"end":true}`), abi.InvalidParams, "line 2: it must be the number"},
		"the end is false":                           {joined(headLine, `{"end":false,"messages":0}`), abi.InvalidParams, "line 2: it is true"},
		"the end is a message too":                   {joined(headLine, `{"end":true,"messages":0,"seq":0}`), abi.InvalidParams, "line 2: it is a message and the end"},
		"something follows the end":                  {joined(headLine, endLine(0), userLine), abi.InvalidParams, "line 3: the line before it was the end"},
		"an empty line follows the end":              {joined(headLine, endLine(0), ""), abi.InvalidParams, "line 3: the line before it was the end"},
		"a line is empty":                            {joined(headLine, "", endLine(0)), abi.MalformedJSON, "line 2: "},
		"a line holds two values":                    {joined(headLine, systemLine+userLine), abi.MalformedJSON, "line 2: "},
		"a line is cut":                              {joined(headLine, systemLine[:20]), abi.MalformedJSON, "line 2: "},
		"a line is nested too deeply":                {with(strings.Replace(callLine, `{"a":1}`, `{"a":`+strings.Repeat("[", 70)+strings.Repeat("]", 70)+`}`, 1)), abi.MalformedJSON, "line 4: "},
		"a message has a member too many":            {with(`{"seq":2,"turn":1,"role":"assistant","content":"A","mood":"fine"}`), abi.BadRequest, "line 4: "},
		"a member's case is wrong":                   {with(`{"seq":2,"turn":1,"Role":"assistant","content":"A"}`), abi.BadRequest, "line 4: "},
		"a message lacks its seq":                    {with(`{"turn":1,"role":"assistant","content":"A"}`), abi.InvalidParams, "line 4: it is missing"},
		"a message lacks its content":                {with(`{"seq":2,"turn":1,"role":"assistant"}`), abi.InvalidParams, "line 4: it is missing"},
		"the role is none":                           {with(`{"seq":2,"turn":1,"role":"narrator","content":"A"}`), abi.InvalidParams, "line 4: turn 1 is not whole"},
		"the origin is none":                         {with(`{"seq":2,"turn":1,"role":"assistant","content":"A","origin":"mars"}`), abi.InvalidParams, "line 4: it is plugin or import"},
		"a message is older than computers":          {with(`{"seq":2,"turn":1,"role":"assistant","content":"A","at":"1815-12-10T00:00:00Z"}`), abi.InvalidParams, "line 4: it is before 1970"},
		"the order of messages is wrong":             {with(`{"seq":1,"turn":1,"role":"assistant","content":"A"}`), abi.InvalidParams, "line 4: it must be greater"},
		"the order of turns is wrong":                {joined(headLine, `{"seq":1,"turn":2,"role":"user","content":"U"}`, `{"seq":2,"turn":1,"role":"assistant","content":"A"}`, endLine(2)), abi.InvalidParams, "line 3: it must not be less"},
		"there are two system messages":              {joined(headLine, systemLine, systemLine, endLine(2)), abi.InvalidParams, "line 3: a history has one system message"},
		"the system message comes late":              {with(systemLine), abi.InvalidParams, "line 4: a history has one system message"},
		"a system message is in a turn":              {with(`{"seq":2,"turn":1,"role":"system","content":"S"}`), abi.InvalidParams, "line 4: the system message, and no other"},
		"a user speaks as the system":                {joined(headLine, `{"seq":0,"turn":0,"role":"user","content":"S"}`, endLine(1)), abi.InvalidParams, "line 2: the system message, and no other"},
		"the last turn is half":                      {joined(headLine, systemLine, userLine, callLine, resultLine, endLine(4)), abi.InvalidParams, "line 5: turn 1 is not whole"},
		"a turn in the middle is half":               {with(`{"seq":2,"turn":2,"role":"user","content":"U"}`), abi.InvalidParams, "line 3: turn 1 is not whole"},
		"a turn begins with an answer":               {joined(headLine, answerLine, endLine(1)), abi.InvalidParams, "line 2: turn 1 is not whole"},
		"a tool's result answers nothing":            {with(strings.Replace(resultLine, `"c"`, `"d"`, 1)), abi.InvalidParams, "line 4: turn 1 is not whole"},
		"a turn holds two user messages":             {joined(headLine, userLine, `{"seq":2,"turn":1,"role":"user","content":"U"}`, answerLine, endLine(3)), abi.InvalidParams, "line 3: turn 1 is not whole"},
		"there are more messages than a history has": {joined(headLine, systemLine, userLine, callLine, resultLine, answerLine, `{"seq":5,"turn":2,"role":"user","content":"U"}`), abi.LimitExceeded, "line 7: a history has at most 5"},
		"a number is beyond what computers count to": {with(`{"seq":1e999,"turn":1,"role":"assistant","content":"A"}`), abi.MalformedJSON, "line 4: "},
		"a text is not valid UTF-8":                  {with("{\"seq\":2,\"turn\":1,\"role\":\"assistant\",\"content\":\"\xff\"}"), abi.MalformedJSON, "line 4: "},
		"a line is null":                             {joined(headLine, "null", endLine(0)), abi.InvalidParams, "line 2: it is missing"},
	} {
		_, err := httpapi.ReadHistory([]byte(c.body), importLimits(5))
		e, ok := errors.AsType[*carrel.Error](err)
		if !ok || e.Code != c.code || !strings.HasPrefix(e.Msg, c.says) {
			t.Errorf("%s: got %v, want %v %q", name, err, c.code, c.says)
		}
	}
}

// importLimits allow so many messages of 64 bytes each.
func importLimits(most int64) httpapi.Limits {
	return httpapi.Limits{MessagesPerHistory: most, RequestBytes: 32, AnswerBytes: 64}
}

func TestAMessageOfAnImportIsNoLargerThanTheHostStores(t *testing.T) {
	const call = `{"seq":2,"turn":1,"role":"assistant","content":"","toolCalls":[{"id":"c","name":"t","arguments":{"a":"%s"}}]}`
	size := carrel.Message{ToolCalls: []carrel.ToolCall{{ID: "c", Name: "t", Args: []byte(`{"a":""}`)}}}.Size()
	user := func(n int) string {
		return strings.Replace(userLine, `"U"`, `"`+strings.Repeat("é", n/2)+`"`, 1)
	}
	for name, c := range map[string]struct {
		limits httpapi.Limits
		second string
		limit  string // that is named; "" = it is read
		says   string
	}{
		"as large as an answer":       {importLimits(9), joined(user(64), answerLine), "", ""},
		"larger than an answer":       {importLimits(9), joined(user(66), answerLine), "answerBytes", "line 2: a message has at most 64 bytes"},
		"as large as a request":       {httpapi.Limits{MessagesPerHistory: 9, RequestBytes: 66, AnswerBytes: 64}, joined(user(66), answerLine), "", ""},
		"larger than a request":       {httpapi.Limits{MessagesPerHistory: 9, RequestBytes: 66, AnswerBytes: 64}, joined(user(68), answerLine), "requestBytes", "line 2: a message has at most 66 bytes"},
		"arguments as an answer":      {importLimits(9), joined(userLine, fmt.Sprintf(call, strings.Repeat("x", 64-int(size))), resultLine, answerLine), "", ""},
		"arguments larger than those": {importLimits(9), joined(userLine, fmt.Sprintf(call, strings.Repeat("x", 65-int(size))), resultLine, answerLine), "answerBytes", "line 3: "},
	} {
		n := strings.Count(c.second, "\n")
		_, err := httpapi.ReadHistory([]byte(joined(headLine, strings.TrimSuffix(c.second, "\n"), endLine(n))), c.limits)
		e, ok := errors.AsType[*carrel.Error](err)
		switch {
		case c.limit == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.limit != "" && (!ok || e.Code != abi.LimitExceeded || e.Limit != c.limit || !strings.HasPrefix(e.Msg, c.says) || !strings.Contains(e.Msg, "limits."+c.limit)):
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestATurnOfAnImportIsBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(joined(headLine, userLine))
	for seq := 2; seq < 2*memory.MaxTurnMessages; seq += 2 {
		id := strconv.Itoa(seq)
		b.WriteString(joined(
			`{"seq":`+id+`,"turn":1,"role":"assistant","content":"","toolCalls":[{"id":"`+id+`","name":"t","arguments":{}}]}`,
			`{"seq":`+strconv.Itoa(seq+1)+`,"turn":1,"role":"tool","content":"","toolCallId":"`+id+`"}`))
	}
	_, err := httpapi.ReadHistory([]byte(b.String()), importLimits(1<<20))
	e, ok := errors.AsType[*carrel.Error](err)
	if !ok || e.Limit != "turnMessages" || !strings.HasPrefix(e.Msg, "line "+strconv.Itoa(memory.MaxTurnMessages+2)+": ") {
		t.Errorf("got %v", err)
	}
}

// What is read can be stored: whole turns and known kinds. What is refused
// says in which line.
func FuzzImport(f *testing.F) {
	f.Add([]byte(joined(headLine, systemLine, userLine, callLine, resultLine, answerLine, endLine(5))))
	f.Add([]byte(joined(headLine, endLine(0))))
	f.Add([]byte(joined(headLine, systemLine, systemLine, endLine(2))))
	f.Add([]byte(joined(headLine, userLine, answerLine)))
	f.Fuzz(func(t *testing.T, body []byte) {
		const most = 50
		got, err := httpapi.ReadHistory(body, importLimits(most))
		if err != nil {
			e, ok := errors.AsType[*carrel.Error](err)
			if !ok || !strings.HasPrefix(e.Msg, "line ") || e.Code == abi.Internal {
				t.Fatalf("it is refused with %v", err)
			}
			return
		}
		n := 0
		if got.System != "" {
			n++
		}
		for _, turn := range got.Turns {
			if err := memory.CheckTurn(turn.Messages); err != nil {
				t.Fatalf("a turn was read that cannot be stored: %v", err)
			}
			for _, m := range turn.Messages {
				for _, c := range m.ToolCalls {
					if !json.Valid(c.Args) {
						t.Fatalf("arguments are %q", c.Args)
					}
				}
			}
			n += len(turn.Messages)
		}
		if n > most || n >= strings.Count(string(body), "\n")+1 {
			t.Fatalf("%d messages were read", n)
		}
	})
}
