package host_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/internal/testenv"
)

func TestWhatWasRefusedSaysWhyUntilTheHostStops(t *testing.T) {
	cfg := testenv.Config()
	cfg.Sandbox.AdmitTimeout = time.Second // of what is never initialised
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	slow := slices.IndexFunc(hostile.Modules(), func(m hostile.Module) bool { return m.Slow && m.Code == abi.LimitExceeded })
	for name, wasm := range map[string]string{
		"no module at all":                   "junk",
		"a bomb of four billion types":       bomb(1),
		"a manifest with faults":             manifest(`{"abi":"carrel/v2","name":"No Name"}`),
		"a leak":                             string(testenv.Pack(t, testenv.Example(t, "leak"))),
		"a module that is never initialised": string(hostile.Modules()[slow].Bytes()),
	} {
		t.Run(name, func(t *testing.T) {
			digest := acme.In(t).Submit([]byte(wasm), client.UploadOptions{})
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
	acme.NoAdmission(carrel.DigestOf([]byte("junk")).String())
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
			end, err := acme.Client().WaitAdmission(t.Context(), acme.Submit(wasm, step.options), nil)
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

func TestTheEndsOfAdmissionsThatAreRememberedAreBounded(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.Admissions = 10
	env := testenv.New(t, cfg)
	acme, globex := env.Tenant("acme"), env.Tenant("globex")
	theirs := globex.Submit([]byte("junk"), client.UploadOptions{})
	var digests []string
	for n := range 1000 {
		d := acme.Submit(fmt.Appendf(nil, "junk %d", n), client.UploadOptions{})
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
		if got := acme.Admission(d); got.State != client.AdmissionRefused {
			t.Errorf("it is %+v", got)
		}
	}
	globex.Admission(theirs)
}
