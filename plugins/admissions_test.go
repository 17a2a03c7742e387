package plugins_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/plugins"
)

// gates stop every admission until the test lets it go on.
type gates struct{ began chan judged }

// judged is an admission that began.
type judged struct {
	plugins.Candidate
	let chan<- error // how it goes on; nil: as if nothing had stopped it
}

// stopping is a change of a library's configuration, for tests that let
// admissions go on by hand, on a clock of their own.
func stopping(g *gates, c *clock, more func(*plugins.Config)) func(*plugins.Config) {
	g.began = make(chan judged)
	return func(cfg *plugins.Config) {
		cfg.Now = c.now
		admit := cfg.Admit
		cfg.Admit = func(ctx context.Context, candidate plugins.Candidate) (plugins.Admission, error) {
			candidate.Stage(sandbox.StageLint)
			let := make(chan error, 1)
			g.began <- judged{candidate, let}
			select {
			case err := <-let:
				if err != nil {
					return plugins.Admission{}, err
				}
			case <-ctx.Done():
				return plugins.Admission{}, ctx.Err()
			}
			return admit(ctx, candidate)
		}
		if more != nil {
			more(cfg)
		}
	}
}

// clock is one that the test moves.
type clock struct {
	mu sync.Mutex // guards at
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// ending is what an upload came to.
type ending struct {
	out plugins.Uploaded
	err error
}

// submit uploads in the background.
func (l *library) submit(ctx context.Context, u plugins.Upload) <-chan ending {
	l.t.Helper()
	s, err := l.Submit(ctx, u)
	if err != nil {
		l.t.Fatal(err)
	}
	done := make(chan ending, 1)
	go func() {
		out, err := s.Wait(ctx)
		done <- ending{out, err}
	}()
	return done
}

// progress returns how far a module of a tenant is.
func (l *library) progress(tenant carrel.TenantID, wasm []byte) plugins.Progress {
	l.t.Helper()
	p, err := l.Progress(l.t.Context(), tenant, carrel.DigestOf(wasm))
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

func TestAnAdmissionTellsItsStagesAndHowLongTheyTook(t *testing.T) {
	var g gates
	now := newClock()
	l := newLibrary(t, stopping(&g, now, nil))
	wasm := chatModule("p", "1")
	entered := make(chan struct{})
	done := l.submit(t.Context(), plugins.Upload{Tenant: acme, Module: wasm, Activate: true, Enter: func(context.Context) (func(), error) {
		<-entered
		return func() {}, nil
	}})
	start := now.now()
	want := func(state plugins.State, stages ...plugins.StageTime) {
		t.Helper()
		got := l.progress(acme, wasm)
		if got.State != state || !got.Since.Equal(now.now()) || !reflect.DeepEqual(got.Stages, stages) {
			t.Errorf("it is %s since %v after %v, want %s since %v after %v", got.State, got.Since, got.Stages, state, now.now(), stages)
		}
	}
	want("queued")
	now.forward(time.Second)
	close(entered)
	c := <-g.began
	stages := []plugins.StageTime{{Stage: "queued", Took: time.Second}}
	want("linting", stages...)
	c.Stage(sandbox.StageLint) // once more is no other stage
	for i, stage := range []sandbox.Stage{sandbox.StageQueue, sandbox.StageCompile, sandbox.StageInitialise, sandbox.StageWarm} {
		before := l.progress(acme, wasm).State
		now.forward(time.Duration(i+2) * time.Second)
		c.Stage(stage)
		stages = append(stages, plugins.StageTime{Stage: sandbox.Stage(before), Took: time.Duration(i+2) * time.Second})
		want(plugins.State(stage), stages...)
	}
	now.forward(6 * time.Second)
	c.let <- nil
	if end := <-done; end.err != nil || !end.out.Created {
		t.Fatalf("the upload ended with %+v", end)
	}
	// The real admission said "linting" again on its way.
	got := l.progress(acme, wasm)
	if got.State != plugins.StateActive || got.Plugin != "p" || got.N != 1 || got.Refused != nil {
		t.Errorf("at its end it is %+v", got)
	}
	var sum time.Duration
	for _, s := range got.Stages {
		sum += s.Took
	}
	if sum != now.now().Sub(start) {
		t.Errorf("the stages took %v, together %v", got.Stages, sum)
	}
}

func TestAWaitThatWasNoneIsNoStage(t *testing.T) {
	l := newLibrary(t, func(c *plugins.Config) { c.Now = newClock().now })
	l.upload(true, "1")
	for _, s := range l.progress(acme, chatModule("p", "1")).Stages {
		if s.Stage == sandbox.StageQueue {
			t.Errorf("it was queued for %v", s.Took)
		}
	}
}

func TestEqualModulesOfATenantAreJudgedOnce(t *testing.T) {
	var g gates
	l := newLibrary(t, stopping(&g, newClock(), nil))
	wasm := func() []byte { return chatModule("p", "1") }
	stored := l.submit(t.Context(), plugins.Upload{Tenant: acme, Module: wasm()})
	ours := <-g.began
	activated := l.submit(t.Context(), plugins.Upload{Tenant: acme, Module: wasm(), Activate: true})
	checked := l.submit(t.Context(), plugins.Upload{Tenant: acme, Module: wasm(), DryRun: true})
	theirs := l.submit(t.Context(), plugins.Upload{Tenant: other, Module: wasm(), DryRun: true})
	second := <-g.began
	if second.Tenant != other {
		t.Fatalf("the second that is judged is %s's", second.Tenant)
	}
	ours.let <- nil
	second.let <- nil
	a, b, c, d := <-stored, <-activated, <-checked, <-theirs
	if err := errors.Join(a.err, b.err, c.err, d.err); err != nil {
		t.Fatal(err)
	}
	if a.out.Created == b.out.Created || a.out.Version.N != 1 || b.out.Version.N != 1 || c.out.Version.N != 0 {
		t.Errorf("the uploads made %+v, %+v and %+v", a.out, b.out, c.out)
	}
	if p := l.progress(acme, wasm()); p.State != plugins.StateActive || p.N != 1 {
		t.Errorf("it is %+v", p)
	}
	if p := l.progress(other, wasm()); p.State != plugins.StateChecked || p.N != 0 || p.Plugin != "p" {
		t.Errorf("the other tenant's is %+v", p)
	}
	// What is refused is refused for all who wait.
	wasm = func() []byte { return chatModule("p", "2") }
	first := l.submit(t.Context(), plugins.Upload{Tenant: acme, Module: wasm(), Activate: true})
	ours = <-g.began
	also := l.submit(t.Context(), plugins.Upload{Tenant: acme, Module: wasm(), Activate: true})
	ours.let <- carrel.Fail("test", abi.InvalidModule, "no")
	for _, end := range []ending{<-first, <-also} {
		wantCode(t, end.err, abi.InvalidModule)
	}
}

func TestAnAdmissionEndsWithTheLastWhoWaitsForIt(t *testing.T) {
	var g gates
	l := newLibrary(t, stopping(&g, newClock(), nil))
	u := plugins.Upload{Tenant: acme, Module: chatModule("p", "1"), Activate: true}
	ctx, leaveFirst := context.WithCancel(t.Context())
	first := l.submit(ctx, u)
	<-g.began
	ctx, leaveSecond := context.WithCancel(t.Context())
	second := l.submit(ctx, u)
	leaveFirst()
	wantCode(t, (<-first).err, abi.Canceled)
	if p := l.progress(acme, u.Module); p.State != "linting" {
		t.Errorf("after the first left it is %s", p.State)
	}
	leaveSecond()
	wantCode(t, (<-second).err, abi.Canceled)
	if p := l.progress(acme, u.Module); p.State != plugins.StateRefused || p.Refused.Code != abi.Canceled {
		t.Errorf("after both left it is %+v", p)
	}
	// Whoever comes then is judged anew.
	third := l.submit(t.Context(), u)
	(<-g.began).let <- nil
	if end := <-third; end.err != nil || l.progress(acme, u.Module).State != plugins.StateActive {
		t.Errorf("the third ended with %v", end.err)
	}
}

func TestARefusalIsKeptForAnHourWithoutItsCauseAndCut(t *testing.T) {
	var g gates
	now := newClock()
	l := newLibrary(t, stopping(&g, now, nil))
	u := plugins.Upload{Tenant: acme, Module: chatModule("p", "1"), Request: "req_1"}
	done := l.submit(t.Context(), u)
	c := <-g.began
	refused := &carrel.Error{Op: "test", Code: abi.InvalidManifest, Msg: strings.Repeat("ä", 10_000), Limit: "some", Err: errors.New("secret")}
	for i := range 101 {
		refused.Faults = append(refused.Faults, carrel.Fault{Pointer: fmt.Sprintf("/%d", i), Message: strings.Repeat("x", 1000)})
	}
	c.let <- refused
	wantCode(t, (<-done).err, abi.InvalidManifest)
	p := l.progress(acme, u.Module)
	k := p.Refused
	if p.State != plugins.StateRefused || p.Request != "req_1" || k.Code != abi.InvalidManifest || k.Limit != "some" || k.Err != nil {
		t.Fatalf("it is %+v", p)
	}
	size := len(k.Msg)
	for _, f := range k.Faults {
		size += len(f.Pointer) + len(f.Message)
	}
	last := k.Faults[len(k.Faults)-1]
	if size > 17<<10 || !strings.HasPrefix(k.Msg, "ää") || !strings.HasSuffix(k.Msg, "ä…") || !strings.Contains(last.Message, "more faults") {
		t.Errorf("%d bytes are kept, ending with %q and %+v", size, k.Msg[len(k.Msg)-9:], last)
	}
	_, err := l.Progress(t.Context(), other, carrel.DigestOf(u.Module))
	wantCode(t, err, abi.NotFound)
	now.forward(time.Hour - time.Second)
	l.progress(acme, u.Module)
	now.forward(time.Second)
	_, err = l.Progress(t.Context(), acme, carrel.DigestOf(u.Module))
	wantCode(t, err, abi.NotFound)
}

func TestAFailureOfTheHostIsKeptWithoutItsText(t *testing.T) {
	var g gates
	l := newLibrary(t, stopping(&g, newClock(), func(c *plugins.Config) {
		c.Admit = func(context.Context, plugins.Candidate) (plugins.Admission, error) { panic("secret") }
	}))
	_, err := l.Upload(t.Context(), plugins.Upload{Tenant: acme, Module: chatModule("p", "1")})
	wantCode(t, err, abi.Internal)
	if !strings.Contains(err.Error(), "admissions_test.go") {
		t.Errorf("the stack is not in %v", err)
	}
	if p := l.progress(acme, chatModule("p", "1")); p.State != plugins.StateRefused || p.Refused.Code != abi.Internal || p.Refused.Msg != "" {
		t.Errorf("it is %+v", p.Refused)
	}
}

func TestWhatIsStoredTellsOfItselfHoweverLongAgo(t *testing.T) {
	now := newClock()
	l := newLibrary(t, func(c *plugins.Config) { c.Now = now.now })
	l.upload(true, "1", "2")
	one, two := chatModule("p", "1"), chatModule("p", "2")
	want := func(wasm []byte, state plugins.State, n int) {
		t.Helper()
		if p := l.progress(acme, wasm); p.State != state || p.N != n || p.Plugin != "p" {
			t.Errorf("it is %+v, want %s", p, state)
		}
	}
	for range 2 {
		want(one, plugins.StateStored, 1)
		want(two, plugins.StateActive, 2)
		now.forward(2 * time.Hour)
	}
	if _, err := l.Rollback(t.Context(), acme, "p"); err != nil {
		t.Fatal(err)
	}
	want(one, plugins.StateActive, 1)
	want(two, plugins.StateStored, 2)
	if err := l.DeleteVersion(t.Context(), acme, "p", carrel.VersionRef{N: 2}); err != nil {
		t.Fatal(err)
	}
	_, err := l.Progress(t.Context(), acme, carrel.DigestOf(two))
	wantCode(t, err, abi.NotFound)
}
