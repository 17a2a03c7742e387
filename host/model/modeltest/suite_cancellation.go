package modeltest

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// gone waits for the client of the first call to go away.
func (f *fixture) gone(ctx context.Context) error { return f.server.Gone(ctx, 1) }

// run makes a call in a goroutine of its own, because a provider at fault may
// never return. The channel gets the call's error.
func (f *fixture) run(ctx context.Context, stream bool) <-chan error {
	result := make(chan error, 1)
	go func() {
		_, _, err := f.generate(ctx, ask("hi"), stream)
		result <- err
	}()
	return result
}

// returned waits for the error of a call that must return at once.
func (f *fixture) returned(result <-chan error) (err error) {
	f.Helper()
	f.within("the call returns", func(ctx context.Context) error {
		select {
		case err = <-result:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return err
}

// wantEnded waits for a call to return and checks that its error is the
// context's.
func (f *fixture) wantEnded(result <-chan error, want error, code abi.Code) {
	f.Helper()
	if err := f.returned(result); !errors.Is(err, want) || carrel.CodeOf(err) != code {
		f.Errorf("the error is %v with code %v, want one that wraps %v", err, carrel.CodeOf(err), want)
	}
}

// testCancellation checks that a call ends with its context, and with the
// receiver of its pieces.
func testCancellation(t *testing.T, open opener) {
	for mode, stream := range modes {
		t.Run(mode+": cancelled before the answer begins", func(t *testing.T) {
			f := open.start(t)
			f.server.Hold()
			ctx, cancel := context.WithCancel(f.patient())
			defer cancel()
			result := f.run(ctx, stream)
			if err := f.server.Arrived(f.patient(), 1); err != nil {
				t.Fatal(err)
			}
			cancel()
			f.wantEnded(result, context.Canceled, abi.Canceled)
			f.within("the upstream call ends", f.gone)
		})
		t.Run(mode+": cancelled within the answer", func(t *testing.T) {
			f := open.start(t)
			ctx, cancel := context.WithCancel(f.patient())
			defer cancel()
			begun := make(chan struct{})
			f.server.AnswerNext(begins(stream, begun))
			result := f.run(ctx, stream)
			select {
			case <-begun:
			case <-f.patient().Done():
				t.Fatal("the call did not arrive")
			}
			cancel()
			f.wantEnded(result, context.Canceled, abi.Canceled)
			f.within("the upstream call ends", f.gone)
		})
		t.Run(mode+": past its deadline", func(t *testing.T) {
			f := open.start(t)
			f.server.Hold()
			ctx, cancel := context.WithTimeout(f.patient(), 50*time.Millisecond)
			defer cancel()
			result := f.run(ctx, stream)
			f.wantEnded(result, context.DeadlineExceeded, abi.Timeout)
			if len(f.server.Calls()) > 0 {
				f.within("the upstream call ends", f.gone)
			}
		})
		t.Run(mode+": cancelled from the start", func(t *testing.T) {
			f := open.start(t)
			ctx, cancel := context.WithCancel(f.patient())
			cancel()
			_, pieces, err := f.generate(ctx, ask("hi"), stream)
			if !errors.Is(err, context.Canceled) || len(pieces) > 0 {
				t.Errorf("pieces %q, error %v; want none, and one that wraps context.Canceled", pieces, err)
			}
		})
	}
	t.Run("cancelled after the first piece", func(t *testing.T) {
		f := open.start(t)
		f.server.HoldAfter(1)
		f.server.ReplyPieces("one", "two")
		ctx, cancel := context.WithCancel(f.patient())
		defer cancel()
		var got []string
		result := make(chan error, 1)
		go func() {
			_, err := f.provider.Generate(ctx, ask("hi"), func(text string) error {
				got = append(got, text)
				cancel()
				return nil
			})
			result <- err
		}()
		f.wantEnded(result, context.Canceled, abi.Canceled)
		if !slices.Equal(got, []string{"one"}) {
			t.Errorf("pieces %q, want only the first", got)
		}
		f.within("the upstream call ends", f.gone)
	})
	t.Run("an error of the receiver stops the call", func(t *testing.T) {
		f := open.start(t)
		f.server.HoldAfter(2)
		f.server.ReplyPieces("one", "two", "three")
		enough := errors.New("enough")
		var got []string
		result := make(chan error, 1)
		go func() {
			_, err := f.provider.Generate(f.patient(), ask("hi"), func(text string) error {
				got = append(got, text)
				if len(got) == 2 {
					return enough
				}
				return nil
			})
			result <- err
		}()
		if err := f.returned(result); !errors.Is(err, enough) || !slices.Equal(got, []string{"one", "two"}) {
			t.Errorf("pieces %q, error %v", got, err)
		}
		f.within("the upstream call ends", f.gone)
	})
}

// begins answers with the begin of a body, closes begun and sends no more.
func begins(stream bool, begun chan<- struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := `{"choices":[{"message":{"content":"hi`
		w.Header().Set("Content-Type", "application/json")
		if stream {
			body = event(`{"choices":[{"index":0,"delta":{"content":"hi"}}]}`)
			w.Header().Set("Content-Type", "text/event-stream")
		}
		_, _ = w.Write([]byte(body))
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-r.Context().Done()
	})
}
