package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

const (
	tenant = carrel.TenantID("bench")
	plugin = carrel.PluginName("chat")
	window = 20 // messages that a turn reads
	// fresh is how many turns a worker stores under one memory id before it
	// goes on to the next.
	fresh = 50
)

var text = strings.Repeat("a sentence of a chat. ", 10)

func turn() []carrel.Message {
	return []carrel.Message{{Role: carrel.RoleUser, Content: text}, {Role: carrel.RoleAssistant, Content: text}}
}

// lasting is a scope that survives: an HTTP session's.
func lasting(ctx context.Context, s store.Store, id carrel.SessionID) (store.ScopeInstance, error) {
	err := s.CreateSession(ctx, store.Session{
		ID: id, Tenant: tenant, Owner: store.Toucher{Key: "key"}, IdleTTL: 24 * time.Hour, MaxTTL: 24 * time.Hour, CreatedAt: time.Now(),
	}, 1_000_000)
	return store.ScopeInstance{ID: carrel.ScopeID(id), Tenant: tenant, Scope: carrel.ScopeSession}, err
}

func touchOf(in store.ScopeInstance, id string) store.Touch {
	k := carrel.MemoryKey{Tenant: tenant, Namespace: carrel.Namespace(plugin), Kind: carrel.KindExplicit, ID: carrel.MemoryID(id)}
	hash := sha256.Sum256([]byte(id))
	return store.Touch{
		Scope: in, Key: k, Handle: carrel.Handle(hash[:16]), Plugin: plugin, By: store.Toucher{Key: "key"}, At: time.Now(),
	}
}

// converse is one turn as a host makes it: a durable touch, one read of the
// window, the commit.
func converse(ctx context.Context, s store.Store, in store.ScopeInstance, id string) error {
	t := touchOf(in, id)
	if _, err := s.Touch(ctx, t); err != nil {
		return err
	}
	return answer(ctx, s, t)
}

func answer(ctx context.Context, s store.Store, t store.Touch) error {
	v, err := s.View(ctx, t.Key, store.ViewLimit{Messages: window})
	if err != nil {
		return err
	}
	_, err = s.Commit(ctx, store.Commit{
		Touch: t, Generation: v.Generation, Turns: []store.NewTurn{{Messages: turn()}}, At: time.Now(),
	})
	return err
}

// open opens a new store with the tenant in it.
func (b *bench) open(ctx context.Context, name string) (*sqlite.Store, error) {
	path, err := b.path(name)
	if err != nil {
		return nil, err
	}
	s, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return nil, err
	}
	return s, s.CreateTenant(ctx, store.Tenant{ID: tenant, CreatedAt: time.Now()})
}

func idOf(worker, n int) string { return fmt.Sprintf("%d-%d", worker, n/fresh) }

// turns measures acknowledged, durable turns.
func (b *bench) turns(ctx context.Context) error {
	for _, workers := range []int{1, 64} {
		s, err := b.open(ctx, "turns")
		if err != nil {
			return err
		}
		in, err := lasting(ctx, s, "ses")
		if err != nil {
			return err
		}
		whole, err := drive(ctx, workers, b.time, func(ctx context.Context, w, n int) error {
			return converse(ctx, s, in, idOf(w, n))
		})
		if err != nil {
			return err
		}
		commits, err := drive(ctx, workers, b.time, func(ctx context.Context, w, n int) error {
			return answer(ctx, s, touchOf(in, "commit-"+idOf(w, n)))
		})
		if err != nil {
			return err
		}
		if err := s.Close(); err != nil {
			return err
		}
		peers := map[string]load{}
		for _, p := range []struct {
			name string
			make func(context.Context, *bench) (peer, error)
		}{{"pool", newPool}, {"list", newList}} {
			made, err := p.make(ctx, b)
			if err != nil {
				return err
			}
			if peers[p.name], err = drive(ctx, workers, b.time, func(ctx context.Context, w, n int) error {
				return made.append(ctx, idOf(w, n))
			}); err != nil {
				return err
			}
			if err := made.close(); err != nil {
				return err
			}
		}
		goal := ""
		if workers == 64 {
			goal = "≥ 5,000/s, p99 < 25 ms"
		}
		for _, name := range []string{"pool", "list"} {
			b.add(fmt.Sprintf("read and commit a turn, %d writers", workers), commits.String(), name+": "+peers[name].String(),
				fmt.Sprintf("%.1f × as many", commits.perSecond()/peers[name].perSecond()), goal)
		}
		b.add(fmt.Sprintf("the same with the touch before it, which is a second durable write, %d writers", workers), whole.String(), "", "", "")
	}
	return nil
}
