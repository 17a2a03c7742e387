package host_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/internal/testenv"
)

const presetOwner = "owner-key-of-a-host-that-runs-out-of-disk"

// chatUntilRefused chats on ever new memory ids until the host refuses, and
// returns how many turns it took and its refusal.
func chatUntilRefused(t *testing.T, a *testenv.Actor) (int, testenv.Answer) {
	t.Helper()
	for n := range 1000 {
		ans := a.Do(http.MethodPost, botChat, fmt.Sprintf(`{"id":"%d","msg":"%s"}`, n, strings.Repeat("x", 20_000)))
		if ans.Status != http.StatusOK {
			return n, ans
		}
	}
	t.Fatal("a thousand turns had room")
	return 0, testenv.Answer{}
}

// wholeTurns checks that n memory ids hold one whole turn each.
func wholeTurns(t *testing.T, a *testenv.Actor, n int) {
	t.Helper()
	for i := range n {
		stored := a.Stored("bot", fmt.Sprint(i))
		if len(stored) != 3 || len(stored[1]) != len("user:")+20_000 || stored[2] != fmt.Sprintf("assistant:A%d", i+1) {
			t.Errorf("id %d has %d messages", i, len(stored))
		}
	}
}

// A process over its file size limit gets errors that no store expects.
func TestAStoreThatFailsIsAnInternalErrorThatTellsNothing(t *testing.T) {
	data, model := t.TempDir(), modeltest.NewServer(t)
	p := testenv.Listening(t, program.Command(t, "ulimit -f 2000; ", data, model, "CARREL_OWNER_KEY="+presetOwner))
	owner := p.Holder(t, presetOwner, model)
	owner.Install(talking("one"))
	n, ans := chatUntilRefused(t, owner)
	for range 2 {
		if problem := ans.Problem(t); ans.Status != http.StatusInternalServerError || problem.Code != "internal" || problem.Retryable {
			t.Errorf("the answer is %d %s", ans.Status, ans.Body)
		}
		for _, internal := range []string{"sqlite", "disk", "I/O", "commit", "carrel.db", data} {
			if strings.Contains(string(ans.Body), internal) {
				t.Errorf("the answer %s tells of %q", ans.Body, internal)
			}
		}
		wholeTurns(t, owner, n) // reads go on
		ans = owner.Do(http.MethodPost, botChat, `{"id":"0","msg":"`+strings.Repeat("x", 20_000)+`"}`)
	}
	id := ans.Header.Get("X-Request-Id")
	p.End(t, syscall.SIGKILL)
	if log := p.Stderr.String(); !strings.Contains(log, id) || !strings.Contains(log, "disk I/O error") {
		t.Errorf("the log has no reason under %s", id)
	}
	again := program.Serve(t, data, model, "CARREL_OWNER_KEY="+presetOwner)
	owner = again.Holder(t, presetOwner, model)
	wholeTurns(t, owner, n)
	owner.Chat(botMethod, "id", "0", "msg", "more")
}

func TestAFullDiskRefusesWritesUntilThereIsRoomAgain(t *testing.T) {
	if out, err := exec.Command("unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", t.TempDir()).CombinedOutput(); err != nil {
		t.Skipf("a small disk of its own needs a user namespace: %v %s", err, out)
	}
	data, model := t.TempDir(), modeltest.NewServer(t)
	cmd := program.Command(t, `mount -t tmpfs -o size=4m none "$CARREL_DATA" && `, data, model, "CARREL_OWNER_KEY="+presetOwner)
	inside := exec.Command("unshare", append([]string{"--map-root-user", "--mount"}, cmd.Args...)...)
	inside.Env = cmd.Env
	p := testenv.Listening(t, inside)
	owner := p.Holder(t, presetOwner, model)
	owner.Install(talking("one"))
	owner.Chat(botMethod, "id", "before", "msg", "hello")

	// The disk of the process, as it is seen from outside its namespace.
	ballast := filepath.Join("/proc", fmt.Sprint(p.Cmd.Process.Pid), "root", data, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o600); err == nil {
		t.Fatal("the disk is not small")
	}
	_, ans := chatUntilRefused(t, owner)
	problem := ans.Problem(t)
	if ans.Status != http.StatusInsufficientStorage || problem.Code != "storage_full" || !problem.Retryable || ans.Header.Get("Retry-After") == "" {
		t.Errorf("the answer is %d %s", ans.Status, ans.Body)
	}
	if strings.Contains(string(ans.Body), "sqlite") || strings.Contains(string(ans.Body), data) {
		t.Errorf("the answer %s tells of the store", ans.Body)
	}
	refusal{
		path: "/api/v1/plugins", header: [2]string{"Content-Type", "application/wasm"},
		body: string(testenv.Pack(t, talking("two")+strings.Repeat(" large", 10_000))), status: 507, code: "storage_full",
	}.refuse(t, owner)
	same(t, "what is stored", owner.Stored("bot", "before"), "system:You are bot one", "user:hello", "assistant:A1")

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	owner.Chat(botMethod, "id", "before", "msg", "again")
	if stored := owner.Stored("bot", "before"); len(stored) != 5 {
		t.Errorf("with room again %q is stored", stored)
	}
	if page, err := owner.Client().Versions(t.Context(), "bot", client.ListOptions{}); err != nil || len(page.Data) != 1 {
		t.Errorf("the versions are %+v, %v", page.Data, err)
	}
	if code := p.End(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
