package scope

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
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
			why := carrel.ReasonScopeClosed
			if o.Scope == carrel.ScopeApplication {
				why = carrel.ReasonPluginRemoved
			}
			evicted, err := r.cfg.Store.CloseScope(ctx, o.ID, why, r.cfg.Now())
			if err != nil {
				return done, fmt.Errorf("close orphaned scope %s: %w", o.ID, err)
			}
			done.Scopes++
			done.Histories += len(evicted)
		}
	}
	return done, r.openApplications(ctx)
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
// has passed, and tries again to close scopes whose eviction failed.
func (r *Registry) Run(ctx context.Context) {
	var loops sync.WaitGroup
	defer loops.Wait()
	loops.Go(func() { r.retryLoop(ctx) })
	tick := time.NewTicker(r.cfg.SweepEvery)
	defer tick.Stop()
	for {
		if err := r.sweep(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Log.Error("sessions not swept; it will be tried again", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
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

// retry closes what is pending and reports whether something is left.
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
	defer r.mu.Unlock()
	return len(r.pending) > 0
}

// Pending returns how many closed scopes still wait for their eviction.
func (r *Registry) Pending() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending)
}

// Shutdown does what the end of the process owes: it closes application
// scopes if so configured. Requests must have ended. Errors are the store's;
// the next Recover does what this could not.
func (r *Registry) Shutdown(ctx context.Context) error {
	if !r.cfg.CloseApplications {
		return nil
	}
	_, err := r.closeApplications(ctx)
	return err
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
			evicted, err := r.cfg.Store.CloseScope(ctx, s.ID, carrel.ReasonScopeClosed, r.cfg.Now())
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
