package invoke

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
	"github.com/carrelhost/carrel/host/prompt"
	"github.com/carrelhost/carrel/store"
)

// maxImportedSystem bounds the system message of an imported history, as a
// call bounds it.
const maxImportedSystem = prompt.MaxRenderedBytes

// maxImportFaults bounds the faults that one import is told.
const maxImportFaults = 16

// Import is a history to be made by hand.
type Import struct {
	Request carrel.RequestID  // of the call that imports
	Caller  carrel.Caller     // an owner of the tenant
	Plugin  carrel.PluginName // must be active: its application scope holds the history
	Kind    carrel.KeyKind    // explicit, or plugin
	Owner   carrel.Owner      // of a header provider's id; "" = the caller's own
	ID      carrel.MemoryID
	System  string // "" = none
	Turns   []store.NewTurn
}

// Import makes a history, whole or not at all, and touches it for the
// plugin's application scope. It waits for the turn of its key. One that was
// touched only is filled. An explicit id is one of the shared namespace if the
// plugin is granted that.
//
// It puts words into an assistant's mouth that others will read, so whoever
// calls it lets the tenant's owners pass and nobody else; it does not look at
// the role again.
//
// Errors: invalid_params for turns that are not whole, with pointers such as
// /turns/0/messages/1, for other kinds of keys, and for a key that the plugin's
// provider, in the active version, can never yield; invalid_memory_id;
// limit_exceeded (messagesPerHistory, turnMessages, systemMessageBytes);
// history_conflict if the key has a history with messages; not_found if the
// plugin is not active; and those of Run that concern load.
func (v *Invoker) Import(ctx context.Context, in Import) (store.History, error) {
	const op = "invoke.Import"
	if err := in.check(v.cfg.Limits); err != nil {
		return store.History{}, err
	}
	ctx, leave, err := v.gate.enter(ctx, in.Caller.Tenant, v.cfg.Limits.Timeout, func() error {
		return carrel.FailLimit(op, abi.Timeout, "timeout", fmt.Sprintf("the import did not end within %v", v.cfg.Limits.Timeout))
	})
	if err != nil {
		return store.History{}, err
	}
	defer leave()
	h, err := v.doImport(ctx, in)
	if err != nil {
		return store.History{}, ended(ctx, err)
	}
	return h, nil
}

func (v *Invoker) doImport(ctx context.Context, in Import) (store.History, error) {
	running, err := v.active(ctx, "invoke.Import", in.Caller.Tenant, in.Plugin)
	if err != nil {
		return store.History{}, err
	}
	defer running.Release()
	f := v.byHand(running, in.Caller, in.Plugin, in.Request)
	f.tree.scope = v.cfg.Scopes.Begin(in.Caller.Tenant, in.Request)
	defer f.tree.end(ctx)
	k, err := in.key(running.Manifest.DefaultMemoryID)
	if err != nil {
		return store.History{}, err
	}
	if in.Kind == carrel.KindExplicit {
		shared, err := v.shared(ctx, f)
		if err != nil {
			return store.History{}, err
		}
		if shared != "" {
			k.Namespace = shared
		}
	}
	if f.tree.release, err = v.turns.acquire(ctx, k, f, false, nil); err != nil {
		return store.History{}, err
	}
	view, err := v.cfg.Histories.View(ctx, k, store.ViewLimit{})
	if err != nil {
		return store.History{}, fmt.Errorf("read history: %w", err)
	}
	if view.Stored > 0 || view.System != "" {
		return store.History{}, carrel.Fail("invoke.Import", abi.HistoryConflict,
			"this memory id has a history with messages already; delete that first, or import under another memory id")
	}
	began := v.cfg.Now()
	if view.Generation > 0 {
		before, err := v.cfg.Histories.History(ctx, k.Tenant, v.cfg.Scopes.Handle(k), nil, store.Cutoff{})
		switch {
		case err == nil:
			began = before.CreatedAt
		case carrel.CodeOf(err) != abi.NotFound: // if it has just ended, the commit will say so
			return store.History{}, fmt.Errorf("read history: %w", err)
		}
		// A commit touches only what it begins.
		if err := f.tree.scope.Touch(ctx, f.use(k)); err != nil {
			return store.History{}, fmt.Errorf("touch: %w", err)
		}
	}
	c := store.Commit{Generation: view.Generation, Turns: slices.Clone(in.Turns)}
	for i := range c.Turns {
		c.Turns[i].Origin = carrel.OriginImport
	}
	if in.System != "" {
		c.System = &in.System
	}
	done, err := v.commit(ctx, f, k, c)
	if err != nil {
		return store.History{}, err
	}
	// As lists have it, in the store's own times, if it can be read.
	now, err := v.cfg.Histories.History(ctx, k.Tenant, v.cfg.Scopes.Handle(k), nil, store.Cutoff{})
	if err == nil && now.Generation == done.Generation {
		return now, nil
	}
	return v.imported(in, k, done, began), nil
}

// imported describes a history that was just imported, from what was stored:
// it may have ended before it could be read, and was imported all the same.
// The time of its last use is about right, and that of its beginning if the
// import began it.
func (v *Invoker) imported(in Import, k carrel.MemoryKey, done store.Committed, began time.Time) store.History {
	h := store.History{
		Key: k, Handle: v.cfg.Scopes.Handle(k), Plugin: in.Plugin, Generation: done.Generation, LastTurn: done.LastTurn,
		CreatedAt: began, LastUsedAt: v.cfg.Now(), Application: true,
	}
	if in.System != "" {
		h.Messages, h.Bytes = 1, int64(len(in.System))
	}
	for _, t := range in.Turns {
		h.Messages += int64(len(t.Messages))
		for _, m := range t.Messages {
			h.Bytes += m.Size()
		}
	}
	return h
}

// check refuses what is not to be imported before anything is looked up.
func (in Import) check(l Limits) error {
	const op = "invoke.Import"
	if err := in.checkKey(); err != nil {
		return err
	}
	if len(in.System) > maxImportedSystem {
		return carrel.FailLimit(op, abi.LimitExceeded, "systemMessageBytes", fmt.Sprintf(
			"the system message has %d bytes, at most %d are allowed; shorten it", len(in.System), maxImportedSystem))
	}
	n := int64(0)
	if in.System != "" {
		n++
	}
	for _, t := range in.Turns {
		n += int64(len(t.Messages))
	}
	if n > l.MessagesPerHistory {
		return carrel.FailLimit(op, abi.LimitExceeded, "messagesPerHistory", fmt.Sprintf(
			"the history has %d messages, and one keeps at most %d here; leave its oldest turns out, or let the host's operator raise `limits.messagesPerHistory`",
			n, l.MessagesPerHistory))
	}
	var faults []carrel.Fault
	for i, t := range in.Turns {
		err := memory.CheckTurn(t.Messages)
		e, ok := errors.AsType[*carrel.Error](err)
		switch {
		case err == nil:
			continue
		case !ok || len(e.Faults) == 0:
			return fmt.Errorf("turn %d: %w", i+1, err)
		}
		for _, f := range e.Faults {
			faults = append(faults, carrel.Fault{Pointer: fmt.Sprintf("/turns/%d%s", i, f.Pointer), Message: f.Message})
		}
		if len(faults) >= maxImportFaults {
			break
		}
	}
	if len(faults) > 0 {
		return &carrel.Error{Op: op, Code: abi.InvalidParams, Msg: "the history is not made of whole turns", Faults: faults}
	}
	return nil
}

// checkKey judges the form of a key.
func (in Import) checkKey() error {
	const op = "invoke.Import"
	bad := func(msg string) error { return carrel.Fail(op, abi.InvalidParams, msg) }
	switch {
	case in.Kind == carrel.KindExplicit && in.Owner != "":
		return bad("an explicit memory id has no owner; only ids of a header provider have one")
	case in.Kind == carrel.KindExplicit:
		_, err := carrel.ParseMemoryID(string(in.ID))
		return err
	case in.Kind != carrel.KindPlugin:
		return bad(fmt.Sprintf("a history of the kind %.32q ends with its request or session and cannot be imported; "+
			"import it as %q", string(in.Kind), carrel.KindExplicit))
	}
	if in.Owner != "" {
		if _, err := memory.ParseOwner(string(in.Owner)); err != nil {
			return err
		}
	}
	provided, method := in.provided()
	if _, err := carrel.ParseAddress(string(in.Plugin) + "/" + method); err != nil {
		return carrel.Fail(op, abi.InvalidMemoryID,
			"an id of the plugin's own provider ends in # and the method whose it is, as in anna#com.acme.MyChat.chat")
	}
	_, err := carrel.ParseDefaultID(provided)
	return err
}

// provided splits a default memory id: what the provider yields, and the method.
func (in Import) provided() (id, method string) {
	at := max(0, strings.LastIndexByte(string(in.ID), '#'))
	return string(in.ID[:at]), strings.TrimPrefix(string(in.ID[at:]), "#")
}

// key returns the key of the history in the plugin's own namespace, by the
// plugin's provider.
func (in Import) key(p *abi.DefaultMemoryID) (carrel.MemoryKey, error) {
	const op = "invoke.Import"
	k := carrel.MemoryKey{
		Tenant: in.Caller.Tenant, Namespace: carrel.Namespace(in.Plugin), Kind: in.Kind, Owner: in.Owner, ID: in.ID,
	}
	if in.Kind == carrel.KindExplicit {
		return k, nil
	}
	switch {
	case p == nil:
		return k, carrel.Fail(op, abi.InvalidParams, fmt.Sprintf(
			"the plugin declares no default memory id provider, so no call would find the history again; import it as %q", carrel.KindExplicit))
	case strings.HasPrefix(p.From, abi.FromHeader):
		if k.Owner == "" {
			k.Owner = memory.OwnerOf(in.Caller)
		}
	case k.Owner != "":
		return k, carrel.Fail(op, abi.InvalidParams, "only ids of a header provider have an owner, and the plugin's provider is none")
	}
	return k, nil
}
