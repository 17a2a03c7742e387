package sandbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/slots"
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
	until(t, func() bool { return len(second.only(sandbox.StageQueue)) == 1 })
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
		until(t, func() bool { _, n := places.Of(share); return n == waiting[share] })
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
			until(t, func() bool { _, waiting := places.Of("mallory"); return waiting == many })
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

// What a guest does before its first call, it does in its share's turn.
func TestGuestsThatAreAdmittedTakeTheirSharesTurn(t *testing.T) {
	s := newSandbox(t, sandbox.Config{Slots: 1})
	release := sandbox.OccupySlot(t, s, "first")
	var group sync.WaitGroup
	waits := func(share string, enter func() error) {
		group.Go(func() {
			if err := enter(); err != nil {
				t.Error(err)
			}
		})
		until(t, func() bool { _, waiting := sandbox.OnSlots(s, share); return waiting == 1 })
	}
	waits("acme", func() error {
		_, err := s.Admit(t.Context(), sandbox.Candidate{Module: numbered(1), Share: "acme"})
		return err
	})
	waits("globex", func() error {
		_, err := s.Open(t.Context(), numbered(2), sandbox.Setup{Share: "globex"})
		return err
	})
	release()
	group.Wait()
}
