package sqlite_test

import (
	"context"
	"sync"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

func TestReadsNeverWaitForEachOtherInACircle(t *testing.T) {
	s := open(t, sqlite.Config{Path: newPath(t), Readers: 2})
	commit(t, s, commitOf(1, 0, "hello", "hi"))
	var all sync.WaitGroup
	start := make(chan struct{})
	for range 32 {
		all.Go(func() {
			<-start
			k, _ := keyOf(1)
			if v, err := s.View(context.Background(), k, store.ViewLimit{Messages: 10}); err != nil || len(v.Recent) != 1 {
				t.Errorf("view is %+v, %v", v, err)
			}
		})
	}
	close(start)
	all.Wait()
}

func TestReadsThatAreCutShortLeaveThePoolInOrder(t *testing.T) {
	s := open(t, sqlite.Config{Path: newPath(t), Readers: 1})
	texts := make([]string, 5000)
	for i := range texts {
		texts[i] = "a message"
	}
	commit(t, s, commitOf(1, 0, texts...))
	k, _ := keyOf(1)
	cut := 0
	for range 50 {
		ctx, cancel := context.WithCancel(context.Background())
		go cancel()
		v, err := s.View(ctx, k, store.ViewLimit{Messages: len(texts)})
		switch carrel.CodeOf(err) {
		case abi.OK:
			if len(v.Recent[0].Messages) != len(texts) {
				t.Errorf("a view without an error has %d messages", len(v.Recent[0].Messages))
			}
		case abi.Canceled:
			cut++
		default:
			t.Errorf("error is %v, want nil or context.Canceled", err)
		}
	}
	t.Logf("%d of 50 reads were cut short", cut)
	if v := must(s.View(context.Background(), k, store.ViewLimit{Messages: 1}))(t); len(v.Recent) != 1 {
		t.Errorf("view is %+v", v)
	}
}

func TestAReadWaitsForAConnectionUntilItsContextEnds(t *testing.T) {
	s := open(t, sqlite.Config{Path: newPath(t), Readers: 1})
	k, _ := keyOf(1)
	giveBack := must(s.HoldReader())(t)
	ctx, cancel := context.WithCancel(context.Background())
	outcome := make(chan error, 1)
	go func() {
		_, err := s.View(ctx, k, store.ViewLimit{Messages: 1})
		outcome <- err
	}()
	cancel()
	wantCode(t, <-outcome, abi.Canceled)
	giveBack()
	must(s.View(context.Background(), k, store.ViewLimit{Messages: 1}))(t)
}
