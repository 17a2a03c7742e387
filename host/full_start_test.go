package host_test

import (
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/internal/testenv"
)

// onFullDisk is a command that starts a host on a copy of a data directory, on
// a disk of its own of which no byte is free.
func onFullDisk(t *testing.T, data string, m *modeltest.Server, vars ...string) *exec.Cmd {
	t.Helper()
	if out, err := exec.Command("unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", t.TempDir()).CombinedOutput(); err != nil {
		t.Skipf("a small disk of its own needs a user namespace: %v %s", err, out)
	}
	cmd := program.Command(t, `mount -t tmpfs -o size=24m,mode=0700 none "$CARREL_DATA" && cp -a "$SEED/." "$CARREL_DATA" &&
		! head -c 64000000 /dev/zero 2>/dev/null >"$CARREL_DATA/ballast" && export TMPDIR="$CARREL_DATA" && `, t.TempDir(), m, append(vars, "SEED="+data)...)
	inside := exec.Command("unshare", append([]string{"--map-root-user", "--mount"}, cmd.Args...)...)
	inside.Env = cmd.Env
	return inside
}

func TestAHostStartsOnAFullDiskAndRunsWhatItHas(t *testing.T) {
	data, model := t.TempDir(), modeltest.NewServer(t)
	before := program.Serve(t, data, model, "CARREL_OWNER_KEY="+presetOwner)
	owner := before.Holder(t, presetOwner, model)
	owner.Install(talking("one"))
	owner.Chat(botMethod, "id", "before", "msg", "hello")
	if _, err := owner.Client().Upload(t.Context(), hostile.Worker("first"), client.UploadOptions{}); err != nil {
		t.Fatal(err)
	}
	before.End(t, syscall.SIGKILL)

	p := testenv.Listening(t, onFullDisk(t, data, model, "CARREL_OWNER_KEY="+presetOwner))
	owner = p.Holder(t, presetOwner, model)
	same(t, "what is stored", owner.Stored("bot", "before"), "system:You are bot one", "user:hello", "assistant:A1")
	if err := testenv.CallHostile(t.Context(), owner.Client(), "first", hostile.Fine); err != nil {
		t.Errorf("what is compiled does not run: %v", err)
	}
	refusal{
		path: "/api/v1/plugins", header: [2]string{"Content-Type", "application/wasm"},
		body: string(hostile.Worker("second")), status: http.StatusInsufficientStorage, code: "storage_full",
	}.refuse(t, owner)
	if err := testenv.CallHostile(t.Context(), owner.Client(), "first", hostile.Fine); err != nil {
		t.Errorf("after a refused upload: %v", err)
	}
	p.End(t, syscall.SIGTERM) // its exit code says that it cannot scrub
	log := p.Stderr.String()
	if n := strings.Count(log, "the cache of compiled code cannot be written"); n != 1 {
		t.Errorf("the log says %d times that the disk is full", n)
	}
	if strings.Contains(log, "made anew") {
		t.Error("what is in the cache is not found on a full disk")
	}
}
