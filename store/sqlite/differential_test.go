package sqlite_test

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/memstore"
	"github.com/carrelhost/carrel/store/sqlite"
	"github.com/carrelhost/carrel/store/storetest"
)

// The two stores share nothing but their contract.
func TestSQLiteIsLikeMemory(t *testing.T) {
	t.Parallel() // it waits for the disk most of the time
	storetest.Differential(t, func(t *testing.T) (a, b store.Store) {
		disk, err := sqlite.Open(t.Context(), sqlite.Config{Path: newPath(t)})
		if err != nil {
			t.Fatal(err)
		}
		return memstore.New(memstore.Config{}), disk
	})
}

// What ended and is still there is out of sight, whatever happens meanwhile.
func TestSQLiteIsLikeMemoryWithoutDeletingAtOnce(t *testing.T) {
	t.Parallel() // it waits for the disk most of the time
	storetest.Differential(t, func(t *testing.T) (a, b store.Store) {
		disk, err := sqlite.Open(t.Context(), sqlite.Config{Path: newPath(t)})
		if err != nil {
			t.Fatal(err)
		}
		if err := disk.NeverAtOnce(); err != nil {
			t.Fatal(err)
		}
		lagging := &late{Store: disk, waiting: make(map[carrel.ScopeID]func())}
		return &unnumbered{Store: memstore.New(memstore.Config{})}, &unnumbered{Store: lagging}
	})
}

// unnumbered is a store whose records are known to be there, but not in which
// order they came: those that follow a close come when they can. Generations
// are counted as they are first heard of, because what is put off may use some
// up. It does not tell either whether a scrub is due, which a close without
// histories may ask for.
type unnumbered struct {
	store.Store
	generations []int64
}

func (s *unnumbered) told(generation int64) int64 {
	if generation == 0 {
		return 0
	}
	i := slices.Index(s.generations, generation)
	if i < 0 {
		i = len(s.generations)
		s.generations = append(s.generations, generation)
	}
	return int64(i) + 1
}

// real returns a generation that never is for one that nobody was told of.
func (s *unnumbered) real(told int64) int64 {
	switch {
	case told == 0:
		return 0
	case told < 0 || told > int64(len(s.generations)):
		return -1
	}
	return s.generations[told-1]
}

func (s *unnumbered) Touch(ctx context.Context, t store.Touch) (store.Touched, error) {
	done, err := s.Store.Touch(ctx, t)
	done.Generation = s.told(done.Generation)
	return done, err
}

func (s *unnumbered) Commit(ctx context.Context, c store.Commit) (store.Committed, error) {
	c.Generation = s.real(c.Generation)
	done, err := s.Store.Commit(ctx, c)
	done.Generation = s.told(done.Generation)
	return done, err
}

func (s *unnumbered) View(ctx context.Context, k carrel.MemoryKey, limit store.ViewLimit) (store.View, error) {
	v, err := s.Store.View(ctx, k, limit)
	v.Generation = s.told(v.Generation)
	return v, err
}

func (s *unnumbered) History(ctx context.Context, t carrel.TenantID, handle carrel.Handle, by *store.Toucher, c store.Cutoff) (store.History, error) {
	h, err := s.Store.History(ctx, t, handle, by, c)
	h.Generation = s.told(h.Generation)
	return h, err
}

func (s *unnumbered) ListHistories(ctx context.Context, f store.HistoryFilter) ([]store.History, error) {
	list, err := s.Store.ListHistories(ctx, f)
	for i := range list {
		list[i].Generation = s.told(list[i].Generation)
	}
	return list, err
}

func (s *unnumbered) Messages(ctx context.Context, k carrel.MemoryKey, generation, after int64, limit store.MessageLimit) (store.MessagePage, error) {
	return s.Store.Messages(ctx, k, s.real(generation), after, limit)
}

func (s *unnumbered) DeleteTurn(ctx context.Context, k carrel.MemoryKey, generation, turn int64) error {
	return s.Store.DeleteTurn(ctx, k, s.real(generation), turn)
}

func (s *unnumbered) ListEvictions(ctx context.Context, f store.EvictionFilter) ([]store.EvictionRecord, error) {
	f.After, f.Limit = 0, 10_000
	list, err := s.Store.ListEvictions(ctx, f)
	for i := range list {
		list[i].N = 0
	}
	slices.SortFunc(list, func(a, b store.EvictionRecord) int {
		return cmp.Or(a.At.Compare(b.At), slices.Compare(a.Handle[:], b.Handle[:]), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Plugin, b.Plugin),
			cmp.Compare(a.Messages, b.Messages), cmp.Compare(a.Bytes, b.Bytes))
	})
	return list, err
}

// ForgetEvictions forgets all that are old enough, once all are there.
func (s *unnumbered) ForgetEvictions(ctx context.Context, before time.Time, _ int) (int, error) {
	if _, err := s.ListEvictions(ctx, store.EvictionFilter{}); err != nil {
		return 0, err
	}
	return s.Store.ForgetEvictions(ctx, before, 10_000)
}

func (s *unnumbered) LastScrub(ctx context.Context) (store.Scrub, error) {
	last, err := s.Store.LastScrub(ctx)
	last.Due = false
	return last, err
}
