package sandbox

import "context"

// slots bounds how many of something go on at once.
type slots chan struct{}

// acquire waits for a slot; its error is the context's.
func (s slots) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s slots) release() { <-s }
