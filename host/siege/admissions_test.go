//go:build unix

package siege_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"syscall"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/internal/testproc"
)

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
	p := program.Serve(t, data, m, "CARREL_ADMIN_KEY="+testenv.AdminKey)
	acme := p.Owner(t, data, m)
	admin := &client.Client{Base: p.Base, Key: testenv.AdminKey}
	if _, err := admin.CreateTenant(t.Context(), "globex"); err != nil {
		t.Fatal(err)
	}
	key, err := admin.CreateKey(t.Context(), "globex", client.NewKey{Role: "owner"})
	if err != nil {
		t.Fatal(err)
	}
	globex := p.Holder(t, key.Secret, m)

	wasm := scopes.Module(t)
	digest := acme.Submit(wasm, client.UploadOptions{})
	pid := compiler(t, p)
	got := acme.Admission(digest)
	if got.State != "compiling" || !slices.Contains(names(got), "linting") || got.Problem != nil || got.N != 0 {
		t.Errorf("while it is compiled it is %+v", got)
	}
	globex.NoAdmission(digest)
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
	globex.NoAdmission(digest)

	p.End(t, syscall.SIGTERM)
	if !regexp.MustCompile(` msg=admission .* digest=` + digest + ` plugin=scopes\n`).Match(p.Stderr.Bytes()) {
		t.Error("the log does not say whose admission it was")
	}
	p = program.Serve(t, data, m, "CARREL_ADMIN_KEY="+testenv.AdminKey)
	acme, globex = p.Owner(t, data, m), p.Holder(t, key.Secret, m)
	after := acme.Admission(digest)
	if after.State != client.AdmissionActive || after.Plugin != "scopes" || after.N != 1 || len(after.Stages) > 0 {
		t.Errorf("after a restart it is %+v", after)
	}
	globex.NoAdmission(digest)
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
			p := program.Serve(t, data, m, "CARREL_LIMITS_DRAIN_TIMEOUT="+tc.grace)
			acme := p.Owner(t, data, m)
			digest := acme.Submit(scopes.Module(t), client.UploadOptions{})
			pid := compiler(t, p)
			if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			testproc.Until(t, "a host that drains", func() bool {
				_, err := acme.Client().UploadAsync(t.Context(), []byte("junk"), client.UploadOptions{})
				return testenv.CodeOf(err) == abi.Draining
			})
			tc.end(t, pid)
			<-p.Ended // a second signal would end it at once
			if code := p.Cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			p = program.Serve(t, data, m)
			acme = p.Owner(t, data, m)
			if !tc.there {
				acme.NoAdmission(digest)
				if left := acme.Plugins(); len(left) > 0 {
					t.Errorf("there is %+v", left)
				}
				works(t, p, acme, data)
			} else if got := acme.Admission(digest); got.State != client.AdmissionActive {
				t.Errorf("after the restart it is %+v", got)
			}
		})
	}
}

func TestAHostThatIsKilledForgetsItsAdmissionsWhole(t *testing.T) {
	data, m := t.TempDir(), modeltest.NewServer(t)
	p := program.Serve(t, data, m)
	acme := p.Owner(t, data, m)
	digest := acme.Submit(scopes.Module(t), client.UploadOptions{})
	pid := compiler(t, p)
	p.End(t, syscall.SIGKILL)
	goOn(t, pid)
	p = program.Serve(t, data, m)
	acme = p.Owner(t, data, m)
	acme.NoAdmission(digest)
	if left := acme.Plugins(); len(left) > 0 {
		t.Errorf("there is %+v", left)
	}
	works(t, p, acme, data)
}

func TestAnAdmissionHoldsItsPlaceAndItsRoomUntilItEnds(t *testing.T) {
	data, m := t.TempDir(), modeltest.NewServer(t)
	wasm := scopes.Module(t)
	size := fmt.Sprint(len(wasm) + 100)
	p := testenv.Listening(t, program.Command(t, "", data, m, "CARREL_LIMITS_UPLOADS=1", "CARREL_LIMITS_BODY_TIMEOUT=500ms",
		"CARREL_LIMITS_BODY_BYTES="+size, "CARREL_LIMITS_MODULE_BYTES="+size, "CARREL_LIMITS_IMPORT_BYTES=1000"))
	acme := p.Owner(t, data, m)
	digest := acme.Submit(wasm, client.UploadOptions{})
	pid := compiler(t, p)
	// There is no room for a second body of that size, though the first came long ago.
	_, err := acme.Client().UploadAsync(t.Context(), slices.Concat(wasm[:len(wasm)-1], []byte{0}), client.UploadOptions{})
	if code, limit := answer(err); code != abi.Overloaded || limit != "bodyBytes" {
		t.Errorf("the second body: %v", err)
	}
	// A small one has room and waits for a place, the prompt plugin too.
	queued := acme.Submit([]byte("j"), client.UploadOptions{})
	if got := acme.Admission(queued); got.State != "queued" {
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
	acme.Install(testenv.Example(t, "nice-and-mean"))
	if left := children(t, p.Cmd.Process.Pid); len(left) > 0 {
		t.Errorf("the processes %v are left", left)
	}
}

func TestAnAdmissionThatTakesTooLongIsGivenUpWithItsCompiler(t *testing.T) {
	data, m := t.TempDir(), modeltest.NewServer(t)
	p := program.Serve(t, data, m, "CARREL_LIMITS_ADMISSION_TIMEOUT=3s")
	acme := p.Owner(t, data, m)
	digest := acme.Submit(scopes.Module(t), client.UploadOptions{})
	compiler(t, p) // and never goes on
	_, err := acme.Client().WaitAdmission(t.Context(), digest, nil)
	if code, limit := answer(err); code != abi.Overloaded || limit != "admissionTimeout" {
		t.Errorf("it ended with %v", err)
	}
	testproc.Until(t, "the compiler's end", func() bool { return len(children(t, p.Cmd.Process.Pid)) == 0 })
}
