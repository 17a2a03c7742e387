package scaffold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// MissingTool says that a toolchain is not installed.
type MissingTool struct {
	Tool   string // the command that was looked for
	Remedy string // how to get it
}

// Error returns a sentence that says which and how.
func (e *MissingTool) Error() string {
	return fmt.Sprintf("%s is not installed, or not in PATH; %s", e.Tool, e.Remedy)
}

// maxToolOutput bounds what of a compiler's messages is shown.
const maxToolOutput = 16 << 10

// tool is a command of a toolchain.
type tool struct {
	path string
	dir  string
	env  []string // besides the process's own
}

func findTool(name, remedy string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", &MissingTool{name, remedy}
	}
	return path, nil
}

// run runs the tool. The error holds what it wrote.
func (t tool) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, t.path, args...) //nolint:gosec // a toolchain's command, or the plugin's own program
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), t.env...)
	cmd.WaitDelay = 5 * time.Second // for what the tool started and left behind
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", t.name(args), ctx.Err())
	}
	said := strings.TrimRight(out.String(), "\n")
	if len(said) > maxToolOutput {
		said = strings.ToValidUTF8(said[:maxToolOutput], "") + "\n…"
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() && said != "" {
		return fmt.Errorf("%s failed:\n%s", t.name(args), said) // the status says no more
	}
	return fmt.Errorf("%s: %w\n%s", t.name(args), err, said)
}

// name is how messages call it: "go build".
func (t tool) name(args []string) string {
	base := t.path[strings.LastIndexAny(t.path, `/\`)+1:]
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return base + " " + args[0]
	}
	return base
}
