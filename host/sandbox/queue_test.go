package sandbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/slots"
	"github.com/carrelhost/carrel/internal/testproc"
)

// stages collects what admissions tell, each under a name.
type stages struct {
	mu   sync.Mutex
	told []string
}

func (s *stages) of(name string) func(sandbox.Stage) {
	return func(stage sandbox.Stage) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told = append(s.told, strings.TrimSpace(name+" "+string(stage)))
	}
}

// only returns what was told of one stage.
func (s *stages) only(stage sandbox.Stage) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.told), func(t string) bool { return !strings.HasSuffix(t, string(stage)) })
}

func acquire(t *testing.T, s *slots.Pool, shares ...string) (release func()) {
	t.Helper()
	for _, share := range shares {
		if err := s.Acquire(t.Context(), share, nil); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		for _, share := range shares {
			s.Release(share)
		}
	}
}

func TestAnAdmissionIsQueuedOnlyIfItWaits(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	admit := func(told *stages) error {
		_, err := s.Admit(t.Context(), sandbox.Candidate{Module: caller(), Share: "acme", Stage: told.of("")})
		return err
	}
	var alone, second stages
	if err := admit(&alone); err != nil {
		t.Fatal(err)
	}
	if want := []string{"linting", "compiling", "initialising"}; !slices.Equal(alone.told, want) {
		t.Errorf("alone it tells %q", alone.told)
	}
	release := acquire(t, sandbox.Admissions(s), "one", "two")
	done := make(chan error)
	go func() { done <- admit(&second) }()
	testproc.Until(t, "the second to be queued", func() bool { return len(second.only(sandbox.StageQueue)) == 1 })
	if compiling := second.only(sandbox.StageCompile); len(compiling) > 0 {
		t.Error("it compiles without a place")
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if want := []string{"linting", "queued", "compiling", "initialising"}; !slices.Equal(second.told, want) {
		t.Errorf("after a wait it tells %q", second.told)
	}
}

// While one place is taken for good, the other goes round.
func TestAdmissionsOfSharesTakeTurns(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	places := sandbox.Admissions(s)
	defer acquire(t, places, "for good")()
	release := acquire(t, places, "first")
	var told stages
	var group sync.WaitGroup
	waiting := map[string]int{}
	for i, share := range []string{"mallory", "mallory", "mallory", "mallory", "acme", "globex"} {
		group.Go(func() {
			_, err := s.Admit(t.Context(), sandbox.Candidate{Module: numbered(i), Share: share, Stage: told.of(share)})
			if err != nil {
				t.Error(err)
			}
		})
		waiting[share]++
		testproc.Until(t, "another of "+share+" to wait", func() bool { _, n := places.Of(share); return n == waiting[share] })
	}
	release()
	group.Wait()
	want := []string{"mallory", "acme", "globex", "mallory", "mallory", "mallory"}
	got := told.only(sandbox.StageCompile)
	for i := range got {
		got[i], _, _ = strings.Cut(got[i], " ")
	}
	if !slices.Equal(got, want) {
		t.Errorf("they are compiled in the order %q, want %q", got, want)
	}
}

// However much one share uploads or opens, another one's begins at once.
func TestOneShareHoldsUpNoOther(t *testing.T) {
	for name, tc := range map[string]struct {
		places func(*sandbox.Sandbox) *slots.Pool
		enter  func(ctx context.Context, s *sandbox.Sandbox, share string, wasm []byte) error
	}{
		"uploads": {sandbox.Admissions, func(ctx context.Context, s *sandbox.Sandbox, share string, wasm []byte) error {
			_, err := s.Admit(ctx, sandbox.Candidate{Module: wasm, Share: share})
			return err
		}},
		"openings": {sandbox.Openings, func(ctx context.Context, s *sandbox.Sandbox, share string, wasm []byte) error {
			_, err := s.Open(ctx, wasm, sandbox.Setup{Share: share})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t, sandbox.Config{})
			places := tc.places(s)
			release := acquire(t, places, "mallory")
			ctx, cancel := context.WithCancel(t.Context())
			const many = 20
			refused := make(chan error, many)
			for i := range many {
				go func() { refused <- tc.enter(ctx, s, "mallory", numbered(i)) }()
			}
			testproc.Until(t, "all of mallory's to wait", func() bool { _, waiting := places.Of("mallory"); return waiting == many })
			if err := tc.enter(t.Context(), s, "acme", numbered(many)); err != nil {
				t.Fatal(err)
			}
			if _, waiting := places.Of("mallory"); waiting != many {
				t.Errorf("%d of mallory's wait, want %d", waiting, many)
			}
			cancel()
			for range many {
				if err := <-refused; !errors.Is(err, context.Canceled) {
					t.Errorf("one that waited got %v", err)
				}
			}
			release()
			if held, waiting := places.Of("mallory"); held != 0 || waiting != 0 {
				t.Errorf("mallory still holds %d places, and waits for %d", held, waiting)
			}
			if err := tc.enter(t.Context(), s, "mallory", numbered(0)); err != nil {
				t.Error(err)
			}
		})
	}
}

// What a guest does before its first call, it does in its share's turn. The
// test takes the slot between two of them, to see which of them had it.
func TestGuestsThatAreAdmittedTakeTheirSharesTurn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := newSandbox(t, sandbox.Config{Slots: 1})
	release := sandbox.OccupySlot(t, s, "test")
	served := make(chan string, 3)
	waits := func(share string, enter func()) {
		_, before := sandbox.OnSlots(s, share)
		go enter()
		testproc.Until(t, "one of "+share+"'s to wait", func() bool { _, now := sandbox.OnSlots(s, share); return now > before })
	}
	ends := func(name string, err error) {
		if err != nil {
			name += ": " + err.Error()
		}
		served <- name
	}
	admitted := func(name string, n int) {
		waits("acme", func() {
			_, err := s.Admit(ctx, sandbox.Candidate{Module: numbered(n), Share: "acme"})
			ends(name, err)
		})
	}
	between := func(share string) (turn chan func()) {
		turn = make(chan func(), 1)
		waits(share, func() { turn <- sandbox.OccupySlot(t, s, share) })
		return turn
	}
	admitted("acme's first", 1)
	one := between("the test after one")
	admitted("acme's second", 2)
	waits("globex", func() {
		_, err := s.Open(ctx, numbered(3), sandbox.Setup{Share: "globex"})
		ends("globex's", err)
	})
	two := between("the test after two")
	var order []string
	next := func() {
		testproc.Until(t, "one that had the slot to end", func() bool { return len(served) > 0 })
		order = append(order, <-served)
	}
	for _, turn := range []chan func(){one, two} {
		release()
		testproc.Until(t, "the slot between two of them", func() bool { return len(turn) > 0 })
		release = <-turn
		next()
	}
	release()
	next()
	if want := []string{"acme's first", "globex's", "acme's second"}; !slices.Equal(order, want) {
		t.Errorf("they are served in the order %q, want %q", order, want)
	}
}
