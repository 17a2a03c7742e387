package invoke

import (
	"context"
	"errors"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

var errPending = errors.New("pending")

// Window returns what the next call of a chat method of the plugin would send
// of a history: the system message, if there is one, and the turns that fit.
// A method that does not exist is not_found, a handler bad_request.
func (v *Invoker) Window(ctx context.Context, who carrel.Caller, h store.History, p carrel.PluginName, s carrel.ServiceName, m carrel.MethodName) ([]store.StoredMessage, error) {
	return nil, errPending
}

// Import is a history to be made by hand.
type Import struct {
	Request carrel.RequestID // of the call that imports
	Caller  carrel.Caller
	Plugin  carrel.PluginName // must be active: its application scope holds the history
	Kind    carrel.KeyKind    // explicit, or plugin with an owner
	Owner   carrel.Owner
	ID      carrel.MemoryID
	System  string // "" = none
	Turns   []store.NewTurn
}

// Import makes a history, whole or not at all. Its turns are checked
// (invalid_params); one whose key has a history with messages already is
// history_conflict; a plugin that is not active is not_found.
func (v *Invoker) Import(ctx context.Context, in Import) (store.History, error) {
	return store.History{}, errPending
}

// Stats count the waits for turns since the start.
type Stats struct {
	Waits   int64         // calls that had to wait
	Waited  time.Duration // all of them together
	Waiting int           // that wait now
}

// Stats returns the counts as of now.
func (v *Invoker) Stats() Stats { return Stats{} }
