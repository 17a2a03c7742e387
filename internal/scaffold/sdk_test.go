package scaffold_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/internal/scaffold"
)

func TestTheSDKOfAProjectIsComparedWithTheCommands(t *testing.T) {
	edit := func(change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, sdk string) {
			file := filepath.Join(sdk, "sdk", "go", "plugin.go")
			b, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(file, change(b), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(t *testing.T, sdk string)
		other  bool
	}{
		"a new project has the command's":       {func(*testing.T, string) {}, false},
		"a file of an older command":            {edit(func(b []byte) []byte { return bytes.Replace(b, []byte("Warmup *Warmup"), nil, 1) }), true},
		"line ends of a checkout are no change": {edit(func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")) }), false},
		"a file that an older command did not have": {func(t *testing.T, sdk string) {
			if err := os.Remove(filepath.Join(sdk, "abi", "limits.go")); err != nil {
				t.Fatal(err)
			}
		}, true},
		"a file that there is no more": {func(t *testing.T, sdk string) {
			write(t, filepath.Join(sdk, "abi"), map[string]string{"old.go": "package abi\n"})
		}, true},
		"what an editor leaves behind": {func(t *testing.T, sdk string) { write(t, sdk, map[string]string{".project": "{}"}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newGo(t, map[string]string{"mine.go": "package main\n"})
			before := files(t, dir)
			sdk := filepath.Join(dir, "carrel-sdk")
			tc.change(t, sdk)
			want := ""
			if tc.other {
				want = sdk
			}
			if got, err := scaffold.OtherSDK(dir); err != nil || got != want {
				t.Fatalf("got %q, %v, want %q", got, err, want)
			}
			inside := filepath.Join(dir, "plugins", "one")
			if err := os.MkdirAll(inside, 0o700); err != nil {
				t.Fatal(err)
			}
			if got, err := scaffold.OtherSDK(inside); err != nil || got != want {
				t.Errorf("of a package below: got %q, %v", got, err)
			}
			if got, err := scaffold.UpdateSDK(dir); err != nil || got != sdk {
				t.Fatalf("got %q, %v", got, err)
			}
			if got, err := scaffold.OtherSDK(dir); err != nil || got != "" {
				t.Errorf("after the update: got %q, %v", got, err)
			}
			if after := files(t, dir); !slices.Equal(after, before) {
				t.Errorf("the files are %v, before they were %v", after, before)
			}
		})
	}
}

func TestProjectsWithoutACopyOfTheSDK(t *testing.T) {
	for name, content := range map[string]map[string]string{
		"no project":                           {},
		"a module that gets the SDK otherwise": {"go.mod": "module example.com/m\n", "plugin.go": "package main\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, content)
			if got, err := scaffold.OtherSDK(dir); err != nil || got != "" {
				t.Errorf("got %q, %v", got, err)
			}
			if _, err := scaffold.UpdateSDK(dir); carrel.CodeOf(err) != abi.BadRequest {
				t.Errorf("got %v", err)
			}
		})
	}
}
