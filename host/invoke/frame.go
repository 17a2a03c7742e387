package invoke

import (
	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/plugins"
)

// tree is what all invocations under one request share.
type tree struct {
	seq     uint64 // requests are numbered as they start
	call    Call   // what the client asked for
	scope   *scope.Request
	session *scope.Session // the ambient session, or nil
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

	held int // turn locks that this very invocation holds; guarded by turnLocks.mu
}

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
