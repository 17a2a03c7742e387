package invoke

import (
	"context"
	"fmt"
	"sort"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/store"
)

// byHand is the frame of work on a plugin's histories that is no invocation of
// a method: it counts as an application-scoped service's. Whoever touches
// something gives the tree a scope.
func (v *Invoker) byHand(running plugins.Running, who carrel.Caller, p carrel.PluginName, r carrel.RequestID) *frame {
	t := &tree{seq: v.seq.Add(1), call: Call{Request: r, Caller: who}}
	return &frame{
		tree: t, depth: 1, running: running, address: carrel.Address{Plugin: p},
		method: &plugins.Method{Scope: carrel.ScopeApplication},
	}
}

// Window returns what the next call of a chat method of the plugin's active
// version would send of a history, before that call's own user message, which
// has room: the system message, if there is one, and the turns that fit. The
// system message is the method's own if its template has no params, else the
// stored one. What the history does not hold yet, which is the method's own
// system message where it would change the stored one, and its seeds where
// there are no turns, has seq 0, turn 0 and no time.
//
// Errors: not_found for a method that does not exist, for a history that has
// ended and for one that no method of the plugin can reach; bad_request for a
// handler; context_too_large if the system message leaves no room.
func (v *Invoker) Window(ctx context.Context, who carrel.Caller, h store.History, p carrel.PluginName, s carrel.ServiceName, m carrel.MethodName) ([]store.StoredMessage, error) {
	const op = "invoke.Window"
	if h.Key.Tenant != who.Tenant {
		return nil, carrel.FailNotFound(op)
	}
	running, err := v.active(ctx, op, who.Tenant, p)
	if err != nil {
		return nil, err
	}
	defer running.Release()
	method, ok := running.Method(s, m)
	if !ok {
		return nil, carrel.Fail(op, abi.NotFound, fmt.Sprintf("the active version of %s has no method %s.%s", p, s, m))
	}
	if method.Spec.Kind != abi.KindChat {
		return nil, carrel.Fail(op, abi.BadRequest, fmt.Sprintf(
			"%s.%s is a handler, which sends no history to a model by itself; name a chat method", s, m))
	}
	shared, err := v.shared(ctx, v.byHand(running, who, p, ""))
	if err != nil {
		return nil, err
	}
	if h.Key.Namespace != carrel.Namespace(p) && (shared == "" || h.Key.Namespace != shared) {
		return nil, carrel.FailNotFound(op)
	}
	past, err := v.past(ctx, method.Spec, h.Key)
	if err != nil {
		return nil, err
	}
	if past.view.Generation != h.Generation {
		return nil, carrel.FailNotFound(op)
	}
	own := ""
	if method.System != nil && len(method.System.Names()) == 0 {
		if own, err = method.System.Render(nil); err != nil {
			return nil, fmt.Errorf("render system message: %w", err)
		}
	}
	system, change := memory.System(past.view.System, own)
	sent, err := past.window.Send(system, past.turns, []carrel.Message{{Role: carrel.RoleUser}})
	if err != nil {
		return nil, err
	}
	return v.placed(ctx, past, sent[:len(sent)-1], change != nil)
}

// active returns what runs of a plugin of the caller's own tenant, and says so
// if nothing does.
func (v *Invoker) active(ctx context.Context, op string, t carrel.TenantID, p carrel.PluginName) (plugins.Running, error) {
	running, err := v.cfg.Catalog.Running(ctx, t, p, carrel.VersionRef{})
	if carrel.CodeOf(err) == abi.NotFound {
		return running, carrel.Fail(op, abi.NotFound, fmt.Sprintf("there is no active plugin %s; activate it first", p))
	}
	return running, err
}

// placed returns the messages that are sent of a history with their places in
// it. changed says that the system message is not the stored one.
func (v *Invoker) placed(ctx context.Context, p past, sent []carrel.Message, changed bool) ([]store.StoredMessage, error) {
	out := make([]store.StoredMessage, 0, len(sent))
	for len(sent) > 0 && (sent[0].Role == carrel.RoleSystem || p.view.Stored == 0) {
		out = append(out, store.StoredMessage{Message: sent[0]})
		sent = sent[1:]
	}
	if len(out) > 0 && out[0].Role == carrel.RoleSystem && !changed {
		first, err := v.cfg.Histories.Messages(ctx, p.key, p.view.Generation, -1, store.MessageLimit{Messages: 1})
		if err != nil {
			return nil, fmt.Errorf("read system message: %w", err)
		}
		if stored := first.Messages; len(stored) > 0 && stored[0].Seq == 0 {
			out[0].At = stored[0].At
		}
	}
	if len(sent) == 0 {
		return out, nil
	}
	first, left := len(p.turns), len(sent)
	for left > 0 {
		first--
		left -= len(p.turns[first].Messages)
	}
	after, err := v.before(ctx, p, p.turns[first].N)
	if err != nil {
		return nil, err
	}
	page, err := v.cfg.Histories.Messages(ctx, p.key, p.view.Generation, after, store.MessageLimit{Messages: len(sent)})
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	for _, m := range page.Messages { // a turn that was committed since the view is none of it
		if m.Turn <= p.view.LastTurn {
			out = append(out, m)
		}
	}
	return out, nil
}

// before returns a seq that all messages of the given turn, and of newer ones,
// are above, and none of older ones. It searches, for a history that lost
// turns counts its messages with gaps, and the window of a long one must not
// cost reading all of it.
func (v *Invoker) before(ctx context.Context, p past, turn int64) (int64, error) {
	var failed error
	newer := func(seq int) bool { // the next message is of that turn or a newer one
		if failed != nil {
			return true
		}
		next, err := v.cfg.Histories.Messages(ctx, p.key, p.view.Generation, int64(seq), store.MessageLimit{Messages: 1})
		if err != nil {
			failed = fmt.Errorf("find turn: %w", err)
		}
		return err != nil || len(next.Messages) == 0 || next.Messages[0].Turn >= turn
	}
	most := int(p.view.Stored)
	for !newer(most) {
		most *= 2
	}
	return int64(sort.Search(most, newer)), failed
}
