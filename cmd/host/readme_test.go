package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/internal/testenv"
)

// shell runs a script with the shell, in a folder, against a host of the
// script's own data directory, and returns its output.
func shell(t *testing.T, dir, script string, vars ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", script)
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GORACE=" + raceOptions}, vars...)
	cmd.Env = append(cmd.Env, goCaches(t)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// goCaches lets builds of plugins use what is compiled and downloaded already.
func goCaches(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatalf("go env: %v", err)
	}
	paths := strings.Fields(string(out))
	return []string{"GOCACHE=" + paths[0], "GOMODCACHE=" + paths[1], "GOPROXY=off", "GOFLAGS=-mod=mod"}
}

var readmeCommand = regexp.MustCompile(`(?m)^    (carrel .*)$`)

func TestCommandsOfExampleReadmesRun(t *testing.T) {
	readmes, err := filepath.Glob(filepath.Join("..", "..", "examples", "*", "README.md"))
	if err != nil || len(readmes) == 0 {
		t.Fatalf("found %d examples, %v", len(readmes), err)
	}
	for _, readme := range readmes {
		dir := filepath.Dir(readme)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			text, err := os.ReadFile(readme)
			if err != nil {
				t.Fatal(err)
			}
			commands := readmeCommand.FindAllStringSubmatch(string(text), -1)
			if len(commands) == 0 {
				t.Fatal("the README has no commands")
			}
			host := "CARREL_DATA=" + testenv.New(t, testenv.Config()).Data()
			refused := strings.Contains(string(text), "refuses the upload")
			for _, c := range commands {
				out, err := shell(t, dir, c[1], host)
				if (err != nil) != refused {
					t.Errorf("%s: %v\n%s", c[1], err, out)
				}
			}
		})
	}
}

// block returns the fenced block of a text that has a line.
func block(t *testing.T, text, line string) string {
	t.Helper()
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		if strings.Contains(m[1], line) {
			return m[1]
		}
	}
	t.Fatalf("no block has the line %q", line)
	return ""
}

// checkout is a folder as the README's reader has it: with a binary, the
// examples, and the data of a host that runs.
func checkout(t *testing.T) string {
	t.Helper()
	carrel, err := exec.LookPath("carrel")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Abs(filepath.Join("..", "..", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for link, to := range map[string]string{
		"carrel": carrel, "examples": examples, "carrel-data": testenv.New(t, testenv.Config()).Data(),
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func needCurl(t *testing.T) {
	t.Helper()
	if out, err := shell(t, ".", "curl --help all | grep -e --json"); err != nil {
		t.Skipf("install curl 7.82 or newer to run the lines of the documentation: %v %s", err, out)
	}
}

func TestCallsByHandOfTheGuideRunAfterTheReadmes(t *testing.T) {
	needCurl(t)
	var script string
	for _, part := range []struct{ file, line string }{
		{"README.md", "KEY=$(cat carrel-data/owner.key)"}, {"docs/calling.md", "view=window"},
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(part.file)))
		if err != nil {
			t.Fatal(err)
		}
		script += block(t, string(text), part.line) + "\necho; echo ---\n"
	}
	out, err := shell(t, checkout(t), script)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, out, _ = strings.Cut(out, "---")
	for _, want := range []string{
		`"memoryId":"by-hand"`, `{"seq":0,"turn":0,"role":"system","content":"You are a mean assistant"}`,
		`"memoryId":"copy"`, `"histories":0`, `"reason":"deleted"`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %s:\n%s", want, out)
		}
	}
}

func TestCommandsOfTheReadmeRun(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		line string // that the block has
		want []string
		curl bool
	}{
		"by HTTP": {"KEY=$(cat carrel-data/owner.key)", []string{
			`"n":1`, `"output":"A2"`, `"content":"You are a mean assistant"`, `"reason":"deleted"`,
		}, true},
		"by command line": {"./carrel memory ls", []string{
			"version 1 is active", "A2", "You are a mean assistant", `ended: memory "42"`,
		}, false},
		"memory that ends": {"./carrel scrub", []string{`ended: memory "7"`, "no file has it", "deleted"}, false},
		"with code": {"./carrel new hello", []string{
			"hello is a go plugin now", "version 1 is active", `"greeting":"Hello, Ada!"`, "A2", "info  com.example.Hello.welcome",
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.curl {
				needCurl(t)
			}
			out, err := shell(t, checkout(t), block(t, string(readme), tc.line), "CARREL_ADMIN_KEY="+testenv.AdminKey)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range tc.want {
				if !strings.Contains(out, want) {
					t.Errorf("the output lacks %s:\n%s", want, out)
				}
			}
		})
	}
}
