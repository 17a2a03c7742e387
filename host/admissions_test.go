//go:build unix

package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/internal/testenv"
)

// submit uploads without waiting and returns the digest.
func submit(t *testing.T, a *testenv.Actor, wasm []byte, o client.UploadOptions) string {
	t.Helper()
	began, err := a.Client().UploadAsync(t.Context(), wasm, o)
	if err != nil {
		t.Fatal(err)
	}
	if want := carrel.DigestOf(wasm).String(); began.Digest != want {
		t.Fatalf("the digest is %s, want %s", began.Digest, want)
	}
	return began.Digest
}

// admission returns how far an upload is.
func admission(t *testing.T, a *testenv.Actor, digest string) client.Admission {
	t.Helper()
	got, err := a.Client().Admission(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// unknown checks that an actor sees no admission of a digest, just as if there
// had never been one.
func unknown(t *testing.T, a *testenv.Actor, digest string) {
	t.Helper()
	var bodies [2][]byte
	for i, d := range []string{digest, strings.Repeat("1", 64)} {
		ans := a.Do(http.MethodGet, "/api/v1/versions/"+d, "")
		if ans.Status != http.StatusNotFound {
			t.Errorf("%s answers %d %s", d, ans.Status, ans.Body)
		}
		bodies[i] = bytes.ReplaceAll(ans.Body, []byte(ans.Problem(t).RequestID), nil)
	}
	if !bytes.Equal(bodies[0], bodies[1]) {
		t.Errorf("the answers differ: %s and %s", bodies[0], bodies[1])
	}
}

// goOn lets a compiler go on that was stopped.
func goOn(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// names are those of the stages that are over.
func names(a client.Admission) (all []string) {
	for _, s := range a.Stages {
		all = append(all, s.Stage)
	}
	return all
}

func TestAnUploadIsWatchedFromItsFirstStageToItsEnd(t *testing.T) {
	data, m := t.TempDir(), modeltest.NewServer(t)
	p := listening(t, command(t, "", data, m, "CARREL_ADMIN_KEY="+testenv.AdminKey))
	acme := p.owner(t, data, m)
	admin := &client.Client{Base: p.base, Key: testenv.AdminKey}
	if _, err := admin.CreateTenant(t.Context(), "globex"); err != nil {
		t.Fatal(err)
	}
	key, err := admin.CreateKey(t.Context(), "globex", client.NewKey{Role: "owner"})
	if err != nil {
		t.Fatal(err)
	}
	globex := p.holder(t, key.Secret, m)

	wasm := scopesGuest(t)
	digest := submit(t, acme, wasm, client.UploadOptions{})
	pid := compiler(t, p)
	got := admission(t, acme, digest)
	if got.State != "compiling" || !slices.Contains(names(got), "linting") || got.Problem != nil || got.N != 0 {
		t.Errorf("while it is compiled it is %+v", got)
	}
	unknown(t, globex, digest)
	// Whoever waits joins, and is seen by the same address.
	waits := upload(t.Context(), acme, wasm)
	ctx, leave := context.WithCancel(t.Context())
	leaves := upload(ctx, acme, wasm)
	leave()
	if err := <-leaves; !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
	}
	if left := acme.Plugins(); len(left) > 0 {
		t.Errorf("before its end there is %+v", left)
	}
	goOn(t, pid)
	end, err := acme.Client().WaitAdmission(t.Context(), digest, nil)
	if err != nil || <-waits != nil {
		t.Fatal(err)
	}
	stages := names(end)
	order := []string{"queued", "linting", "queued", "compiling", "initialising", "warming"}
	for _, s := range stages {
		at := slices.Index(order, s)
		if at < 0 {
			t.Fatalf("the stages were %v", stages)
		}
		order = order[at+1:]
	}
	for _, s := range []string{"linting", "compiling", "initialising"} {
		if !slices.Contains(stages, s) {
			t.Errorf("the stages were %v, without %s", stages, s)
		}
	}
	if end.State != client.AdmissionActive || end.Plugin != "scopes" || end.N != 1 {
		t.Errorf("at its end it is %+v", end)
	}
	unknown(t, globex, digest)

	p.end(t, syscall.SIGTERM)
	if !regexp.MustCompile(` msg=admission .* digest=` + digest + ` plugin=scopes\n`).Match(p.stderr.Bytes()) {
		t.Error("the log does not say whose admission it was")
	}
	p = listening(t, command(t, "", data, m, "CARREL_ADMIN_KEY="+testenv.AdminKey))
	acme, globex = p.owner(t, data, m), p.holder(t, key.Secret, m)
	after := admission(t, acme, digest)
	if after.State != client.AdmissionActive || after.Plugin != "scopes" || after.N != 1 || len(after.Stages) > 0 {
		t.Errorf("after a restart it is %+v", after)
	}
	unknown(t, globex, digest)
}

func TestWhatWasRefusedSaysWhyUntilTheHostStops(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	slow := slices.IndexFunc(hostile.Modules(), func(m hostile.Module) bool { return m.Slow && m.Code == abi.LimitExceeded })
	for name, wasm := range map[string]string{
		"no module at all":                   "junk",
		"a bomb of four billion types":       bomb(1),
		"a manifest with faults":             manifest(`{"abi":"carrel/v2","name":"No Name"}`),
		"a leak":                             string(testenv.Pack(t, example(t, "leak"))),
		"a module that is never initialised": string(hostile.Modules()[slow].Bytes()),
	} {
		t.Run(name, func(t *testing.T) {
			digest := submit(t, acme.In(t), []byte(wasm), client.UploadOptions{})
			end, err := acme.Client().WaitAdmission(t.Context(), digest, nil)
			if err == nil || end.State != client.AdmissionRefused || !strings.HasPrefix(end.Problem.RequestID, "req_") {
				t.Fatalf("it ended with %+v, %v", end, err)
			}
			_, want := acme.Client().Upload(t.Context(), []byte(wasm), client.UploadOptions{})
			if want == nil || err.Error() != want.Error() {
				t.Errorf("it was refused with %v\nwant %v", err, want)
			}
		})
	}
	if left := acme.Plugins(); len(left) > 0 {
		t.Errorf("there is %+v", left)
	}
	env.Restart()
	unknown(t, acme, carrel.DigestOf([]byte("junk")).String())
}

func TestAnUploadThatNobodyWaitsForHasItsOptions(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme, wasm := env.Tenant("acme"), testenv.Pack(t, talking("one"))
		for _, step := range []struct {
			options client.UploadOptions
			state   string
			n       int
		}{
			{client.UploadOptions{DryRun: true}, client.AdmissionChecked, 0},
			{client.UploadOptions{Inactive: true}, client.AdmissionStored, 1},
			{client.UploadOptions{}, client.AdmissionActive, 1},
			{client.UploadOptions{Inactive: true}, client.AdmissionActive, 1}, // it stays so
		} {
			end, err := acme.Client().WaitAdmission(t.Context(), submit(t, acme, wasm, step.options), nil)
			if err != nil || end.State != step.state || end.Plugin != "bot" || end.N != step.n {
				t.Errorf("%+v ended with %+v, %v", step.options, end, err)
			}
		}
		if active(t, acme, "bot") != 1 {
			t.Error("the version is not active")
		}
	})
}

func TestAPreferenceThatTheHostHasIsDoneAndAnyOtherIsIgnored(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme, wasm := env.Tenant("acme"), string(testenv.Pack(t, talking("one")))
	up := acme.With("Content-Type", "application/wasm")
	for prefer, async := range map[string]bool{
		"respond-async":                        true,
		"Respond-Async, safe":                  true,
		"wait=10 ,\trespond-async; some=\"x\"": true,
		`foo="a, \" b" ,respond-async=""`:      true,
		"safe":                                 false,
		"return=minimal, wait=10":              false,
		"respond-asynchronously":               false,
		"respond-async=never":                  false,
		"handling=strict; respond-async":       false,
		`foo="a, respond-async, b"`:            false,
		`foo="a, respond-async`:                false,
		",,":                                   false,
	} {
		acme.Upload([]byte(wasm))
		status, applied := http.StatusOK, "" // it is stored by then
		if async {
			status, applied = http.StatusAccepted, "respond-async"
		}
		ans := up.With("Prefer", prefer).Do(http.MethodPost, "/api/v1/plugins", wasm)
		if ans.Status != status {
			t.Errorf("%q answers %d %s, want %d", prefer, ans.Status, ans.Body, status)
		}
		if got := ans.Header.Get("Preference-Applied"); got != applied || (ans.Header.Get("Location") != "") != async {
			t.Errorf("%q is answered with %v", prefer, ans.Header)
		}
	}
	if ans := acme.With("Prefer", "respond-async").Do(http.MethodGet, "/api/v1/plugins", ""); ans.Status != http.StatusOK || ans.Header.Get("Preference-Applied") != "" {
		t.Errorf("another route answers %d %s", ans.Status, ans.Body)
	}
}

func TestAHostThatDrainsGivesAdmissionsTheirTimeAndNoMore(t *testing.T) {
	for name, tc := range map[string]struct {
		grace string
		end   func(t *testing.T, pid int)
		there bool
	}{
		"one that ends in time is stored":       {"1m", goOn, true},
		"one that does not is refused and gone": {"300ms", func(*testing.T, int) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			data, m := t.TempDir(), modeltest.NewServer(t)
			p := listening(t, command(t, "", data, m, "CARREL_LIMITS_DRAIN_TIMEOUT="+tc.grace))
			acme := p.owner(t, data, m)
			digest := submit(t, acme, scopesGuest(t), client.UploadOptions{})
			pid := compiler(t, p)
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() bool {
				_, err := acme.Client().UploadAsync(t.Context(), []byte("junk"), client.UploadOptions{})
				return testenv.CodeOf(err) == abi.Draining
			})
			tc.end(t, pid)
			<-p.ended // a second signal would end it at once
			if code := p.cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			p = listening(t, command(t, "", data, m))
			acme = p.owner(t, data, m)
			if !tc.there {
				unknown(t, acme, digest)
				if left := acme.Plugins(); len(left) > 0 {
					t.Errorf("there is %+v", left)
				}
				works(t, p, acme, data)
			} else if got := admission(t, acme, digest); got.State != client.AdmissionActive {
				t.Errorf("after the restart it is %+v", got)
			}
		})
	}
}

func TestAHostThatIsKilledForgetsItsAdmissionsWhole(t *testing.T) {
	data, m := t.TempDir(), modeltest.NewServer(t)
	p := listening(t, command(t, "", data, m))
	acme := p.owner(t, data, m)
	digest := submit(t, acme, scopesGuest(t), client.UploadOptions{})
	pid := compiler(t, p)
	p.end(t, syscall.SIGKILL)
	goOn(t, pid)
	p = listening(t, command(t, "", data, m))
	acme = p.owner(t, data, m)
	unknown(t, acme, digest)
	if left := acme.Plugins(); len(left) > 0 {
		t.Errorf("there is %+v", left)
	}
	works(t, p, acme, data)
}

func TestAnAdmissionHoldsItsPlaceAndItsRoomUntilItEnds(t *testing.T) {
	data, m := t.TempDir(), modeltest.NewServer(t)
	wasm := scopesGuest(t)
	size := fmt.Sprint(len(wasm) + 100)
	p := listening(t, command(t, "", data, m, "CARREL_LIMITS_UPLOADS=1", "CARREL_LIMITS_BODY_TIMEOUT=500ms",
		"CARREL_LIMITS_BODY_BYTES="+size, "CARREL_LIMITS_MODULE_BYTES="+size, "CARREL_LIMITS_IMPORT_BYTES=1000"))
	acme := p.owner(t, data, m)
	digest := submit(t, acme, wasm, client.UploadOptions{})
	pid := compiler(t, p)
	// There is no room for a second body of that size, though the first came long ago.
	_, err := acme.Client().UploadAsync(t.Context(), slices.Concat(wasm[:len(wasm)-1], []byte{0}), client.UploadOptions{})
	if code, limit := answer(err); code != abi.Overloaded || limit != "bodyBytes" {
		t.Errorf("the second body: %v", err)
	}
	// A small one has room and waits for a place, the prompt plugin too.
	queued := submit(t, acme, []byte("j"), client.UploadOptions{})
	if got := admission(t, acme, queued); got.State != "queued" {
		t.Errorf("the one that waits is %+v", got)
	}
	// When the compiler has ended the other has its place.
	goOn(t, pid)
	if end, err := acme.Client().WaitAdmission(t.Context(), digest, nil); err != nil || end.State != client.AdmissionActive {
		t.Errorf("the first ended with %+v, %v", end, err)
	}
	if _, err := acme.Client().WaitAdmission(t.Context(), queued, nil); testenv.CodeOf(err) != abi.InvalidModule {
		t.Errorf("the one that waited ended with %v", err)
	}
	acme.Install(talking("one"))
	if left := children(t, p.cmd.Process.Pid); len(left) > 0 {
		t.Errorf("the processes %v are left", left)
	}
}

func TestAnAdmissionThatTakesTooLongIsGivenUpWithItsCompiler(t *testing.T) {
	data, m := t.TempDir(), modeltest.NewServer(t)
	p := listening(t, command(t, "", data, m, "CARREL_LIMITS_ADMISSION_TIMEOUT=3s"))
	acme := p.owner(t, data, m)
	digest := submit(t, acme, scopesGuest(t), client.UploadOptions{})
	compiler(t, p) // and never goes on
	_, err := acme.Client().WaitAdmission(t.Context(), digest, nil)
	if code, limit := answer(err); code != abi.Overloaded || limit != "admissionTimeout" {
		t.Errorf("it ended with %v", err)
	}
	eventually(t, func() bool { return len(children(t, p.cmd.Process.Pid)) == 0 })
}

func TestTheEndsOfAdmissionsThatAreRememberedAreBounded(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.Admissions = 10
	env := testenv.New(t, cfg)
	acme, globex := env.Tenant("acme"), env.Tenant("globex")
	theirs := submit(t, globex, []byte("junk"), client.UploadOptions{})
	var digests []string
	for n := range 1000 {
		d := submit(t, acme, fmt.Appendf(nil, "junk %d", n), client.UploadOptions{})
		if _, err := acme.Client().WaitAdmission(t.Context(), d, nil); testenv.CodeOf(err) != abi.InvalidModule {
			t.Fatal(err)
		}
		digests = append(digests, d)
	}
	for _, d := range digests[:990] {
		if _, err := acme.Client().Admission(t.Context(), d); testenv.CodeOf(err) != abi.NotFound {
			t.Fatalf("one that ended long ago: %v", err)
		}
	}
	for _, d := range digests[990:] {
		if got := admission(t, acme, d); got.State != client.AdmissionRefused {
			t.Errorf("it is %+v", got)
		}
	}
	admission(t, globex, theirs)
}
