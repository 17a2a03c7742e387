package host

import (
	"context"

	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/host/scope"
)

// Stats are numbers about a host, for whoever watches it.
type Stats struct {
	Scopes scope.Stats  // scopes, histories and their ends
	Turns  invoke.Stats // waits for the turn of a memory id
}

// Stats returns the numbers as of now; the caller owns them. It reads indexes
// of the store as a whole: ask a few times a minute. Errors are the store's.
func (h *Host) Stats(ctx context.Context) (Stats, error) {
	s, err := h.scopes.Stats(ctx)
	if err != nil {
		return Stats{}, err
	}
	return Stats{Scopes: s, Turns: h.invoker.Stats()}, nil
}
