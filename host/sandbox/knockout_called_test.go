package sandbox_test

import (
	"context"

	"errors"
	"fmt"

	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	corpus "github.com/carrelhost/carrel/host/sandbox/hostile"
)

const (
	// callTime is how long an attack may take, and callUses what it may
	// compute beyond that. Computed time is not longer on a busy machine.
	callTime = 150 * time.Millisecond
	callUses = callTime + 50*time.Millisecond

	heldHostCalls   = 1000
	heldResultBytes = 16 << 20
	heldOutputBytes = 1 << 20
	heldLogBytes    = 64 << 10
	heldSlots       = 3
)

// crowd are the shares of an attack's calls.
var crowd = [2]string{"mallory", "oscar"}

// called is how an attack is judged.
type called struct {
	cfg    sandbox.Config
	host   sandbox.Host
	ends   []abi.Code // instead of the attack's
	times  int        // one call after the other; 0 is once
	weighs bool       // what it holds while it runs is looked at
	alone  bool       // all calls are of one share
	beside bool       // another's call must come to its end while it runs
}

// ofAttack are the ways to judge an attack.
func ofAttack() map[string]func(corpus.Attack) error {
	judge := func(c called) func(corpus.Attack) error { return c.judge }
	small := sandbox.Config{HostCalls: heldHostCalls, Slots: heldSlots}
	dear, alone, mute := small, small, small
	dear.Fuel = 2_000_000
	alone.Slots = 1
	mute.Random = strings.NewReader("")
	return map[string]func(corpus.Attack) error{
		"called":                         judge(called{cfg: small}),
		"called twice":                   judge(called{cfg: small, times: 2}),
		"called and weighed":             judge(called{cfg: small, weighs: true}),
		"called with little fuel":        judge(called{cfg: dear, ends: []abi.Code{abi.FuelExhausted}}),
		"called without randomness":      judge(called{cfg: mute, ends: []abi.Code{abi.GuestFailed}}),
		"called without a host":          judge(called{cfg: small, host: noHost{}}),
		"called with a host that panics": judge(called{cfg: small, host: panics{}, ends: []abi.Code{abi.Internal}}),
		"called by one":                  judge(called{cfg: small, alone: true}),
		"called beside another":          judge(called{cfg: alone, beside: true}),
		"visited":                        visited,
	}
}

// noHost stands for none.
type noHost struct{ sandbox.Host }

type panics struct{ sandbox.Host }

func (panics) Do(context.Context, abi.Op, []byte) ([]byte, *sandbox.Refusal) { panic("a fault") }

// watchful is a host that sees to what it is promised.
type watchful struct {
	mu      sync.Mutex
	calls   int
	results int // bytes, of what nobody closes
	fault   error
}

func (h *watchful) Knows(feature string) bool {
	if len(feature) > abi.MaxOpBytes {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.fault = fmt.Errorf("the host was asked for a feature of %d bytes", len(feature))
	}
	return false
}

func (h *watchful) Do(_ context.Context, op abi.Op, request []byte) ([]byte, *sandbox.Refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	switch {
	case h.calls > heldHostCalls:
		h.fault = fmt.Errorf("the host was called %d times", h.calls)
	case len(op) == 0 || len(op) > abi.MaxOpBytes || strings.ContainsRune(string(op), '\ufffd'):
		h.fault = fmt.Errorf("the host was asked for %q", op)
	case len(request) > abi.MaxRequestBytes:
		h.fault = fmt.Errorf("the host was sent %d bytes", len(request))
	case h.results >= heldResultBytes && op == abi.OpContext:
		h.fault = errors.New("the host was called for a result that is not kept")
	}
	var result []byte
	switch op {
	case abi.OpContext: // they fill the room exactly
		result = make([]byte, heldResultBytes/256)
	case abi.OpMemoryList:
		result = make([]byte, 60_000)
	default:
		return nil, &sandbox.Refusal{Errno: abi.ENOENT, Code: "not_found"}
	}
	h.results += len(result)
	return result, nil
}

// judge runs an attack and says what of it was not held.
func (c called) judge(a corpus.Attack) (err error) {
	ctx := context.Background()
	s, err := sandbox.New(ctx, c.cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p, err := s.Open(ctx, a.Plugin(), sandbox.Setup{})
	if err != nil {
		return err
	}
	fine := func(share string) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := p.Call(ctx, sandbox.Call{Export: corpus.Fine, Share: share, Input: []byte("{}")})
		return err
	}
	if err := fine("another"); err != nil {
		return fmt.Errorf("the call before: %w", err)
	}
	h := &watchful{}
	call := sandbox.Call{Export: a.Method, Input: []byte("null"), Host: h}
	switch c.host.(type) {
	case noHost:
		call.Host = nil
	case panics:
		call.Host = c.host
	}
	faults := make([]error, a.Calls, a.Calls+2)
	start := used()
	var all sync.WaitGroup
	for n := range a.Calls {
		call := call
		call.Share = crowd[0]
		if !c.alone {
			call.Share = crowd[n%len(crowd)]
		}
		all.Go(func() {
			for range max(1, c.times) {
				faults[n] = errors.Join(faults[n], c.one(p, a, call))
			}
		})
	}
	watched := make(chan error, 1)
	done := make(chan struct{})
	go func() { watched <- c.watch(s, fine, done) }()
	all.Wait()
	close(done)
	if err := errors.Join(append(faults, h.fault, <-watched)...); err != nil {
		return err
	}
	if took := used() - start; took > callUses && a.Calls == 1 && !c.weighs {
		return fmt.Errorf("it computed for %v of %v", took, callTime)
	}
	for _, share := range crowd {
		if held, waiting := sandbox.OnSlots(s, share); held != 0 || waiting != 0 {
			return fmt.Errorf("it still has %d slots, and waits for %d", held, waiting)
		}
	}
	if err := fine(crowd[0]); err != nil {
		return fmt.Errorf("the call after: %w", err)
	}
	return nil
}

// one makes one call of the attack.
func (c called) one(p *sandbox.Plugin, a corpus.Attack, call sandbox.Call) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	r, err := p.Call(ctx, call)
	ends := a.Ends
	if c.ends != nil {
		ends = c.ends
	}
	code, limit := carrel.CodeOf(err), ""
	if e, ok := errors.AsType[*carrel.Error](err); ok {
		limit = e.Limit
	}
	logged := 0
	for _, l := range r.Log {
		logged += len(l.Text)
	}
	switch {
	case !slices.Contains(ends, code):
		return fmt.Errorf("it ended with %v: %w", code, err)
	case c.ends == nil && code == abi.GuestTrap && limit != a.Limit:
		return fmt.Errorf("it ended with the limit %q: %w", limit, err)
	case len(r.Output) > heldOutputBytes:
		return fmt.Errorf("its output has %d bytes", len(r.Output))
	case logged > heldLogBytes+16<<10:
		return fmt.Errorf("its log has %d bytes", logged)
	case len(r.Log) > heldLogBytes/16+2:
		return fmt.Errorf("its log has %d lines", len(r.Log))
	case logged > heldLogBytes/2 && !strings.Contains(r.Log[len(r.Log)-1].Text, "were dropped"):
		return errors.New("its log does not say that it was cut")
	}
	return nil
}

// watch looks at what goes on until done.
func (c called) watch(s *sandbox.Sandbox, fine func(string) error, done <-chan struct{}) error {
	for start := time.Now(); ; {
		first, _ := sandbox.OnSlots(s, crowd[0])
		second, _ := sandbox.OnSlots(s, crowd[1])
		switch held := first + second; {
		case max(first, second) > max(c.cfg.Slots-1, 1), held > c.cfg.Slots:
			return fmt.Errorf("it has %d and %d slots of %d", first, second, c.cfg.Slots)
		case held > 0 && c.beside:
			err := fine("another")
			select {
			case <-done:
				return errors.New("another's call did not end before it")
			default:
				return err
			}
		}
		select {
		case <-done:
			return nil
		case <-time.After(callTime / 30):
		}
		if c.weighs && time.Since(start) > callTime/2 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			if m.HeapAlloc > 64<<20 {
				return fmt.Errorf("it holds %d MiB of the host's memory", m.HeapAlloc>>20)
			}
		}
	}
}
