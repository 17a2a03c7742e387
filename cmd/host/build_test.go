package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/host/sandbox/module"
)

func TestABuildThatTakesLongSaysWhyOnce(t *testing.T) {
	failed := errors.New("it failed")
	for name, tc := range map[string]struct {
		late bool
		want string
	}{
		"one that is done in time says nothing": {false, ""},
		"one that is late has a line":           {true, "still at work\n"},
	} {
		t.Run(name, func(t *testing.T) {
			late, said := make(chan time.Time), make(chan struct{})
			var out bytes.Buffer
			w := writes(func(b []byte) (int, error) {
				defer close(said)
				return out.Write(b)
			})
			err := orSay(w, late, "still at work", func() error {
				if tc.late {
					late <- time.Time{}
					<-said
				}
				return failed
			})
			if !errors.Is(err, failed) || out.String() != tc.want {
				t.Errorf("got %q, %v", out.String(), err)
			}
		})
	}
}

// writes is an io.Writer of a function.
type writes func([]byte) (int, error)

func (w writes) Write(b []byte) (int, error) { return w(b) }

func TestALargeModuleIsForTheHostToJudge(t *testing.T) {
	const manifest = `{"abi":"carrel/v1","name":"large","version":"1","services":[{"name":"S","methods":[` +
		`{"name":"chat","kind":"chat","params":{"type":"object","properties":{"msg":{"type":"string"}},"required":["msg"]}}]}]}`
	for name, tc := range map[string]struct {
		more int
		want string
	}{
		"one that every host takes":     {0, ""},
		"one that some operators allow": {module.DefaultLimits().Bytes, "a host takes 20971520 unless its operator raised limits.moduleBytes"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "large.wasm")
			if err := os.WriteFile(file, module.AppendCustom(module.Prompt([]byte(manifest)), "more", make([]byte, tc.more)), 0o600); err != nil {
				t.Fatal(err)
			}
			var said bytes.Buffer
			if err := warnOfModule(env{stderr: &said}, file); err != nil {
				t.Fatal(err)
			}
			if got := said.String(); !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
				t.Errorf("got %q", got)
			}
		})
	}
}
