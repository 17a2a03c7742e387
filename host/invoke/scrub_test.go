package invoke_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// A scrub may take longer than one write of a turn may. The turn waits before
// the time of its write begins.
func TestATurnWaitsForAScrubLongerThanACommitMayTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		_, leave, err := e.scopes.Pass(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done := e.start(t.Context(), e.call("p/App.chat", "id", "one", "msg", "hello"))
		m := <-e.model.calls
		scrubbed := make(chan error, 1)
		go func() { // it waits for who has passed, and everybody else waits for it
			_, err := e.scopes.Scrub(t.Context())
			scrubbed <- err
		}()
		synctest.Wait()
		m.say("hi")
		<-time.After(30 * time.Second)
		select {
		case o := <-done:
			t.Fatalf("it did not wait: %+v", o)
		default:
		}
		leave()
		if o := <-done; o.err != nil || o.Pending {
			t.Errorf("it ended with %+v", o)
		}
		if err := <-scrubbed; err != nil {
			t.Error(err)
		}
		if got := e.stored(acme); len(got) != 1 {
			t.Errorf("stored is %v", got)
		}
	})
}
