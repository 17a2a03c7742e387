// Package modeltest is the contract of model providers in executable form,
// and the fake model server that it and other tests run providers against.
//
// Server speaks the chat completions protocol over real HTTP, streamed and
// not, and records what it receives. Run checks a provider against it.
package modeltest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// Key is an API key for providers under test. The server asks for none; Run
// wants this one sent, and told to nobody.
const Key = "sk-modeltest-0123456789abcdef"

// Server is a model server for tests. Calls are numbered from 1 in the order
// in which they arrive; the answer to call n is "An" ("A1", "A2", …) unless
// something else was scripted, and its usage counts words. Every method is
// safe for concurrent use.
type Server struct {
	// BaseURL is the server's address, ending in /v1.
	BaseURL string

	http    *http.Server
	served  chan struct{}      // closed when no connection is accepted any more
	end     context.CancelFunc // ends every request's context
	closing <-chan struct{}    // closed by end

	handlers sync.WaitGroup // Add is called under mu, while not closed

	mu      sync.Mutex // guards what follows
	closed  bool
	calls   []*call
	script  []answer      // what answers the next calls
	holds   []*hold       // what the next calls wait for
	changed chan struct{} // closed and replaced when a call arrives or ends
}

// call is a Call and how far it is.
type call struct {
	Call
	state state
}

type state int

const (
	running state = iota
	answered
	gone
)

// hold makes one call wait.
type hold struct {
	pieces   int // sent before it waits
	released chan struct{}
	once     sync.Once
}

// wait blocks until the release. It is false if ctx ended first.
func (h *hold) wait(ctx context.Context) bool {
	select {
	case <-h.released:
		return true
	case <-ctx.Done():
		return false
	}
}

// NewServer starts a server that the test's cleanup closes.
func NewServer(t testing.TB) *Server {
	t.Helper()
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Start starts a server on a free port of the loopback interface. The caller
// closes it.
func Start() (*Server, error) {
	life, end := context.WithCancel(context.Background())
	ln, err := new(net.ListenConfig).Listen(life, "tcp", "127.0.0.1:0")
	if err != nil {
		end()
		return nil, fmt.Errorf("modeltest: %w", err)
	}
	s := &Server{
		BaseURL: "http://" + ln.Addr().String() + "/v1",
		served:  make(chan struct{}),
		end:     end,
		closing: life.Done(),
		changed: make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.complete)
	s.http = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return life },
	}
	go func() {
		defer close(s.served)
		_ = s.http.Serve(ln) // always an error: that it was closed
	}()
	return s, nil
}

// Close ends every call, cuts every connection and waits until all is done.
// It is safe to call twice.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	_ = s.http.Close()
	s.handlers.Wait()
	<-s.served
}

// Reply makes the next calls answer with the texts, one call each. A streamed
// answer has one piece for each word, with the space before it.
func (s *Server) Reply(texts ...string) {
	for _, text := range texts {
		s.push(answer{pieces: words(text)})
	}
}

// ReplyPieces makes the next call answer with the pieces joined, streamed in
// exactly these pieces.
func (s *Server) ReplyPieces(pieces ...string) { s.push(answer{pieces: pieces}) }

// FailNext makes the next call answer with the status and the body.
func (s *Server) FailNext(status int, body string) {
	s.AnswerNext(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
}

// AnswerNext lets h answer the next call. The request's body is read already;
// its context ends when the client goes away or the server closes, and then h
// must return.
func (s *Server) AnswerNext(h http.Handler) { s.push(answer{custom: h}) }

func (s *Server) push(a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = append(s.script, a)
}

// Hold makes the next call that is not held yet wait before anything of its
// answer is sent, until release is called, the client goes away or the server
// closes. release is safe to call twice.
func (s *Server) Hold() (release func()) { return s.HoldAfter(0) }

// HoldAfter is Hold, but a streamed answer waits after its first pieces were
// sent. An answer made by AnswerNext, or not streamed, waits before it.
func (s *Server) HoldAfter(pieces int) (release func()) {
	h := &hold{pieces: pieces, released: make(chan struct{})}
	s.mu.Lock()
	s.holds = append(s.holds, h)
	s.mu.Unlock()
	return func() { h.once.Do(func() { close(h.released) }) }
}

// Arrived waits until n calls have arrived since the start. Its error says
// that ctx ended or the server closed first.
func (s *Server) Arrived(ctx context.Context, n int) error {
	return s.wait(ctx, func() (bool, error) { return len(s.calls) >= n, nil })
}

// Gone waits until the client of call n went away before it had the whole
// answer. Its error says that the call was answered, that ctx ended or that
// the server closed first.
func (s *Server) Gone(ctx context.Context, n int) error {
	return s.wait(ctx, func() (bool, error) {
		if n < 1 || n > len(s.calls) {
			return false, nil
		}
		if s.calls[n-1].state == answered {
			return false, fmt.Errorf("modeltest: call %d got its whole answer", n)
		}
		return s.calls[n-1].state == gone, nil
	})
}

// wait blocks until done, which it calls with mu held, or the end of ctx.
func (s *Server) wait(ctx context.Context, done func() (bool, error)) error {
	for {
		s.mu.Lock()
		ok, err := done()
		changed := s.changed
		s.mu.Unlock()
		if ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("modeltest: %w", ctx.Err())
		case <-s.closing:
			return errors.New("modeltest: the server is closed")
		}
	}
}

// Calls returns the calls that have arrived so far. The caller must not change
// what they point to.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Call, len(s.calls))
	for i, c := range s.calls {
		out[i] = c.Call
	}
	return out
}

// Send returns the messages of call n in the form of Call.Compact, or nil if
// there was no such call yet.
func (s *Server) Send(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < 1 || n > len(s.calls) {
		return nil
	}
	return s.calls[n-1].Compact()
}

// begin gives an arriving call its number, its hold and its answer. ok is
// false once the server is closed; else the caller calls finish.
func (s *Server) begin(c Call) (made *call, h *hold, a answer, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, answer{}, false
	}
	s.handlers.Add(1)
	c.N = len(s.calls) + 1
	made = &call{Call: c}
	s.calls = append(s.calls, made)
	if len(s.holds) > 0 {
		h, s.holds = s.holds[0], s.holds[1:]
	}
	a = answer{pieces: []string{fmt.Sprintf("A%d", c.N)}}
	if len(s.script) > 0 {
		a, s.script = s.script[0], s.script[1:]
	}
	s.notify()
	return made, h, a, true
}

// finish records how a call ended. One that the server's end cut stays running:
// nobody knows what its client would have done.
func (s *Server) finish(c *call, how state) {
	s.mu.Lock()
	if !s.closed {
		c.state = how
	}
	s.notify()
	s.mu.Unlock()
	s.handlers.Done()
}

// notify wakes everybody in wait. mu is held.
func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}
