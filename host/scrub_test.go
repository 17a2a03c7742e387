package host_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/internal/testproc"
)

const vault = `---
name: vault
services:
- {name: App, scope: application, methods: [{name: chat, memoryId: id, params: [id, mood, msg], userMessage: "{{msg}}"}]}
- {name: Session, scope: session, methods: [{name: chat, params: [mood, msg], userMessage: "{{msg}}"}]}
- {name: Request, scope: request, methods: [{name: chat, memoryId: id, params: {id?: string, mood: string, msg: string}, userMessage: "{{msg}}"}]}
---
# App
You keep {{mood}}

# Session
You keep {{mood}} for a while

# Request
You keep {{mood}} for a moment
`

// secrets are random texts that say where they are.
type secrets struct {
	t     *testing.T
	model *modeltest.Server
	gone  []string // must be nowhere
	kept  []string // must be somewhere

	living int // histories that stay, besides two
}

// doomed returns a text that must be gone in the end.
func (s *secrets) doomed() string {
	s.gone = append(s.gone, "canary-"+rand.Text())
	return s.gone[len(s.gone)-1]
}

// long is longer than a page of the database, and tells in every part of it.
func long(secret string) string { return strings.Repeat(secret+" ", 200) }

// chat runs a turn whose system message, question and answer are secrets.
func (s *secrets) chat(a *testenv.Actor, address string, params ...string) client.Invocation {
	s.t.Helper()
	s.model.Reply(long(s.doomed()))
	return a.Chat(address, append(params, "mood", s.doomed(), "msg", long(s.doomed()))...)
}

// in returns those of the texts that a file of a directory has.
func in(t *testing.T, dir string, texts []string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, text := range texts {
			if bytes.Contains(b, []byte(text)) {
				found = append(found, filepath.Base(path)+": "+text)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// nowhere checks that no byte of what is to be gone is in the directory, and
// that what is to be kept would have been found.
func (s *secrets) nowhere(what, dir string) {
	s.t.Helper()
	if found := in(s.t, dir, s.gone); len(found) > 0 {
		s.t.Errorf("%s, %d of %d are found: %q", what, len(found), len(s.gone), found)
	}
	for _, kept := range s.kept {
		if len(in(s.t, dir, []string{kept})) == 0 {
			s.t.Errorf("%s, what lives is not found", what)
		}
	}
}

// notLogged checks what an ended process said.
func (s *secrets) notLogged(p *testenv.Process) {
	s.t.Helper()
	for _, text := range slices.Concat(s.gone, s.kept) {
		if strings.Contains(p.Stdout.String()+p.Stderr.String(), text) {
			s.t.Errorf("%s is in the output of the process", text)
		}
	}
}

const (
	inVault        = "vault/App.chat"
	inVaultSession = "vault/Session.chat"
	inVaultRequest = "vault/Request.chat"
)

// lives is a history of two turns that nothing ends.
func (s *secrets) lives(a *testenv.Actor) (want []string) {
	s.t.Helper()
	for range 2 {
		kept := "kept-" + rand.Text()
		s.kept = append(s.kept, kept)
		s.model.Reply(kept + " indeed")
		a.Chat(inVault, "id", "living", "mood", "calm", "msg", kept)
	}
	return []string{"system:You keep calm", "user:" + s.kept[0], "assistant:" + s.kept[0] + " indeed", "user:" + s.kept[1], "assistant:" + s.kept[1] + " indeed"}
}

// handle returns the handle of the history with a memory id.
func handle(t *testing.T, a *testenv.Actor, id string) string {
	t.Helper()
	for _, m := range a.Memories("") {
		if m.MemoryID == id {
			return m.Key
		}
	}
	t.Fatalf("there is no history %q", id)
	return ""
}

// crowd makes many small histories, in an order that has the database move
// what it stored before to other pages, and ends all but a few.
func (s *secrets) crowd(a *testenv.Actor) {
	s.t.Helper()
	const many, lasting = 120, 4
	ids := make([]string, many)
	for n := range ids {
		ids[n] = fmt.Sprintf("crowd-%03d", n*47%many)
		if n%(many/lasting) == 0 {
			a.Chat(inVault, "id", ids[n], "mood", "calm", "msg", strings.Repeat("stay ", 40))
			continue
		}
		s.model.Reply(strings.Repeat(s.doomed()+" ", 1+n%9))
		a.Chat(inVault, "id", ids[n], "mood", s.doomed(), "msg", strings.Repeat(s.doomed()+" ", 1+n%7))
	}
	for n, id := range ids {
		if n%(many/lasting) != 0 {
			a.End("vault", id)
		}
	}
	s.living += lasting
}

// endAll makes histories with secrets and ends them in every way there is.
func (s *secrets) endAll(p *testenv.Process, data string) {
	s.t.Helper()
	t, owner := s.t, p.Owner(s.t, data, s.model)

	// By the end of a request: with its own id, with one that another scope
	// would keep, and with an answer that may be asked for again.
	s.chat(owner, inVaultRequest)
	s.chat(owner, inVault, "id", "shared")
	s.chat(owner, inVaultRequest, "id", "shared")
	s.chat(owner.With("Idempotency-Key", "once"), inVaultRequest)

	// By the end of a session, of a WebSocket, and by a session's time.
	session := owner.Open(client.NewSession{})
	s.chat(owner.With("Carrel-Session", session.ID), inVaultSession)
	owner.Shut(session.ID)
	socket := owner.Socket(client.SocketOptions{})
	s.model.Reply(long(s.doomed()))
	socket.Chat(inVaultSession, "mood", s.doomed(), "msg", long(s.doomed()))
	if err := socket.Close(); err != nil {
		t.Fatal(err)
	}
	brief := owner.Open(client.NewSession{IdleTTL: "3s"})
	s.chat(owner.With("Carrel-Session", brief.ID), inVaultSession)

	// By hand: a history, and one turn of one.
	s.chat(owner, inVault, "id", "deleted")
	owner.End("vault", "deleted")
	s.model.Reply("it stays")
	owner.Chat(inVault, "id", "cut", "mood", "calm", "msg", "this stays")
	s.model.Reply(long(s.doomed()))
	owner.Chat(inVault, "id", "cut", "mood", "calm", "msg", long(s.doomed()))
	if err := owner.Client().DeleteTurn(t.Context(), handle(t, owner, "cut"), 2); err != nil {
		t.Fatal(err)
	}

	s.crowd(owner)

	// By erasure, the ids and the subject as well.
	key, err := s.admin(p, data).CreateKey(t.Context(), "default", client.NewKey{Role: "caller", AssertSubject: true})
	if err != nil {
		t.Fatal(err)
	}
	subject := s.doomed()
	user := p.Holder(t, key.Secret, s.model).As(subject)
	s.chat(user, inVault, "id", s.doomed())
	s.chat(user.With("Idempotency-Key", "once"), inVault, "id", s.doomed())
	metadata, err := json.Marshal(map[string]string{"note": s.doomed()})
	if err != nil {
		t.Fatal(err)
	}
	ended, open := user.Open(client.NewSession{Metadata: metadata}), user.Open(client.NewSession{})
	s.chat(user.With("Carrel-Session", ended.ID), inVaultSession)
	user.Shut(ended.ID)
	s.chat(user.With("Carrel-Session", open.ID), inVaultSession)
	s.chat(user.With("Carrel-Session", open.ID), inVault, "id", s.doomed())
	if done, err := owner.Client().EraseSubject(t.Context(), subject); err != nil || len(done.Evicted) != 4 {
		t.Fatalf("erased are %+v, %v", done, err)
	}

	// By the end of a plugin.
	owner.Install(strings.Replace(vault, "name: vault", "name: doomed", 1))
	s.chat(owner, "doomed/App.chat", "id", "of the plugin")
	if done, err := owner.Client().Deactivate(t.Context(), "doomed"); err != nil || len(done.Evicted) != 1 {
		t.Fatalf("deactivated: %+v, %v", done, err)
	}
	// The ends of the connection and of the session's time come unannounced.
	testproc.Until(t, "the ends of the connection and of the session", func() bool { return len(owner.Memories("")) == 2+s.living })
}

func (s *secrets) admin(p *testenv.Process, data string) *client.Client {
	s.t.Helper()
	return p.Holder(s.t, strings.TrimSpace(testenv.Read(s.t, filepath.Join(data, "admin.key"))), s.model).Client()
}

// scrubbed checks that the host before this one scrubbed at its end: small
// databases may have nothing left of what was deleted by chance.
func (s *secrets) scrubbed(p *testenv.Process, data string) {
	s.t.Helper()
	if last, err := s.admin(p, data).LastScrub(s.t.Context()); err != nil || last.At.IsZero() || last.Due {
		s.t.Errorf("after the end, the last scrub is %+v, %v", last, err)
	}
}

func vaultOf(t *testing.T) (s *secrets, data string, start func() *testenv.Process) {
	t.Helper()
	s, data = &secrets{t: t, model: modeltest.NewServer(t)}, t.TempDir()
	return s, data, func() *testenv.Process { return program.Serve(t, data, s.model) }
}

func TestNoByteOfWhatEndedIsLeftAfterACleanEnd(t *testing.T) {
	s, data, start := vaultOf(t)
	p := start()
	p.Owner(t, data, s.model).Install(vault)
	want := s.lives(p.Owner(t, data, s.model))
	s.endAll(p, data)
	if len(in(t, data, s.gone)) == 0 {
		t.Error("nothing is found before the end: the search finds nothing, or deletion leaves nothing to scrub")
	}
	if code := p.End(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.nowhere("after the end", data)
	s.notLogged(p)
	p = start()
	s.scrubbed(p, data)
	same(t, "what lives", p.Owner(t, data, s.model).Stored("vault", "living"), want...)
	same(t, "what was cut", p.Owner(t, data, s.model).Stored("vault", "cut"), "system:You keep calm", "user:this stays", "assistant:it stays")
}

func TestNoByteOfWhatEndedIsLeftAfterAScrubOfAHostThatServes(t *testing.T) {
	s, data, start := vaultOf(t)
	p := start()
	owner := p.Owner(t, data, s.model)
	owner.Install(vault)
	want := s.lives(owner)
	s.endAll(p, data)
	admin := s.admin(p, data)
	if last, err := admin.LastScrub(t.Context()); err != nil || !last.Due {
		t.Errorf("before it, the last scrub is %+v, %v", last, err)
	}
	const turns = 20
	var busy sync.WaitGroup
	busy.Go(func() {
		for range turns {
			if _, err := owner.Call(t.Context(), inVault, "id", "busy", "mood", "busy", "msg", "hello"); err != nil {
				t.Errorf("a turn beside the scrub: %v", err)
			}
		}
	})
	done, err := admin.Scrub(t.Context())
	if err != nil || done.At.IsZero() || done.Took == "" {
		t.Errorf("the scrub is %+v, %v", done, err)
	}
	busy.Wait()
	s.nowhere("after the scrub", data)
	same(t, "what lives", owner.Stored("vault", "living"), want...)
	if n := len(owner.Stored("vault", "busy")); n != 1+2*turns {
		t.Errorf("%d messages are stored of %d turns", n, turns)
	}
	p.End(t, syscall.SIGTERM)
	s.nowhere("after the end", data)
	s.notLogged(p)
}

func TestNoByteOfWhatEndedIsLeftAfterAKillAndACleanEnd(t *testing.T) {
	s, data, start := vaultOf(t)
	p := start()
	owner := p.Owner(t, data, s.model)
	owner.Install(vault)
	want := s.lives(owner)
	s.endAll(p, data)
	// A request that is killed in the middle has ended, too.
	s.chat(owner, inVault, "id", "killed")
	release, calls := s.model.Hold(), len(s.model.Calls())
	defer release()
	owner.Begin(t.Context(), inVaultRequest, "id", "killed", "mood", s.doomed(), "msg", long(s.doomed()))
	if err := s.model.Arrived(t.Context(), calls+1); err != nil {
		t.Fatal(err)
	}
	p.End(t, syscall.SIGKILL)
	s.notLogged(p)
	p = start()
	same(t, "what lives", p.Owner(t, data, s.model).Stored("vault", "living"), want...)
	if code := p.End(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.nowhere("after the end", data)
	s.notLogged(p)
	s.scrubbed(start(), data)
}

func TestNoByteOfAnExpiredHistoryIsLeftAfterACleanEnd(t *testing.T) {
	s, data, _ := vaultOf(t)
	p := program.Serve(t, data, s.model, "CARREL_LIMITS_TIMEOUT=4s", "CARREL_MEMORY_HISTORY_IDLE_TTL=4001ms")
	owner := p.Owner(t, data, s.model)
	owner.Install(vault)
	s.chat(owner, inVault, "id", "expiring")
	testproc.Until(t, "a history that expires", func() bool { return len(owner.Memories("")) == 0 })
	s.lives(owner)
	if code := p.End(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.nowhere("after the end", data)
	s.notLogged(p)
}
