package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/idempotency"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

// A commit that its caller gives up at any instant, however much it writes, is
// decided before the claim that follows it: either that finds the answer, and
// the turn is there, or it takes the claim, and the turn never comes.
func TestAClaimIsDecidedAfterTheCommitThatNobodyWaitedFor(t *testing.T) {
	const callers, rounds = 8, 40
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "carrel.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // a store that was read
	k, err := idempotency.New(idempotency.Config{
		Store: s, Node: "one", Most: store.ClaimLimits{Claims: callers * rounds, Bytes: 1 << 30}, Timeout: time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	commit := func(ctx context.Context, id, text string, turns int, answer *store.Answer) error {
		now := time.Now()
		_, err := s.Commit(ctx, store.Commit{
			Touch: store.Touch{
				Scope: store.ScopeInstance{ID: carrel.ScopeID("scope " + id), Tenant: "acme", Scope: carrel.ScopeRequest, Node: "one", OpenedAt: now},
				Key:   key(id), Handle: handle(id), Plugin: "p", At: now,
			},
			Turns: slices.Repeat([]store.NewTurn{{Messages: []carrel.Message{
				{Role: carrel.RoleUser, Content: "U"}, {Role: carrel.RoleAssistant, Content: text},
			}}}, turns),
			Answer: answer, At: now,
		})
		return err
	}
	var mu sync.Mutex // guards what became of the commits
	became := map[string]int{}
	one := func(rng *rand.Rand, id string) {
		c := call(t, `{}`, func(c *idempotency.Call) { c.Key = id })
		first, err := k.Enter(t.Context(), c)
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := first.Claim(t.Context(), false); err != nil {
			t.Error(err)
			return
		}
		short, cancel := context.WithTimeout(t.Context(), patience(rng))
		turns := []int{1, 1, 300}[rng.IntN(3)] // so many are a heavy write, which the claim may overtake
		err = commit(short, id, "A1", turns, first.Seal([]byte("A1")))
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("commit: %v", err)
		}
		if err != nil {
			first.Doubt()
		}
		first.End(t.Context(), err == nil)

		second, again := k.Enter(t.Context(), c)
		if again != nil {
			t.Error(again)
			return
		}
		defer second.End(t.Context(), false)
		stored, again := second.Claim(t.Context(), false)
		if again != nil {
			t.Errorf("claim: %v", again)
			return
		}
		view, viewed := s.View(t.Context(), key(id), store.ViewLimit{Messages: 10})
		if viewed != nil {
			t.Errorf("view: %v", viewed)
			return
		}
		outcome := "told"
		switch {
		case stored != nil && (view.Stored != int64(2*turns) || string(stored.Answer) != "A1"):
			t.Errorf("the answer is %q and %d messages are stored", stored.Answer, view.Stored)
		case stored == nil && view.Stored != 0:
			t.Errorf("the claim was taken again and %d messages are stored", view.Stored)
		case stored == nil && err == nil:
			t.Error("an acknowledged answer is gone")
		case stored != nil && err != nil:
			outcome = "stored and not told"
		case stored == nil:
			outcome = "not stored"
		}
		mu.Lock()
		defer mu.Unlock()
		became[outcome]++
	}
	var all sync.WaitGroup
	for n := range callers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			for round := range rounds {
				one(rng, fmt.Sprintf("%d-%d", n, round))
			}
		})
	}
	all.Wait()
	if became["told"] == 0 || became["told"] == callers*rounds {
		t.Errorf("the commits became %v: some are to be told, and some given up", became)
	}
	// Nothing that was given up comes later.
	list, err := s.ListHistories(t.Context(), store.HistoryFilter{Tenant: "acme", Limit: callers * rounds})
	if err != nil || len(list) != became["told"]+became["stored and not told"] {
		t.Errorf("%d turns are stored, %v", len(list), err)
	}
}

// patience is anything from far too little to more than enough for a commit,
// on fast disks and slow ones.
func patience(rng *rand.Rand) time.Duration {
	const least, most = 10 * time.Microsecond, 10 * time.Second
	return time.Duration(float64(least) * math.Pow(float64(most/least), rng.Float64()))
}

func key(id string) carrel.MemoryKey {
	return carrel.MemoryKey{Tenant: "acme", Namespace: "p", Kind: carrel.KindExplicit, ID: carrel.MemoryID(id)}
}

func handle(id string) (h carrel.Handle) {
	copy(h[:], id)
	return h
}

// impatient is a store that gives up claims of which nobody knows then whether
// it took them.
type impatient struct {
	*sqlite.Store
	wait func() time.Duration // for the next claim
}

func (s *impatient) Claim(ctx context.Context, c store.Claim, most store.ClaimLimits) (store.Claimed, error) {
	ctx, cancel := context.WithTimeout(ctx, s.wait())
	defer cancel()
	return s.Store.Claim(ctx, c, most)
}

// The release of a claim that nobody waited for comes after it, and before the
// next call's: a handler runs once, and is never said to have been cut short.
func TestAHandlerRunsOnceAlthoughNobodyWaitedForItsClaim(t *testing.T) {
	const callers, rounds = 8, 20
	disk, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "carrel.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close() //nolint:errcheck // a store that was read
	var mu sync.Mutex  // guards what follows
	rng := rand.New(rand.NewPCG(1, 2))
	given, runs := 0, map[string]int{}
	s := &impatient{Store: disk, wait: func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return patience(rng)
	}}
	k, err := idempotency.New(idempotency.Config{
		Store: s, Node: "one", Most: store.ClaimLimits{Claims: callers * rounds, Bytes: 1 << 30}, Timeout: time.Minute,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	// one calls until the store answers in time.
	one := func(id string) {
		for {
			_, err := do(t.Context(), k, call(t, `{}`, func(c *idempotency.Call) { c.Key = id }), true, func() (string, error) {
				mu.Lock()
				defer mu.Unlock()
				runs[id]++
				return "A", nil
			})
			if err == nil {
				return
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("call %s: %v", id, err)
				return
			}
			mu.Lock()
			given++
			mu.Unlock()
		}
	}
	var all sync.WaitGroup
	for n := range callers {
		all.Go(func() {
			for round := range rounds {
				one(fmt.Sprintf("%d-%d", n, round))
			}
		})
	}
	all.Wait()
	for id, n := range runs {
		if n != 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
	if len(runs) != callers*rounds || given == 0 {
		t.Errorf("%d of %d calls ran, %d claims were given up", len(runs), callers*rounds, given)
	}
}
