package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
)

// assault starts a hostile guest and returns how long after its deadline it
// stopped.
type assault func(ctx context.Context) (time.Duration, error)

// attack runs one hostile guest in this process, again and again, and writes
// what became of the process. If the guest does not stop, neither does attack.
func attack(ctx context.Context, engine, name string, out io.Writer) error {
	strike, err := arm(ctx, engine, name)
	if err != nil {
		return err
	}
	var s stops
	h := startHeart()
	for range attacksAlone {
		late, err := strike(ctx)
		if err != nil {
			return err
		}
		s.Alone = append(s.Alone, late)
	}
	slots := min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) + 1 // what a sandbox has
	var mu sync.Mutex                                         // guards s.All and failed
	var failed error
	for range attacksAll {
		var all sync.WaitGroup
		for range slots {
			all.Go(func() {
				late, err := strike(ctx)
				mu.Lock()
				defer mu.Unlock()
				s.All, failed = append(s.All, late), errors.Join(failed, err)
			})
		}
		all.Wait()
	}
	s.Gap = h.stop()
	if failed != nil {
		return failed
	}
	return json.NewEncoder(out).Encode(s)
}

func arm(ctx context.Context, engine, name string) (assault, error) {
	if name == "none" { // how the process is without a guest
		return func(context.Context) (time.Duration, error) {
			begin := time.Now()
			time.Sleep(attacked)
			return time.Since(begin) - attacked, nil
		}, nil
	}
	for _, a := range attackers() {
		switch {
		case a.name != name:
		case engine == "carrel":
			return armCarrel(ctx, a.wasm)
		case engine == "wazero":
			return armWazero(ctx, a.wasm)
		default:
			return nil, fmt.Errorf("there is no engine %q", engine)
		}
	}
	return nil, fmt.Errorf("there is no guest %q", name)
}

// Both processes end with what they opened.

func armCarrel(ctx context.Context, wasm []byte) (assault, error) {
	s, err := openSandboxed(ctx, wasm, nil)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		_, err := s.plugin.Call(ctx, sandbox.Call{Export: total, Share: "bench" + begin.String(), Limit: attacked})
		late := time.Since(begin) - attacked
		if carrel.CodeOf(err) != abi.Timeout {
			return 0, fmt.Errorf("the guest ended otherwise than by its deadline: %w", orNil(err))
		}
		return late, nil
	}, nil
}

func armWazero(ctx context.Context, wasm []byte) (assault, error) {
	p, err := openPlain(ctx, wasm, true)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, attacked)
		defer cancel()
		begin := time.Now()
		m, err := p.instance(ctx)
		if err != nil {
			return 0, err
		}
		_, err = m.ExportedFunction(total).Call(ctx)
		late := time.Since(begin) - attacked
		if ctx.Err() == nil {
			return 0, fmt.Errorf("the guest ended otherwise than by its deadline: %w", orNil(err))
		}
		return late, m.Close(context.WithoutCancel(ctx))
	}, nil
}

var errReturned = errors.New("it returned")

func orNil(err error) error {
	if err == nil {
		return errReturned
	}
	return err
}

// heart beats each millisecond and has garbage collected all the time: what
// the collector cannot interrupt stops the whole process.
type heart struct {
	end, ended chan struct{}
	gap        time.Duration // read after ended
}

const collectEvery = 20 // beats

func startHeart() *heart {
	h := &heart{end: make(chan struct{}), ended: make(chan struct{})}
	collect := make(chan struct{}, 1)
	go func() {
		for range collect {
			runtime.GC()
		}
	}()
	go func() {
		defer close(h.ended)
		defer close(collect)
		last := time.Now()
		for n := 0; ; n++ {
			select {
			case <-h.end:
				return
			case <-time.After(time.Millisecond):
			}
			h.gap = max(h.gap, time.Since(last)-time.Millisecond)
			last = time.Now()
			if n%collectEvery == 0 {
				select {
				case collect <- struct{}{}:
				default: // it still does
				}
			}
		}
	}()
	return h
}

// stop returns the longest time that a beat was late.
func (h *heart) stop() time.Duration {
	close(h.end)
	<-h.ended
	return h.gap
}
