package websocketchat_test

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/internal/testenv"
)

func TestTheTerminalChatsInOneSession(t *testing.T) {
	source, err := os.ReadFile("websocket-chat.md")
	if err != nil {
		t.Fatal(err)
	}
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(string(source))

	terminal := exec.CommandContext(t.Context(), "go", "run", "./terminal")
	terminal.Env = append(os.Environ(), "CARREL_HOST="+env.Addr(), "CARREL_KEY="+acme.Key())
	terminal.Stdin = strings.NewReader("My name is Ada\nWhat is my name?\n")
	var out, fault bytes.Buffer
	terminal.Stdout, terminal.Stderr = &out, &fault
	if err := terminal.Run(); err != nil {
		t.Fatalf("terminal: %v\n%s", err, &fault)
	}
	if got := out.String(); got != "A1\nA2\n" {
		t.Errorf("the terminal shows %q", got)
	}
	want := []string{"system:You are a nice assistant", "user:My name is Ada", "assistant:A1", "user:What is my name?"}
	if got := env.Model.Send(2); !slices.Equal(got, want) {
		t.Errorf("the second message sent %q, want %q", got, want)
	}
	env.Stop() // which waits for the socket's session
	env.Restart()
	if left := acme.MemoryIDs("websocket-chat"); len(left) != 0 {
		t.Errorf("histories %q outlived the socket", left)
	}
}
