package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel/host/httpapi"
)

func TestAClientThatWaitsIsShownThatTheHostIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events, answer := httpapi.NewEvents(), httptest.NewRecorder()
		done := make(chan bool)
		go func() {
			sawEnd, err := events.Send(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			done <- sawEnd && err == nil
		}()
		events.Add("a", `{"n":1}`, false)
		time.Sleep(31 * time.Second)
		events.Add("b", `{"n":2}`, true)
		if !<-done {
			t.Error("the end was not sent")
		}
		const want = "id: 1\nevent: a\ndata: {\"n\":1}\n\n: \n\n: \n\nid: 2\nevent: b\ndata: {\"n\":2}\n\ndata: [DONE]\n\n"
		if got := answer.Body.String(); got != want || !answer.Flushed {
			t.Errorf("sent is %q", got)
		}
	})
}

func TestAReaderThatGoesAwayHasNotSeenTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		events := httpapi.NewEvents()
		done := make(chan error)
		go func() {
			sawEnd, err := events.Send(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			if sawEnd {
				err = errors.New("it saw the end")
			}
			done <- err
		}()
		synctest.Wait()
		leave()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
