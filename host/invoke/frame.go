package invoke

import (
	"context"
	"fmt"
	"sync"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/idempotency"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/store"
)

// tree is what all invocations under one request share.
type tree struct {
	seq     uint64 // requests are numbered as they start
	call    Call   // what the client asked for
	scope   *scope.Request
	session *scope.Session    // the ambient session, or nil
	release func()            // of the turn of the client's own invocation; nil as long as it has none
	once    *idempotency.Once // of a call with an idempotency key, else nil

	placed sync.Once // guards that the client's edge is told but once

	mu      sync.Mutex                             // guards what follows
	derived map[carrel.Handle]carrel.MemoryKey     // keys that guests asked for, which may have no history yet; nil as long as none
	granted map[carrel.PluginName]carrel.Namespace // shared namespaces, of the plugins whose grant was read; nil as long as none
}

// queued tells the client's edge that the call has its place.
func (t *tree) queued() {
	if t.call.Queued != nil {
		t.placed.Do(t.call.Queued)
	}
}

// end closes the request's scope and then lets the turn of the client's own
// invocation go: whoever gets it next must not build upon a history that is
// about to be evicted.
func (t *tree) end(ctx context.Context) scope.Closed {
	if t.release != nil {
		defer t.release()
	}
	return t.scope.Close(ctx)
}

func (t *tree) sessionID() carrel.SessionID {
	if t.session == nil {
		return ""
	}
	return t.session.ID()
}

func (t *tree) toucher() store.Toucher {
	return store.Toucher{Key: t.call.Caller.Key, Subject: t.call.Caller.Subject}
}

// frame is one invocation in the tree of its request.
type frame struct {
	tree    *tree
	parent  *frame // nil: the client called it
	depth   int    // 1 is what the client called
	id      string // of the invocation
	running plugins.Running
	method  *plugins.Method
	address carrel.Address
	memory  carrel.MemoryID // of a chat method
	past    past            // of a chat method, once it has been read
	usage   Usage           // its own and of the invocations under it; its goroutine, or its guest's, alone uses it

	held int // turn locks that this very invocation holds; guarded by turnLocks.mu
}

// use is this invocation's use of a memory key.
func (f *frame) use(k carrel.MemoryKey) scope.Use {
	return scope.Use{
		Key: k, Plugin: f.address.Plugin, Service: f.method.Scope, Application: f.running.Application,
		Session: f.tree.session, By: f.tree.toucher(),
	}
}

// mayNest refuses one more level of guest code: limit_exceeded.
func (f *frame) mayNest() error {
	if f.depth < abi.MaxCallDepth {
		return nil
	}
	return carrel.FailLimit("invoke.guest", abi.LimitExceeded, "callDepth",
		fmt.Sprintf("invocations nest at most %d deep in one request", abi.MaxCallDepth))
}

// outermost reports whether a client made this invocation itself.
func (f *frame) outermost() bool { return f.parent == nil }

// descendsFrom reports whether other is this invocation's parent, or that
// one's, and so on.
func (f *frame) descendsFrom(other *frame) bool {
	for p := f.parent; p != nil; p = p.parent {
		if p == other {
			return true
		}
	}
	return false
}

// mayWaitFor is the rule of wait-die: an invocation may wait if it holds
// nothing that somebody could wait for, or if the holder's request started
// later. Within one request only what it holds below the ancestor that it
// shares with the holder counts: nobody there waits for what the ancestor has.
func (f *frame) mayWaitFor(holder *frame) bool {
	if f.tree.seq < holder.tree.seq {
		return true
	}
	for p := f; p != nil && !holder.descendsFrom(p); p = p.parent {
		if p.held > 0 {
			return false
		}
	}
	return true
}
