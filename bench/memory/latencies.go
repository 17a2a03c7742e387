package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// load is what a number of workers did in a while.
type load struct {
	took  time.Duration
	times []time.Duration // of each operation, sorted
}

func (l load) perSecond() float64 { return float64(len(l.times)) / l.took.Seconds() }

// at returns the time within which so large a share of the operations ended.
func (l load) at(share float64) time.Duration {
	if len(l.times) == 0 {
		return 0
	}
	return l.times[min(len(l.times)-1, int(share*float64(len(l.times))))]
}

func (l load) String() string {
	return fmt.Sprintf("%.0f/s, p99 %s", l.perSecond(), milliseconds(l.at(0.99)))
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.3g ms", float64(d.Microseconds())/1000)
}

// drive has workers repeat an operation for a while; n counts a worker's own
// operations from 0.
func drive(ctx context.Context, workers int, each time.Duration, do func(ctx context.Context, worker, n int) error) (load, error) {
	var mu sync.Mutex // guards all and failed
	var all []time.Duration
	var failed error
	var running sync.WaitGroup
	start := time.Now()
	for w := range workers {
		running.Go(func() {
			var mine []time.Duration
			for n := 0; time.Since(start) < each; n++ {
				begin := time.Now()
				if err := do(ctx, w, n); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
				mine = append(mine, time.Since(begin))
			}
			mu.Lock()
			all = append(all, mine...)
			mu.Unlock()
		})
	}
	running.Wait()
	slices.Sort(all)
	return load{time.Since(start), all}, failed
}
