package main

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 && len(args) != 2 {
		ts.Fatalf("usage: json [POINTER VALUE]")
	}
	value := stdoutJSON(ts)
	if len(args) == 0 {
		return
	}
	if got := textAt(ts, value, args[0]); got != args[1] {
		ts.Fatalf("at %s is %s, want %s", args[0], got, args[1])
	}
}

func cmdLet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: let NAME POINTER")
	}
	ts.Setenv(args[0], textAt(ts, stdoutJSON(ts), args[1]))
}

// stdoutJSON decodes the output of the last command, which must be one JSON
// value and nothing else.
func stdoutJSON(ts *testscript.TestScript) any {
	var value any
	if err := json.Unmarshal([]byte(ts.ReadFile("stdout")), &value); err != nil {
		ts.Fatalf("stdout is no JSON: %v", err)
	}
	return value
}

// textAt returns what is at a JSON pointer: a text as it is, anything else as
// JSON, and "absent" if nothing is.
func textAt(ts *testscript.TestScript, value any, pointer string) string {
	if pointer != "" && pointer[0] != '/' {
		ts.Fatalf("%q is no JSON pointer", pointer)
	}
	for _, token := range strings.Split(pointer, "/")[1:] {
		switch v := value.(type) {
		case map[string]any:
			child, ok := v[token]
			if !ok {
				return "absent"
			}
			value = child
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(v) {
				return "absent"
			}
			value = v[i]
		default:
			return "absent"
		}
	}
	if text, ok := value.(string); ok {
		return text
	}
	b, err := json.Marshal(value)
	ts.Check(err)
	return string(b)
}
