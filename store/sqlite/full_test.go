package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

func setMaxPages(t *testing.T, s *sqlite.Store, n int) {
	t.Helper()
	if err := s.SetMaxPages(n); err != nil {
		t.Fatal(err)
	}
}

func TestAFullDiskRefusesWritesAndRecoversWithoutAReopening(t *testing.T) {
	ctx := context.Background()
	s := open(t, sqlite.Config{Path: newPath(t)})
	k, _ := keyOf(1)
	commit(t, s, commitOf(1, 0, "hello", "hi"))
	generation := must(s.View(ctx, k, store.ViewLimit{Messages: 0}))(t).Generation
	setMaxPages(t, s, 4)

	large := strings.Repeat("x", 1<<20)
	for range 3 {
		err := tryCommit(ctx, s, commitOf(1, generation, large, "answer"))
		wantCode(t, err, abi.StorageFull)
		if e, ok := errors.AsType[*carrel.Error](err); !ok || e.Msg == "" {
			t.Errorf("error %v does not tell the caller what to do", err)
		}
		if v := must(s.View(ctx, k, store.ViewLimit{Messages: 10}))(t); len(v.Recent) != 1 || v.Recent[0].Messages[1].Content != "hi" {
			t.Errorf("the history is %+v", v)
		}
	}
	// Fill what is left, so that not even a small turn has room.
	var err error
	for err == nil {
		err = tryCommit(ctx, s, commitOf(1, generation, strings.Repeat("y", 1000)))
	}
	wantCode(t, err, abi.StorageFull)
	full := must(s.View(ctx, k, store.ViewLimit{Messages: 1}))(t).Recent[0].N

	setMaxPages(t, s, -1)
	commit(t, s, commitOf(1, generation, large, "answer"))
	v := must(s.View(ctx, k, store.ViewLimit{Messages: 2}))(t)
	if len(v.Recent) != 1 || v.Recent[0].N != full+1 || v.Recent[0].Messages[0].Content != large {
		t.Error("the turn after the recovery is not the next one")
	}
	if err := s.Check(ctx); err != nil {
		t.Error(err)
	}
}

func TestWhatDoesNotFitOnTheDiskFailsAloneInItsBatch(t *testing.T) {
	ctx := context.Background()
	s := open(t, sqlite.Config{Path: newPath(t)})
	const keys = 8
	generations := make([]int64, keys)
	for n := range keys {
		k, _ := keyOf(n)
		commit(t, s, commitOf(n, 0, "hello", "hi"))
		generations[n] = must(s.View(ctx, k, store.ViewLimit{Messages: 0}))(t).Generation
	}
	setMaxPages(t, s, 10)
	release := hold(t, s)
	var outcomes []<-chan error
	for n := range keys {
		answer := "short"
		if n%3 == 1 {
			answer = string(bytes.Repeat([]byte("x"), 1<<20))
		}
		outcomes = append(outcomes, queue(s, n, func() error { return tryCommit(ctx, s, commitOf(n, generations[n], "again", answer)) }))
	}
	release()
	for n, outcome := range outcomes {
		err, want := <-outcome, 2
		if n%3 == 1 {
			wantCode(t, err, abi.StorageFull)
			want = 1
		} else if err != nil {
			t.Errorf("key %d: %v", n, err)
		}
		k, _ := keyOf(n)
		if v := must(s.View(ctx, k, store.ViewLimit{Messages: 10}))(t); len(v.Recent) != want {
			t.Errorf("key %d has %d turns, want %d", n, len(v.Recent), want)
		}
	}
}
