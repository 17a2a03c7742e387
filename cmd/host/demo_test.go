package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
)

// interrupting ends a context when a text is written to it, as a person would
// who has seen enough.
type interrupting struct {
	bytes.Buffer
	at        string
	interrupt context.CancelFunc
}

func (w *interrupting) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.at) {
		w.interrupt()
	}
	return w.Buffer.Write(p)
}

func TestInterruptedDemoEndsAtOnceAndLeavesNothing(t *testing.T) {
	scratch := t.TempDir()
	t.Setenv("TMPDIR", scratch)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := &interrupting{at: "3. ", interrupt: interrupt}
	err := demo(ctx, env{stdout: out, stderr: out}, true)
	if !errors.Is(err, context.Canceled) || exitCode(err) != exitInterrupted {
		t.Errorf("the demo ended with %v, exit code %d", err, exitCode(err))
	}
	if strings.Contains(out.String(), "4. ") {
		t.Error("the demo went on after the interrupt")
	}
	left, err := os.ReadDir(scratch)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestColours(t *testing.T) {
	for name, tc := range map[string]struct {
		vars map[string]string
		want bool
	}{
		"a terminal has colours":               {map[string]string{"TERM": "xterm"}, true},
		"NO_COLOR says no, whatever its value": {map[string]string{"TERM": "xterm", "NO_COLOR": "0"}, false},
		"an empty NO_COLOR says nothing":       {map[string]string{"NO_COLOR": ""}, true},
		"a dumb terminal would show the codes": {map[string]string{"TERM": "dumb"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := wantsColour(tc.vars); got != tc.want {
				t.Errorf("wantsColour is %v", got)
			}
		})
	}
}

func TestOnlyColouredTitlesHaveEscapes(t *testing.T) {
	for _, colour := range []bool{true, false} {
		var out bytes.Buffer
		tour := &tour{e: env{stdout: &out, colour: colour}}
		tour.title("A title")
		if got := strings.Contains(out.String(), "\x1b["); got != colour {
			t.Errorf("colour %v: %q", colour, out.String())
		}
	}
}
