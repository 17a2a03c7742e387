package sqlite_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

// writeFixture names the file that TestWriteFixture leaves a database with
// today's schema in. After a migration N is added, and before it is released:
//
//	go test ./store/sqlite -run TestWriteFixture -fixture testdata/schemaN.db
var writeFixture = flag.String("fixture", "", "file to write a database with today's schema to")

func TestWriteFixture(t *testing.T) {
	if *writeFixture == "" {
		t.Skip("writes a file only with -fixture")
	}
	if _, err := os.Stat(*writeFixture); err == nil {
		t.Fatalf("%s is there: a fixture is never written again", *writeFixture)
	}
	s := open(t, sqlite.Config{Path: *writeFixture, Rand: strings.NewReader(strings.Repeat("s", 32))})
	ctx := t.Context()
	if err := createTenant(ctx, s, acme); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateKey(ctx, fixtureKey()); err != nil {
		t.Fatal(err)
	}
	v, module := fixtureVersion()
	if _, _, err := s.PutVersion(ctx, v, module, store.PluginLimits{Plugins: 1, Versions: 1}); err != nil {
		t.Fatal(err)
	}
	must(s.Activate(ctx, acme, "chat", v.Digest, store.ScopeInstance{ID: "app", Node: "run-1", OpenedAt: noon}))(t)
	for n := range 3 {
		commit(t, s, fixtureTurn(n))
	}
	kept, closed := fixtureSession("ses_open"), fixtureSession("ses_closed")
	for _, ses := range []store.Session{kept, closed} {
		if err := s.CreateSession(ctx, ses, 2); err != nil {
			t.Fatal(err)
		}
	}
	commit(t, s, fixtureSessionTurn(3, kept.ID))
	commit(t, s, fixtureSessionTurn(4, closed.ID))
	must(s.CloseScope(ctx, carrel.ScopeID(closed.ID), carrel.ReasonExpired, noon))(t)
	if err := s.SetGrant(ctx, acme, "chat", fixtureGrant()); err != nil {
		t.Fatal(err)
	}
	commit(t, s, fixtureImport(6))
	must(s.Claim(ctx, fixtureClaim(), someClaims))(t)
	if err := s.Answer(ctx, store.Answer{Claim: fixtureClaim().ID, Sealed: []byte("sealed"), At: noon}); err != nil {
		t.Fatal(err)
	}
	must(s.Scrub(ctx, noon))(t)
}

func fixtureSession(id carrel.SessionID) store.Session {
	return store.Session{
		ID: id, Tenant: acme, Owner: store.Toucher{Key: "key-1", Subject: "ada"}, IdleTTL: 30 * time.Minute,
		MaxTTL: 8 * time.Hour, Metadata: []byte(`{"a":1}`), CreatedAt: noon, LastUsedAt: noon,
	}
}

// fixtureSessionTurn is a first turn in a session's scope.
func fixtureSessionTurn(n int, id carrel.SessionID) store.Commit {
	c := fixtureTurn(n)
	c.Touch.Scope = store.ScopeInstance{ID: carrel.ScopeID(id), Tenant: acme, Scope: carrel.ScopeSession}
	return c
}

// fixtureImport is a first turn in the application's scope.
func fixtureImport(n int) store.Commit {
	c := fixtureTurn(n)
	c.Touch.Scope = store.ScopeInstance{ID: "app", Tenant: acme, Scope: carrel.ScopeApplication}
	c.Turns[0].Origin, c.Turns[0].At = carrel.OriginImport, noon.Add(-time.Hour)
	c.TokenRate = 250
	return c
}

func fixtureGrant() store.Grant {
	return store.Grant{Call: []string{"tools/T.*", "math/M.add"}, Namespace: "shared"}
}

func fixtureClaim() store.Claim {
	return store.Claim{ID: [32]byte{1}, Fingerprint: [32]byte{2}, Tenant: acme, Subject: "ada", Node: "run-1", At: noon}
}

func wantFixtureEnds(t *testing.T, s *sqlite.Store) {
	t.Helper()
	_, handle := keyOf(4)
	got := records(t, s)
	if len(got) != 1 || got[0].N != 1 || got[0].Handle != handle || got[0].Instance != "ses_closed" {
		t.Errorf("the records are %+v", got)
	}
	if c := must(s.Claim(t.Context(), fixtureClaim(), someClaims))(t); c.State != store.ClaimAnswered || string(c.Sealed) != "sealed" {
		t.Errorf("the claim is %+v", c)
	}
	for limit, most := range map[string]store.ClaimLimits{
		"idempotencyKeys": {Claims: 1, Bytes: 7}, "idempotencyBytes": {Claims: 2, Bytes: int64(len("sealed"))},
	} {
		another := fixtureClaim()
		another.ID[0]++
		_, err := s.Claim(t.Context(), another, most)
		if e, ok := errors.AsType[*carrel.Error](err); !ok || e.Limit != limit {
			t.Errorf("past %s another claim gets %v", limit, err)
		}
	}
	if last := must(s.LastScrub(t.Context()))(t); !last.At.Equal(noon) || last.Due {
		t.Errorf("the last scrub is %+v", last)
	}
}

func fixtureKey() store.APIKey {
	return store.APIKey{
		ID: "key-1", Tenant: acme, Role: carrel.RoleOwner, Name: "Ada", Subject: "ada",
		AssertSubject: true, Hash: carrel.DigestOf([]byte("secret")), CreatedAt: noon,
	}
}

func fixtureVersion() (store.Version, []byte) {
	module := []byte("\x00asm")
	return store.Version{
		Tenant: acme, Plugin: "chat", Digest: carrel.DigestOf(module), N: 1, Manifest: []byte(`{"name":"chat"}`),
		Report: []byte(`{}`), Bytes: int64(len(module)), CreatedAt: noon,
	}, module
}

func fixtureTurn(n int) store.Commit {
	c := commitOf(n, 0, "hello", "", "it is 5")
	system := "be brief"
	c.System = &system
	c.Turns[0].Messages[1].ToolCalls = []carrel.ToolCall{{ID: "c1", Name: "add", Args: []byte(`{ "a": 2, "b": 3 }`)}}
	return c
}

func TestEveryOlderDatabaseOpens(t *testing.T) {
	fixtures := must(filepath.Glob(filepath.Join("testdata", "schema*.db")))(t)
	if len(fixtures) == 0 {
		t.Fatal("there are no fixtures")
	}
	for _, fixture := range fixtures {
		t.Run(filepath.Base(fixture), func(t *testing.T) {
			path := newPath(t)
			if err := os.WriteFile(path, must(os.ReadFile(fixture))(t), 0o600); err != nil {
				t.Fatal(err)
			}
			version := schemaOf(t, path)
			if name := fmt.Sprintf("schema%d.db", version); name != filepath.Base(fixture) {
				t.Fatalf("its schema is that of %s", name)
			}
			s := open(t, sqlite.Config{Path: path})
			if secret := must(s.HostSecret(t.Context()))(t); string(secret[:]) != strings.Repeat("s", 32) {
				t.Errorf("the host secret is %q", secret)
			}
			same := func(what string, got, want any) {
				t.Helper()
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%s differs (-want +got):\n%s", what, d)
				}
			}
			same("key", must(s.KeyByHash(t.Context(), fixtureKey().Hash))(t), fixtureKey())
			v, module := fixtureVersion()
			same("version", must(s.Version(t.Context(), acme, "chat", carrel.VersionRef{}))(t), v)
			same("module", must(s.Module(t.Context(), acme, "chat", v.Digest))(t), module)
			for n := range 3 {
				k, _ := keyOf(n)
				want := store.View{
					Generation: int64(n) + 1,
					System:     "be brief",
					Recent:     []carrel.Turn{{N: 1, Messages: fixtureTurn(n).Turns[0].Messages}},
					LastTurn:   1,
					Stored:     3,
				}
				same("view", must(s.View(t.Context(), k, store.ViewLimit{Messages: 10}))(t), want)
			}
			if version >= 5 {
				wantFixtureEnds(t, s)
			} else if last := must(s.LastScrub(t.Context()))(t); !last.Due {
				t.Error("no scrub is due of what was deleted before anybody kept account")
			}
			if version >= 2 {
				wantFixtureSessions(t, s)
			}
			if version >= 4 {
				wantFixtureImport(t, s)
			}
			useSessions(t, s)
			commit(t, s, commitOf(7, 0, "hello", "hi"))
			if evicted := must(s.CloseScope(t.Context(), "r", carrel.ReasonScopeClosed, noon))(t); len(evicted) != 4 {
				t.Errorf("closing the request evicted %d histories, want 4", len(evicted))
			}
			if now := schemaOf(t, path); now < 6 {
				t.Errorf("its schema is still %d", now)
			}
		})
	}
}

// schemaOf returns the version of a database's schema. It may be open.
func schemaOf(t *testing.T, path string) (version int) {
	t.Helper()
	db := must(sqlite.Raw(path))(t)
	defer func() { _ = db.Close() }()
	if err := db.QueryRow("SELECT max(version_id) FROM goose_db_version").Scan(&version); err != nil {
		t.Fatal(err)
	}
	return version
}

func wantFixtureSessions(t *testing.T, s *sqlite.Store) {
	t.Helper()
	ctx := context.Background()
	want := []store.Session{fixtureSession("ses_open"), fixtureSession("ses_closed")}
	key, handle := keyOf(4)
	c := fixtureTurn(4)
	size := int64(len(*c.System))
	for _, m := range c.Turns[0].Messages {
		size += m.Size()
	}
	want[1].ClosedAt, want[1].Reason, want[1].Evicted = noon, carrel.ReasonExpired, []carrel.Eviction{{
		Handle: handle, Plugin: "chat", Key: key, Reason: carrel.ReasonExpired,
		Scope: carrel.ScopeSession, Instance: "ses_closed", Messages: 4, Bytes: size, At: noon,
	}}
	for _, ses := range want {
		if d := cmp.Diff(ses, must(s.Session(ctx, acme, ses.ID, &ses.Owner))(t)); d != "" {
			t.Errorf("session differs (-want +got):\n%s", d)
		}
	}
	if d := cmp.Diff(fixtureGrant(), must(s.Grant(ctx, acme, "chat"))(t)); d != "" {
		t.Errorf("grant differs (-want +got):\n%s", d)
	}
	if evicted := must(s.CloseScope(ctx, "ses_open", carrel.ReasonScopeClosed, noon))(t); len(evicted) != 1 {
		t.Errorf("closing the open session evicted %v", evicted)
	}
}

func wantFixtureImport(t *testing.T, s *sqlite.Store) {
	t.Helper()
	ctx := context.Background()
	k, handle := keyOf(6)
	if v := must(s.View(ctx, k, store.ViewLimit{}))(t); v.TokenRate != 250 || v.LastTurn != 1 || v.Stored != 3 {
		t.Errorf("the imported history is seen as %+v", v)
	}
	h := must(s.History(ctx, acme, handle, nil, store.Cutoff{}))(t)
	if !h.Application {
		t.Errorf("the imported history is %+v", h)
	}
	for _, m := range must(s.Messages(ctx, k, h.Generation, 0, store.MessageLimit{Messages: 10}))(t).Messages {
		if m.Origin != carrel.OriginImport || !m.At.Equal(noon.Add(-time.Hour)) {
			t.Errorf("an imported message is %+v", m)
		}
	}
}

// useSessions takes a new session from its beginning to its end.
func useSessions(t *testing.T, s *sqlite.Store) {
	t.Helper()
	ctx := context.Background()
	ses := fixtureSession("ses_new")
	if err := s.CreateSession(ctx, ses, 1); err != nil {
		t.Fatal(err)
	}
	commit(t, s, fixtureSessionTurn(5, ses.ID))
	if expired := must(s.ExpiredSessions(ctx, noon.Add(ses.IdleTTL), 10))(t); len(expired) != 1 || expired[0].ID != ses.ID {
		t.Errorf("expired sessions are %v", expired)
	}
	if evicted := must(s.CloseScope(ctx, carrel.ScopeID(ses.ID), carrel.ReasonExpired, noon))(t); len(evicted) != 1 {
		t.Errorf("closing the session evicted %v", evicted)
	}
	if n := must(s.ForgetSessions(ctx, noon.Add(ses.KeepClosed())))(t); n == 0 {
		t.Error("no closed session was forgotten")
	}
}

func TestOpeningTwiceMigratesOnce(t *testing.T) {
	path := newPath(t)
	steps := func() (n int) {
		s := open(t, sqlite.Config{Path: path})
		closeStore(t, s)
		db := must(sqlite.Raw(path))(t)
		defer func() { _ = db.Close() }()
		if err := db.QueryRow("SELECT count(*) FROM goose_db_version").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if once, twice := steps(), steps(); once < 2 || once != twice {
		t.Errorf("%d steps are recorded after opening once, %d after opening twice", once, twice)
	}
}

func TestANewerDatabaseIsRefusedAndLeftAlone(t *testing.T) {
	path := newPath(t)
	closeStore(t, open(t, sqlite.Config{Path: path}))
	db := must(sqlite.Raw(path))(t)
	if _, err := db.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before := must(os.ReadFile(path))(t)
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
	if err == nil {
		_ = s.Close()
		t.Fatal("a newer database was opened")
	}
	for _, part := range []string{path, "version 999", "newer host"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	if after := must(os.ReadFile(path))(t); string(after) != string(before) {
		t.Error("the refused database was changed")
	}
}

func TestAnOldSQLiteIsRefused(t *testing.T) {
	for version, want := range map[string]bool{
		"3.51.3": true, "3.51.4": true, "3.52.0": true, "4.0.0": true,
		"3.51.2": false, "3.50.9": false, "2.99.99": false, "": false, "three": false,
	} {
		if err := sqlite.Recent(version); (err == nil) != want {
			t.Errorf("version %q: %v", version, err)
		}
	}
}
