package invoke

import (
	"context"
	"fmt"
	"strconv"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/imports"
	"github.com/carrelhost/carrel/host/memory"
	"github.com/carrelhost/carrel/store"
)

// shared returns the namespace of a plugin's explicit memory ids, if it is one
// that its manifest asks for and its tenant's owner grants, else "". All
// invocations under one request get the same answer: a grant that changes in
// between never splits a request over two namespaces.
func (v *Invoker) shared(ctx context.Context, f *frame) (carrel.Namespace, error) {
	asked := f.running.Manifest.MemoryNamespace
	if asked == "" {
		return "", nil
	}
	t, name := f.tree, f.address.Plugin
	t.mu.Lock()
	granted, known := t.granted[name]
	t.mu.Unlock()
	if !known {
		grant, err := v.cfg.Grants.Grant(ctx, t.call.Caller.Tenant, name)
		if err != nil {
			return "", fmt.Errorf("read grant: %w", err)
		}
		granted = grant.Namespace
		t.mu.Lock()
		if t.granted == nil {
			t.granted = map[carrel.PluginName]carrel.Namespace{}
		}
		t.granted[name] = granted
		t.mu.Unlock()
	}
	if string(granted) != asked {
		return "", nil
	}
	return memory.Shared(granted), nil
}

// key returns the memory key that a guest names. Only those of its own
// namespace exist, and of the shared one that it is granted.
func (g *guest) key(ctx context.Context, m imports.Memory) (carrel.MemoryKey, error) {
	own := carrel.Namespace(g.f.address.Plugin)
	tenant := g.f.tree.call.Caller.Tenant
	shared, err := g.v.shared(ctx, g.f)
	if err != nil {
		return carrel.MemoryKey{}, err
	}
	if m.Key == "" {
		k := carrel.MemoryKey{Tenant: tenant, Namespace: own, Kind: carrel.KindExplicit}
		if shared != "" {
			k.Namespace = shared
		}
		k.ID, err = carrel.ParseMemoryID(m.MemoryID)
		return k, err
	}
	h, err := carrel.ParseHandle(m.Key)
	if err != nil {
		return carrel.MemoryKey{}, err
	}
	g.f.tree.mu.Lock()
	k, known := g.f.tree.derived[h]
	g.f.tree.mu.Unlock()
	if !known {
		found, err := g.v.cfg.Histories.History(ctx, tenant, h, nil, store.Cutoff{})
		if err != nil {
			return carrel.MemoryKey{}, err
		}
		k = found.Key
	}
	if k.Namespace != own && (shared == "" || k.Namespace != shared) {
		return carrel.MemoryKey{}, carrel.FailNotFound("invoke.guest")
	}
	return k, nil
}

// What one page of messages may hold: read takes so many at a time, so that a
// history of large messages is never in memory as a whole.
const (
	readMessages = 32
	pageBytes    = 2 << 20
)

// Messages implements imports.Invoker. Reading touches nothing; a history
// that is not there has no messages.
func (g *guest) Messages(ctx context.Context, of imports.Memory, after int64, limit int) (page []imports.Message, more bool, err error) {
	page = []imports.Message{}
	k, err := g.key(ctx, of)
	if err != nil {
		return nil, false, err
	}
	g.f.tree.scope.Reads(k)
	view, err := g.v.cfg.Histories.View(ctx, k, store.ViewLimit{Messages: 0})
	if err != nil || view.Generation == 0 {
		return page, false, err
	}
	size := int64(0)
	for {
		rows, err := g.v.cfg.Histories.Messages(ctx, k, view.Generation, after,
			store.MessageLimit{Messages: min(readMessages, limit+1-len(page)), Bytes: pageBytes})
		if carrel.CodeOf(err) == abi.NotFound { // it ended in between
			return page, false, nil
		}
		if err != nil {
			return nil, false, fmt.Errorf("read messages: %w", err)
		}
		for _, m := range rows.Messages {
			if m.Seq > 0 { // the system message never fills a page by itself
				size += m.Size()
			}
			if len(page) == limit || after > 0 && len(page) > 0 && size > pageBytes {
				return page, true, nil
			}
			page, after = append(page, messageOf(m)), m.Seq
		}
		if !rows.More {
			return page, false, nil
		}
	}
}

func messageOf(m store.StoredMessage) imports.Message {
	return imports.Message{
		Seq: m.Seq, Turn: m.Turn, Role: string(m.Role), Content: m.Content,
		ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, At: m.At, Origin: string(m.Origin),
	}
}

// Append implements imports.Invoker: it takes the turn's lock, and touches for
// the scope of the service that the guest runs in. In a shared namespace the
// turn is marked, so that the other plugins can tell it from a model's.
func (g *guest) Append(ctx context.Context, to imports.Memory, turn []carrel.Message) (imports.Appended, error) {
	k, err := g.key(ctx, to)
	if err != nil {
		return imports.Appended{}, err
	}
	if g.f.method.Scope == carrel.ScopeApplication && !g.f.running.Manifest.AllowDefaultIDLeak &&
		(k.Kind == carrel.KindRequest || k.Kind == carrel.KindSession) {
		return imports.Appended{}, carrel.Fail("invoke.guest", abi.DefaultIDLeak, fmt.Sprintf(
			"the memory id is the %s's, and the service %s is application-scoped: what it appends there would outlive the id and never end. "+
				`Append from a service of a shorter scope, or accept the leak with "allowDefaultIdLeak": true in the manifest`,
			k.Kind, g.f.address.Service))
	}
	release, err := g.v.turns.acquire(ctx, k, g.f, false, nil)
	if err != nil {
		return imports.Appended{}, err
	}
	defer release()
	if err := g.f.tree.scope.Touch(ctx, g.f.use(k)); err != nil {
		return imports.Appended{}, fmt.Errorf("touch: %w", err)
	}
	view, err := g.v.cfg.Histories.View(ctx, k, store.ViewLimit{Messages: 0})
	if err != nil {
		return imports.Appended{}, fmt.Errorf("read history: %w", err)
	}
	added := store.NewTurn{Messages: turn}
	if k.Namespace != carrel.Namespace(g.f.address.Plugin) {
		added.Origin = carrel.OriginPlugin
	}
	done, err := g.v.commit(ctx, g.f, k, store.Commit{Generation: view.Generation, Turns: []store.NewTurn{added}})
	if err != nil {
		return imports.Appended{}, err
	}
	return imports.Appended{
		Memory: imports.Memory{MemoryID: string(k.ID), Key: g.remember(k).String()}, Trimmed: done.Trimmed,
	}, nil
}

// Delete implements imports.Invoker: it takes the turn's lock, so that a guest
// does not end a turn that runs.
func (g *guest) Delete(ctx context.Context, m imports.Memory) (bool, error) {
	k, release, err := g.turn(ctx, m)
	if err != nil {
		return false, err
	}
	defer release()
	_, err = g.v.cfg.Scopes.Delete(ctx, k)
	return wasThere(err)
}

// turn takes the turn of a history that the guest names.
func (g *guest) turn(ctx context.Context, m imports.Memory) (k carrel.MemoryKey, release func(), err error) {
	if k, err = g.key(ctx, m); err != nil {
		return k, nil, err
	}
	release, err = g.v.turns.acquire(ctx, k, g.f, false, nil)
	return k, release, err
}

// wasThere tells a deletion that found nothing from one that failed.
func wasThere(err error) (bool, error) {
	if carrel.CodeOf(err) == abi.NotFound {
		return false, nil
	}
	return err == nil, err
}

// DeleteTurn implements imports.Invoker: it takes the turn's lock as Delete
// does. It touches nothing.
func (g *guest) DeleteTurn(ctx context.Context, m imports.Memory, turn int64) (bool, error) {
	k, release, err := g.turn(ctx, m)
	if err != nil {
		return false, err
	}
	defer release()
	view, err := g.v.cfg.Histories.View(ctx, k, store.ViewLimit{Messages: 0})
	if err != nil {
		return false, fmt.Errorf("read history: %w", err)
	}
	if view.Generation == 0 {
		return false, nil
	}
	err = g.v.cfg.Scopes.DeleteTurn(ctx, store.History{Key: k, Handle: g.v.cfg.Scopes.Handle(k), Generation: view.Generation}, turn)
	return wasThere(err)
}

// List implements imports.Invoker.
func (g *guest) List(ctx context.Context, prefix, after string, limit int) (page []imports.Listed, next string, err error) {
	shared, err := g.v.shared(ctx, g.f)
	if err != nil {
		return nil, "", err
	}
	f := store.HistoryFilter{
		Tenant: g.f.tree.call.Caller.Tenant, Namespaces: []carrel.Namespace{carrel.Namespace(g.f.address.Plugin)},
		Prefix: prefix, Limit: limit + 1,
	}
	if shared != "" {
		f.Namespaces = append(f.Namespaces, shared)
	}
	if after != "" {
		if f.After, err = strconv.ParseInt(after, 10, 64); err != nil {
			return nil, "", carrel.Fail("invoke.guest", abi.InvalidParams, "after is not what a list returned as next")
		}
	}
	rows, err := g.v.cfg.Histories.ListHistories(ctx, f)
	if err != nil {
		return nil, "", fmt.Errorf("list histories: %w", err)
	}
	page = make([]imports.Listed, 0, limit)
	for i, h := range rows {
		if i == limit {
			return page, strconv.FormatInt(rows[i-1].Generation, 10), nil
		}
		page = append(page, imports.Listed{
			MemoryID: string(h.Key.ID), Key: h.Handle.String(), Kind: string(h.Key.Kind), Messages: h.Messages, Bytes: h.Bytes,
		})
	}
	return page, "", nil
}
