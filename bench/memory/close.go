package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// closeScope closes a scope with many histories while others write.
func (b *bench) closeScope(ctx context.Context) error {
	const histories, messages = 10_000, 4
	s, err := b.open(ctx, "close")
	if err != nil {
		return err
	}
	in, err := lasting(ctx, s, "ses")
	if err != nil {
		return err
	}
	other, err := lasting(ctx, s, "other")
	if err != nil {
		return err
	}
	if err := each(64, histories, func(n int) error {
		t := touchOf(in, fmt.Sprint("close-", n))
		turns := []store.NewTurn{{Messages: turn()}, {Messages: turn()}}
		_, err := s.Commit(ctx, store.Commit{Touch: t, Turns: turns[:messages/2], At: time.Now()})
		return err
	}); err != nil {
		return err
	}
	stop, others := make(chan struct{}), make(chan time.Duration, 1)
	var failed error
	go func() {
		longest := time.Duration(0)
		for n := 0; ; n++ {
			select {
			case <-stop:
				others <- longest
				return
			default:
			}
			begin := time.Now()
			if failed = answer(ctx, s, touchOf(other, fmt.Sprint("other-", n/fresh))); failed != nil {
				others <- 0
				return
			}
			longest = max(longest, time.Since(begin))
		}
	}()
	begin := time.Now()
	evicted, err := s.CloseScope(ctx, in.ID, carrel.ReasonScopeClosed, time.Now())
	took := time.Since(begin)
	if err != nil {
		return err
	}
	if _, err := s.Scrub(ctx, time.Now()); err != nil { // which waits until the last row is gone
		return err
	}
	gone := time.Since(begin)
	close(stop)
	longest := <-others
	if failed != nil {
		return failed
	}
	b.add(fmt.Sprintf("close a scope with %d histories", len(evicted)),
		fmt.Sprintf("%s until reported and out of sight, %s until scrubbed off the disk; the longest wait of another turn meanwhile %s",
			milliseconds(took), milliseconds(gone), milliseconds(longest)), "", "", "")
	return s.Close()
}

// each does n things, by so many workers, and returns the first error.
func each(workers, n int, do func(int) error) error {
	todo, failed := make(chan int), make(chan error, workers)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for i := range todo {
				if err := do(i); err != nil {
					failed <- err
					break
				}
			}
			for range todo { // whoever feeds it must not hang
				continue
			}
		})
	}
	for i := range n {
		todo <- i
	}
	close(todo)
	running.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
