package host_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/internal/testproc"
)

// teller chats on a memory id of its own and remembers what was acknowledged:
// its n-th turn says "n" and is answered by told[n-1].
type teller struct {
	id   string
	told []string
}

// chat goes on until a call fails.
func (c *teller) chat(t *testing.T, a *testenv.Actor, acknowledged func()) {
	for {
		out, err := a.Call(t.Context(), lasting, "id", c.id, "msg", fmt.Sprint(len(c.told)+1))
		if err != nil {
			return
		}
		c.told = append(c.told, out.Output.(string))
		acknowledged()
	}
}

// verify checks that every acknowledged turn is stored, whole and in order.
// One more may be: stored, but killed before it was said.
func (c *teller) verify(t *testing.T, a *testenv.Actor) {
	t.Helper()
	stored := a.Stored("smallest-scope", c.id)
	if len(stored) == 0 && len(c.told) == 0 {
		return
	}
	turns := (len(stored) - 1) / 2
	if len(stored) != 1+2*turns || stored[0] != sysLast || turns < len(c.told) || turns > len(c.told)+1 {
		t.Fatalf("%s: %d messages are stored, %d turns were acknowledged", c.id, len(stored), len(c.told))
	}
	for n := range turns {
		user, answer := stored[1+2*n], stored[2+2*n]
		if n == len(c.told) {
			c.told = append(c.told, strings.TrimPrefix(answer, "assistant:"))
		}
		if user != fmt.Sprintf("user:%d", n+1) || answer != "assistant:"+c.told[n] {
			t.Errorf("%s: turn %d is %q %q, acknowledged with %q", c.id, n+1, user, answer, c.told[n])
		}
	}
}

func TestAKilledHostKeepsWhatItAcknowledgedAndEndsWhatARequestTouched(t *testing.T) {
	const clients, rounds, turnsPerRound = 16, 6, 160
	data, model := t.TempDir(), modeltest.NewServer(t)
	p := program.Serve(t, data, model)
	p.Owner(t, data, model).Install(testenv.Example(t, "smallest-scope"))
	tellers := make([]teller, clients)
	for n := range tellers {
		tellers[n].id = fmt.Sprintf("client-%d", n)
	}
	for round := range rounds {
		owner := p.Owner(t, data, model)
		doomed := fmt.Sprintf("doomed-%d", round)
		owner.Chat(lasting, "id", doomed, "msg", "before")
		if n := len(owner.Stored("smallest-scope", doomed)); n != 3 {
			t.Fatalf("%d messages are stored under %s", n, doomed)
		}
		owner.Hold(t.Context(), fleeting, "id", doomed, "msg", "in the middle")

		var all sync.WaitGroup
		var acknowledged atomic.Int64
		enough := make(chan struct{})
		for n := range tellers {
			all.Go(func() {
				tellers[n].chat(t, owner, func() {
					if acknowledged.Add(1) == turnsPerRound {
						close(enough)
					}
				})
			})
		}
		<-enough
		if code := p.End(t, syscall.SIGKILL); code != -1 {
			t.Fatalf("the process ended by itself: exit code %d", code)
		}
		all.Wait()
		if round > 0 {
			recovered(t, p)
		}

		p = program.Serve(t, data, model)
		owner = p.Owner(t, data, model)
		gone(t, owner, "smallest-scope", doomed)
		for n := range tellers {
			tellers[n].verify(t, owner)
		}
		if n := len(owner.Memories("")); n != clients {
			t.Errorf("round %d: %d histories are there", round, n)
		}
	}
	if code := p.End(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	recovered(t, p)
	// Nothing is left to recover after an orderly end.
	p = program.Serve(t, data, model)
	for n := range tellers {
		tellers[n].verify(t, p.Owner(t, data, model))
	}
	p.End(t, syscall.SIGTERM)
	if out := p.Stdout.String(); strings.Contains(out, "recovered") {
		t.Errorf("after an orderly end the host printed %q", out)
	}
}

// recovered checks that a process that has ended said at its start that it
// closed the one request that the process before it was killed in.
func recovered(t *testing.T, p *testenv.Process) {
	t.Helper()
	if out := p.Stdout.String(); !strings.Contains(out, "recovered: 1 scope that was open") || !strings.Contains(out, " 1 history ended") {
		t.Errorf("the host printed %q", out)
	}
}

func TestASignalDrainsTheProcess(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			data, model := t.TempDir(), modeltest.NewServer(t)
			p := program.Serve(t, data, model)
			owner := p.Owner(t, data, model)
			owner.Install(talking("one"))
			call := owner.Hold(t.Context(), botMethod, "id", "1", "msg", "U1")
			if err := p.Cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			testproc.Until(t, "a host that drains", func() bool {
				return owner.Do(http.MethodGet, "/readyz", "").Status == http.StatusServiceUnavailable
			})
			call.Release()
			owner.Check("the call that ran", call.Outcome())
			if <-p.Ended; p.Cmd.ProcessState.ExitCode() != 0 {
				t.Errorf("exit code %d: %v", p.Cmd.ProcessState.ExitCode(), p.WaitErr)
			}
			again := program.Serve(t, data, model)
			same(t, "stored", again.Owner(t, data, model).Stored("bot", "1"), "system:You are bot one", "user:U1", "assistant:A1")
		})
	}
}

func TestASecondSignalEndsTheProcessAtOnce(t *testing.T) {
	data, model := t.TempDir(), modeltest.NewServer(t)
	p := program.Serve(t, data, model)
	owner := p.Owner(t, data, model)
	owner.Install(talking("one"))
	owner.Hold(t.Context(), botMethod, "id", "1", "msg", "U1")
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testproc.Until(t, "a host that drains", func() bool {
		return owner.Do(http.MethodGet, "/readyz", "").Status == http.StatusServiceUnavailable
	})
	// The host notices the first one a moment before it stops listening for
	// more, so the second may have to be repeated.
	testproc.Until(t, "the process's end", func() bool {
		select {
		case <-p.Ended:
			return true
		default:
		}
		if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		return false
	})
	if code := p.Cmd.ProcessState.ExitCode(); code != -1 {
		t.Errorf("exit code %d, with a call cut off", code)
	}
}

func TestTheDataDirectoryIsForItsOwnerAlone(t *testing.T) {
	data, model := filepath.Join(t.TempDir(), "new", "data"), modeltest.NewServer(t)
	p := testenv.Listening(t, program.Command(t, "umask 000; ", data, model))
	owner := p.Owner(t, data, model)
	owner.Install(talking("one"))
	owner.Chat(botMethod, "id", "1", "msg", "hello")
	seen := map[string]fs.FileMode{}
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		seen[d.Name()] = info.Mode()
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[d.IsDir()]; info.Mode().Perm() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"data", "owner.key", "admin.key", "address", "carrel.db", "carrel.db-wal"} {
		if _, ok := seen[name]; !ok {
			t.Errorf("there is no %s among %v", name, seen)
		}
	}
	if got := strings.TrimSpace(testenv.Read(t, filepath.Join(data, "address"))); got != p.Base {
		t.Errorf("the file address says %q, the host listens on %s", got, p.Base)
	}
}

func TestASecondProcessOnTheSameDataIsRefusedAndTheFirstGoesOn(t *testing.T) {
	data, model := t.TempDir(), modeltest.NewServer(t)
	first := program.Serve(t, data, model)
	second := testenv.Start(t, program.Command(t, "", data, model))
	<-second.Ended
	if code := second.Cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if said := second.Stderr.String(); !strings.Contains(said, data) || !strings.Contains(said, "another host runs on it") {
		t.Errorf("it says %q", said)
	}
	if second.Stdout.Len() > 0 {
		t.Errorf("it printed %q", second.Stdout.String())
	}
	if ans := first.Owner(t, data, model).Do(http.MethodGet, "/readyz", ""); ans.Status != http.StatusOK {
		t.Errorf("the first: %d", ans.Status)
	}
}

func TestPresetKeysWorkAtEveryStartAndAreInNoFile(t *testing.T) {
	data, model := t.TempDir(), modeltest.NewServer(t)
	ownerKey, adminKey := strings.Repeat("owner-", 8), strings.Repeat("admin-", 8)
	for n := range 2 {
		p := program.Serve(t, data, model, "CARREL_OWNER_KEY="+ownerKey, "CARREL_ADMIN_KEY="+adminKey)
		owner := p.Holder(t, ownerKey, model)
		if n == 0 {
			owner.Install(talking("one"))
		}
		owner.Chat(botMethod, "id", "1", "msg", fmt.Sprintf("U%d", n+1))
		admin := &client.Client{Base: p.Base, Key: adminKey}
		if list, err := admin.Tenants(t.Context(), client.ListOptions{}); err != nil || len(list.Data) != 1 {
			t.Errorf("start %d: the tenants are %+v, %v", n+1, list.Data, err)
		}
		if code := p.End(t, syscall.SIGTERM); code != 0 {
			t.Errorf("start %d: exit code %d", n+1, code)
		}
		if out := p.Stdout.String() + p.Stderr.String(); strings.Contains(out, ownerKey) || strings.Contains(out, adminKey) {
			t.Errorf("start %d printed a key: %s", n+1, out)
		}
	}
	same(t, "send at the second start", model.Send(2), "system:You are bot one", "user:U1", "assistant:A1", "user:U2")
	if found := in(t, data, []string{ownerKey, adminKey}); len(found) > 0 {
		t.Errorf("keys are in %v", found)
	}
	// Another administrator's key takes the place of the first; an owner's
	// comes in addition.
	other := strings.Repeat("other-", 8)
	p := program.Serve(t, data, model, "CARREL_OWNER_KEY="+other+"owner", "CARREL_ADMIN_KEY="+other)
	for key, want := range map[string]abi.Code{other: abi.OK, adminKey: abi.Unauthenticated} {
		if _, err := (&client.Client{Base: p.Base, Key: key}).Tenants(t.Context(), client.ListOptions{}); testenv.CodeOf(err) != want {
			t.Errorf("the administrator's key %.6s: %v", key, err)
		}
	}
	for _, key := range []string{ownerKey, other + "owner"} {
		p.Holder(t, key, model).Plugins()
	}
}

func TestAPresetKeyThatIsTooShortIsRefusedWithoutBeingShown(t *testing.T) {
	p := testenv.Start(t, program.Command(t, "", t.TempDir(), modeltest.NewServer(t), "CARREL_OWNER_KEY=hunter2"))
	<-p.Ended
	said := p.Stderr.String()
	if p.Cmd.ProcessState.ExitCode() != 2 || !strings.Contains(said, "CARREL_OWNER_KEY") || strings.Contains(said, "hunter2") {
		t.Errorf("exit code %d, it says %q", p.Cmd.ProcessState.ExitCode(), said)
	}
}
