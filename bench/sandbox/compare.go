package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// subject is one way to make a call. One goroutine uses it.
type subject struct {
	name string
	call func(ctx context.Context) error
}

// batch is how long a subject has its turn: long enough that the collection
// of its own garbage happens in it, short enough that what disturbs the
// machine disturbs all subjects alike.
const batch = 25 * time.Millisecond

// compare repeats the calls of several subjects by turns, each for so long
// altogether, and returns the median of the time of one call by name.
func compare(ctx context.Context, each time.Duration, subjects []subject) (map[string]time.Duration, error) {
	sizes, times := make([]int, len(subjects)), make([][]time.Duration, len(subjects))
	for i, s := range subjects {
		n := 1
		for {
			took, err := repeat(ctx, s, n)
			if err != nil {
				return nil, err
			}
			if took >= batch/2 {
				sizes[i] = max(1, int(float64(n)*float64(batch)/float64(took)))
				break
			}
			n *= 2
		}
	}
	for start := time.Now(); time.Since(start) < each*time.Duration(len(subjects)); {
		for i, s := range subjects {
			took, err := repeat(ctx, s, sizes[i])
			if err != nil {
				return nil, err
			}
			times[i] = append(times[i], took/time.Duration(sizes[i]))
		}
	}
	out := map[string]time.Duration{}
	for i, s := range subjects {
		out[s.name] = median(times[i])
	}
	return out, nil
}

func repeat(ctx context.Context, s subject, n int) (time.Duration, error) {
	begin := time.Now()
	for range n {
		if err := s.call(ctx); err != nil {
			return 0, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return time.Since(begin), nil
}

func median[T time.Duration | float64 | int64](all []T) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// shown returns a time with three digits, in the unit that suits it.
func shown(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.3g µs", float64(d.Nanoseconds())/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", float64(d.Microseconds())/1e3)
	default:
		return fmt.Sprintf("%.3g s", d.Seconds())
	}
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }
