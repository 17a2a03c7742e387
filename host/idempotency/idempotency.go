// Package idempotency makes calls safe to repeat: of all calls with one
// idempotency key one runs, and the others get its answer.
//
// What identifies a call, and what else it says, is stored only as HMACs under
// the host's secret. Its answer is encrypted with a key that is derived from
// both and from the idempotency key itself, so that the store's content alone
// tells nobody what was asked or answered.
package idempotency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/carrelhost/carrel/store"
)

// Kept is how long an answer is kept, and how long a claim that was never
// answered stands in the way.
const Kept = 24 * time.Hour

const (
	sweepEvery = 30 * time.Second
	sweepPage  = 1000 // claims that one change forgets
	// askEvery is how often a call that another node works on is looked for.
	askEvery = 200 * time.Millisecond
)

// Config configures a Keeper. Fields without a default are required.
type Config struct {
	Store   store.Idempotency
	Secret  [32]byte // the host's
	Node    string   // this process run
	Most    store.ClaimLimits
	Timeout time.Duration // of one write, which nothing else cuts short
	Log     *slog.Logger
	Now     func() time.Time // nil = time.Now
	// Pass is where a write waits, before its Timeout begins, while the store
	// takes none and nothing is wrong; leave is called when it has ended. Its
	// error is the context's. nil = it never has to.
	Pass func(ctx context.Context) (passed context.Context, leave func(), err error)
}

func (c Config) validate() error {
	var errs []error
	if c.Store == nil || c.Log == nil || c.Node == "" {
		errs = append(errs, errors.New("idempotency: Config needs Store, Node and Log"))
	}
	if c.Most.Claims <= 0 || c.Most.Bytes <= 0 || c.Timeout <= 0 {
		errs = append(errs, errors.New("idempotency: Config.Most and Timeout must be positive"))
	}
	return errors.Join(errs...)
}

// Keeper knows which calls were answered and which are being worked on. It is
// safe for concurrent use.
type Keeper struct {
	cfg Config

	stopped chan struct{}  // closed when Run has ended
	late    sync.WaitGroup // releases in the background

	mu        sync.Mutex // guards what follows, and what the places hold
	places    map[[32]byte]*place
	lastClaim time.Time
	releases  int // in the background
}

// New returns a keeper.
func New(cfg Config) (*Keeper, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Keeper{cfg: cfg, places: map[[32]byte]*place{}, stopped: make(chan struct{})}, nil
}

// Recover ends the claims of processes that are gone: their keys are free
// again, but for those of handlers, whose effects nobody can take back. It
// must succeed before anything is served. Its errors are the store's.
func (k *Keeper) Recover(ctx context.Context) error {
	if _, err := k.cfg.Store.ReleaseClaims(ctx, k.cfg.Node); err != nil {
		return fmt.Errorf("release claims: %w", err)
	}
	return nil
}

// Run forgets what has been kept for long enough, until ctx ends. Then it
// waits for the last try, each, of releases in the background. It runs once.
func (k *Keeper) Run(ctx context.Context) {
	defer k.stop()
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := k.sweep(ctx); err != nil && ctx.Err() == nil {
				k.cfg.Log.Error("idempotent answers not forgotten", "err", err)
			}
		}
	}
}

func (k *Keeper) stop() {
	k.mu.Lock()
	close(k.stopped) // none begins any more
	k.mu.Unlock()
	k.late.Wait()
}

func (k *Keeper) sweep(ctx context.Context) error {
	for {
		n, err := k.cfg.Store.ForgetClaims(ctx, k.cfg.Node, k.cutoff(), sweepPage)
		if err != nil || n < sweepPage {
			return err
		}
	}
}

func (k *Keeper) cutoff() time.Time { return k.cfg.Now().Add(-Kept) }

// writing is the context of a write whose outcome is the store's alone: a
// client that goes away must not leave anybody in doubt about it.
func (k *Keeper) writing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), k.cfg.Timeout)
}

// admit waits until the store takes writes, or ctx ends. Who writes also if ctx
// has ended does so then all the same, and may run into the time limit.
func (k *Keeper) admit(ctx context.Context) (passed context.Context, leave func(), err error) {
	if k.cfg.Pass == nil {
		return ctx, func() {}, nil
	}
	passed, leave, err = k.cfg.Pass(ctx)
	if err != nil {
		return ctx, func() {}, err
	}
	return passed, leave, nil
}
