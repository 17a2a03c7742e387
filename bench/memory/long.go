package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carrelhost/carrel/store"
)

// longHistory compares a turn on a short history with one on a long one.
func (b *bench) longHistory(ctx context.Context) error {
	const short, long = 100, 100_000
	s, err := b.open(ctx, "long")
	if err != nil {
		return err
	}
	in, err := lasting(ctx, s, "ses")
	if err != nil {
		return err
	}
	for id, messages := range map[string]int{"short": short, "long": long} {
		if err := fill(ctx, s, in, id, messages); err != nil {
			return err
		}
	}
	// By turns, so that what the disk does in between happens to both.
	times := map[string][]time.Duration{}
	for start := time.Now(); time.Since(start) < b.time; {
		for _, id := range []string{"short", "long"} {
			t := touchOf(in, id)
			begin := time.Now()
			if err := answer(ctx, s, t); err != nil {
				return err
			}
			times[id] = append(times[id], time.Since(begin))
		}
	}
	if err := s.Close(); err != nil {
		return err
	}
	made, err := newList(ctx, b)
	if err != nil {
		return err
	}
	list := made.(listed) //nolint:forcetypeassert // it has just been made
	for id, messages := range map[string]int{"short": short, "long": long} {
		if err := list.fill(ctx, id, messages); err != nil {
			return err
		}
	}
	peer := map[string][]time.Duration{}
	for _, id := range []string{"short", "long", "short", "long", "short", "long"} {
		begin := time.Now()
		if err := list.append(ctx, id); err != nil {
			return err
		}
		peer[id] = append(peer[id], time.Since(begin))
	}
	b.add("a turn on a history of 100,000 messages, against one on 100",
		fmt.Sprintf("%s against %s", milliseconds(median(times["long"])), milliseconds(median(times["short"]))),
		fmt.Sprintf("list: %s against %s", milliseconds(median(peer["long"])), milliseconds(median(peer["short"]))),
		fmt.Sprintf("%.2f × (list %.0f ×)", ratio(times), ratio(peer)), "≤ 1.2 ×")
	return list.close()
}

func ratio(times map[string][]time.Duration) float64 {
	return float64(median(times["long"])) / float64(median(times["short"]))
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// fill makes a history of so many messages, a hundred to a commit.
func fill(ctx context.Context, s store.Store, in store.ScopeInstance, id string, messages int) error {
	const batch = 50
	turns := make([]store.NewTurn, 0, batch)
	for range batch {
		turns = append(turns, store.NewTurn{Messages: turn()})
	}
	t := touchOf(in, id)
	generation := int64(0)
	for stored := 0; stored < messages; stored += 2 * batch {
		done, err := s.Commit(ctx, store.Commit{Touch: t, Generation: generation, Turns: turns, At: time.Now()})
		if err != nil {
			return err
		}
		generation = done.Generation
	}
	return nil
}
