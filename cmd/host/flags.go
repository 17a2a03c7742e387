package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// flagFault is what is wrong with a flag's value, in words that name the flag.
type flagFault struct{ error }

// flagError is what a person is told of flags that make no sense.
func flagError(err error) error {
	if f, ok := errors.AsType[flagFault](err); ok {
		return usageError{f.error}
	}
	if number, ok := errors.AsType[*strconv.NumError](err); ok { // says how Go reads it
		return usageError{errors.New(strings.TrimSuffix(err.Error(), ": "+number.Error()))}
	}
	return usageError{err}
}

// filled is a flag that has a value where it is given. An empty one, as a
// script gives it whose variable is not set, would mean something else than was
// meant: no end user, no protection from repeats, the memory id of before.
type filled struct {
	to   *string
	name string
}

func (f filled) String() string {
	if f.to == nil {
		return ""
	}
	return *f.to
}

func (f filled) Set(s string) error {
	if s == "" {
		return flagFault{fmt.Errorf("--%s is empty; give it a value or leave it out", f.name)}
	}
	*f.to = s
	return nil
}

func (f filled) Type() string { return "string" }

// asked is the flag --status, which takes no value: the digest is an argument.
type asked struct{ to *bool }

func (a asked) String() string { return strconv.FormatBool(a.to != nil && *a.to) }

func (a asked) Set(s string) error {
	on, err := strconv.ParseBool(s)
	if err != nil {
		return flagFault{errors.New("--status takes no value; the digest comes after it: carrel push --status DIGEST")}
	}
	*a.to = on
	return nil
}

func (a asked) Type() string { return "bool" }

// turnNumber is a flag that names a turn.
type turnNumber struct{ to *int64 }

func (t turnNumber) String() string {
	if t.to == nil {
		return "0"
	}
	return strconv.FormatInt(*t.to, 10)
}

func (t turnNumber) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 {
		return flagFault{errors.New("--turn is the number of a turn, from 1, as `carrel memory show` has it; the system message is none")}
	}
	*t.to = n
	return nil
}

func (t turnNumber) Type() string { return "int" }

// timeLimit is a flag that names a positive duration, as a host reads it.
type timeLimit struct{ to *string }

func (t timeLimit) String() string { return filled{to: t.to}.String() }

func (t timeLimit) Set(s string) error {
	if d, err := time.ParseDuration(s); err != nil || d <= 0 {
		return flagFault{errors.New("--timeout is a positive duration, such as 20s or 1500ms")}
	}
	*t.to = s
	return nil
}

func (t timeLimit) Type() string { return "duration" }

// idempotencyKey is a flag that a host takes as the header Idempotency-Key.
type idempotencyKey struct{ to *string }

func (k idempotencyKey) String() string { return filled{to: k.to}.String() }

func (k idempotencyKey) Set(s string) error {
	const most = 255
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	if s == "" || len(s) > most || strings.ContainsFunc(s, odd) {
		return flagFault{errors.New("--idempotency-key is 1 to 255 visible ASCII characters, without spaces; best a random UUID")}
	}
	*k.to = s
	return nil
}

func (k idempotencyKey) Type() string { return "string" }
