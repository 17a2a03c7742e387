package scope

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// Recovered counts what Recover found.
type Recovered struct {
	Scopes    int // scope instances of a process that is gone, closed now
	Histories int // evicted with them
}

// Recover closes what a dead process left open, request scopes and
// application scopes whose plugin is gone, and opens the application scope of
// every active plugin that lacks one. It must succeed before anything is
// served. Its errors are the store's.
func (r *Registry) Recover(ctx context.Context) (Recovered, error) {
	var done Recovered
	if r.cfg.CloseApplications { // a process that was killed did not get to it
		n, err := r.closeApplications(ctx)
		if err != nil {
			return done, err
		}
		done = n
	}
	for {
		orphans, err := r.cfg.Store.Orphans(ctx, r.cfg.Node, listPage)
		if err != nil {
			return done, fmt.Errorf("list orphaned scopes: %w", err)
		}
		if len(orphans) == 0 {
			break
		}
		for _, o := range orphans {
			evicted, err := r.evict(ctx, o.ID, orphaned(o))
			if err != nil {
				return done, fmt.Errorf("close orphaned scope %s: %w", o.ID, err)
			}
			done.Scopes++
			done.Histories += len(evicted)
		}
	}
	return done, r.openApplications(ctx)
}

// orphaned returns why a scope closes that nobody else will close.
func orphaned(o store.ScopeInstance) carrel.EvictionReason {
	if o.Scope == carrel.ScopeApplication {
		return carrel.ReasonPluginRemoved
	}
	return carrel.ReasonScopeClosed
}

// openApplications gives every active plugin an application scope.
func (r *Registry) openApplications(ctx context.Context) error {
	var last store.Plugin
	for {
		plugins, err := r.cfg.Store.ActivePlugins(ctx, last.Tenant, last.Name, listPage)
		if err != nil {
			return fmt.Errorf("list active plugins: %w", err)
		}
		for _, p := range plugins {
			if p.Scope != "" {
				continue
			}
			if err := r.cfg.Store.OpenApplication(ctx, r.NewApplication(p.Tenant, p.Name)); err != nil {
				return fmt.Errorf("open application scope of %s: %w", p.Name, err)
			}
		}
		if len(plugins) < listPage {
			return nil
		}
		last = plugins[len(plugins)-1]
	}
}

// Run does, until ctx ends, what time demands: it closes sessions whose time
// has passed, scopes that nobody will close, histories that have expired and
// records that are old, tries again to close scopes whose eviction failed, and
// scrubs.
func (r *Registry) Run(ctx context.Context) {
	var loops sync.WaitGroup
	defer loops.Wait()
	loops.Go(func() { r.retryLoop(ctx) })
	loops.Go(func() { r.scrubLoop(ctx) })
	r.sweepAll(ctx)
}

// orphanSweep closes scopes that nobody will close.
type orphanSweep struct {
	r    *Registry
	seen map[carrel.ScopeID]struct{} // that were orphans at the sweep before, at most a page
}

// sweep closes scopes that are orphans and were so at the sweep before. A
// scope that a deactivation has just taken from its plugin is one until that
// very request closes it and reports what ended; only where it was cut short
// does the scope stay one.
func (s *orphanSweep) sweep(ctx context.Context) error {
	for {
		orphans, err := s.r.cfg.Store.Orphans(ctx, s.r.cfg.Node, listPage)
		if err != nil {
			return fmt.Errorf("list orphaned scopes: %w", err)
		}
		now, closed := map[carrel.ScopeID]struct{}{}, 0
		for _, o := range orphans {
			if _, again := s.seen[o.ID]; !again {
				now[o.ID] = struct{}{}
				continue
			}
			evicted, err := s.r.evict(ctx, o.ID, orphaned(o))
			if err != nil {
				return fmt.Errorf("close orphaned scope %s: %w", o.ID, err)
			}
			closed++
			s.r.cfg.Log.Warn("closed a scope that nobody closed", "scope", o.ID, "kind", o.Scope, "plugin", o.Plugin, "histories", len(evicted))
		}
		if closed == 0 {
			s.seen = now
			return nil
		}
		// They may have hidden others from the page.
	}
}

func (r *Registry) retryLoop(ctx context.Context) {
	tick := time.NewTicker(r.cfg.RetryEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		for r.retry(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// retry closes what is pending, then what had no room there, and reports
// whether something is left.
func (r *Registry) retry(ctx context.Context) (left bool) {
	r.mu.Lock()
	todo := maps.Clone(r.pending)
	r.mu.Unlock()
	for id, why := range todo {
		if ctx.Err() != nil {
			return true
		}
		if closed := r.close(ctx, id, why); closed.Pending {
			return true // the store is not well; the others can wait
		}
		r.mu.Lock()
		delete(r.pending, id)
		r.mu.Unlock()
	}
	r.mu.Lock()
	spilled := r.spilled
	r.spilled = false // now, so that what spills from here on is not lost
	r.mu.Unlock()
	if spilled {
		again, err := r.closeLeft(ctx)
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Error("request scopes not swept; it will be tried again", "err", err)
		}
		if again || err != nil {
			r.mu.Lock()
			r.spilled = true
			r.mu.Unlock()
		}
	}
	r.mu.Lock()
	left = len(r.pending) > 0 || r.spilled
	lost := r.lost && !left
	if lost {
		r.lost = false
	}
	r.mu.Unlock()
	if lost {
		r.tellLost()
	}
	return left
}

// closeLeft closes every request scope of this process run that the store has
// open and no request has, and reports whether to do so again: until a pass,
// a while after the one before, finds nothing. A write whose caller gave up
// may open a scope behind the back of one.
func (r *Registry) closeLeft(ctx context.Context) (again bool, err error) {
	var last carrel.ScopeID
	for {
		open, err := r.cfg.Store.ListScopes(ctx, carrel.ScopeRequest, last, listPage)
		if err != nil {
			return true, fmt.Errorf("list request scopes: %w", err)
		}
		for _, s := range open {
			// Asked after the listing: a request is in flight before it is stored.
			if s.Node != r.cfg.Node || r.inFlight(s.ID) {
				continue
			}
			if _, err := r.evict(ctx, s.ID, carrel.ReasonScopeClosed); err != nil {
				return true, fmt.Errorf("close request scope %s: %w", s.ID, err)
			}
			again = true
		}
		if len(open) < listPage {
			return again, nil
		}
		last = open[len(open)-1].ID
	}
}

func (r *Registry) inFlight(id carrel.ScopeID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.requests[id]
	return ok
}

// Pending returns how many closed scopes are known to wait for their
// eviction. There may be more than that once it has reached its bound.
func (r *Registry) Pending() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending)
}

// Shutdown does what the end of the process owes: it evicts what failed to be
// before and what has expired, closes application scopes if so configured, and
// then scrubs, so that no byte of what was evicted is left. Requests and Run
// must have ended. The scrub takes the longer the more is stored; before it,
// each step gives up at the first write that fails. Errors are the store's;
// the next Recover and Run do what this could not.
func (r *Registry) Shutdown(ctx context.Context) error {
	var errs []error
	left := r.retry(ctx)
	if left { // a pass that finds something leaves it to the next to find nothing
		left = r.retry(ctx)
	}
	if left {
		errs = append(errs, carrel.Fail("scope.Shutdown", abi.Overloaded,
			"the store does not let every scope be closed; the next start closes them"))
	}
	errs = append(errs, r.sweep(ctx), r.sweepHistories(ctx))
	if r.cfg.CloseApplications {
		_, err := r.closeApplications(ctx)
		errs = append(errs, err)
	}
	_, err := r.Scrub(ctx)
	return errors.Join(append(errs, err)...)
}

func (r *Registry) closeApplications(ctx context.Context) (Recovered, error) {
	var done Recovered
	var last carrel.ScopeID
	for {
		open, err := r.cfg.Store.ListScopes(ctx, carrel.ScopeApplication, last, listPage)
		if err != nil {
			return done, fmt.Errorf("list application scopes: %w", err)
		}
		for _, s := range open {
			evicted, err := r.evict(ctx, s.ID, carrel.ReasonScopeClosed)
			if err != nil {
				return done, fmt.Errorf("close application scope of %s: %w", s.Plugin, err)
			}
			done.Scopes++
			done.Histories += len(evicted)
		}
		if len(open) < listPage {
			return done, nil
		}
		last = open[len(open)-1].ID
	}
}
