package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/coder/websocket"
)

// SocketOptions are the choices of a WebSocket.
type SocketOptions struct {
	Session string // the HTTP session to attach to; "" = the connection is a session
	Ticket  string // in the place of the client's key
	Origin  string // of the web page that the client acts as, if it does
}

// Socket is a WebSocket. It is safe for concurrent use; whoever opened it
// closes it.
type Socket struct {
	// Session is the connection's own session, or the one that it is attached
	// to.
	Session string

	conn  *websocket.Conn
	ended chan struct{} // closed when nothing more is read
	quit  func()        // says that nobody wants events any more
	left  <-chan struct{}

	mu    sync.Mutex // guards what follows
	calls map[string]*SocketCall
	last  int
	err   error // why it ended
}

// CloseError says with which code and reason a host closed a WebSocket.
type CloseError struct {
	Code   int
	Reason string
}

// Error returns the code and the reason.
func (e *CloseError) Error() string {
	return fmt.Sprintf("the host closed the WebSocket: %d %s", e.Code, e.Reason)
}

// Connect opens a WebSocket. A host that refuses it answers with a *Problem.
func (c *Client) Connect(ctx context.Context, o SocketOptions) (*Socket, error) {
	h := http.Header{}
	address := strings.TrimSuffix(c.Base, "/") + "/api/v1/ws"
	if o.Ticket != "" {
		address += "?ticket=" + url.QueryEscape(o.Ticket)
	} else {
		c.identify(h)
	}
	if o.Session != "" {
		h.Set("Carrel-Session", o.Session)
	}
	if o.Origin != "" {
		h.Set("Origin", o.Origin)
	}
	conn, resp, err := websocket.Dial(ctx, address, &websocket.DialOptions{HTTPClient: c.HTTP, HTTPHeader: h}) //nolint:bodyclose // the library does
	if err != nil {
		if resp != nil && resp.Body != nil && resp.StatusCode >= http.StatusBadRequest {
			return nil, failure(resp)
		}
		return nil, fmt.Errorf("carrel client: %w", err)
	}
	conn.SetReadLimit(maxAnswer)
	left := make(chan struct{})
	s := &Socket{
		conn: conn, ended: make(chan struct{}), calls: map[string]*SocketCall{},
		left: left, quit: sync.OnceFunc(func() { close(left) }),
	}
	first, err := s.frame(ctx)
	if err != nil || first.Type != FrameSessionCreated {
		_ = conn.CloseNow() // the error that counts is the other
		return nil, errors.Join(errors.New("carrel client: the host did not open the session"), err)
	}
	s.Session = first.Session
	go s.read() //nolint:gosec,contextcheck // ctx is of the opening alone
	return s, nil
}

// received is what a host sends on a WebSocket.
type received struct {
	Event
	Session string `json:"session"`
}

func (s *Socket) frame(ctx context.Context) (received, error) {
	var f received
	_, b, err := s.conn.Read(ctx)
	if err != nil {
		if closed, ok := errors.AsType[websocket.CloseError](err); ok {
			return f, &CloseError{int(closed.Code), closed.Reason}
		}
		return f, fmt.Errorf("carrel client: %w", brokenOff(err))
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("carrel client: %w", err)
	}
	return f, nil
}

// read hands each event to its call until the connection ends. A call whose
// events nobody reads holds up the others.
func (s *Socket) read() {
	defer close(s.ended)
	for {
		f, err := s.frame(context.Background())
		if err != nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			_ = s.conn.CloseNow() // nobody reads it any more
			return
		}
		s.mu.Lock()
		c := s.calls[f.Frame]
		if f.Last() {
			delete(s.calls, f.Frame)
		}
		s.mu.Unlock()
		if c == nil { // a pong, or a call that nobody reads
			continue
		}
		select {
		case c.events <- f.Event:
		case <-c.dropped:
		case <-s.left:
		}
	}
}

// SocketCall is an invocation on a WebSocket.
type SocketCall struct {
	ID      string // of its frame
	s       *Socket
	events  chan Event
	dropped chan struct{}
	drop    func()
}

// Invoke calls the method that the frame names. Calls on one memory id are
// served in the order of Invoke. Type and ID are filled in.
func (s *Socket) Invoke(ctx context.Context, f Frame) (*SocketCall, error) {
	c := &SocketCall{s: s, events: make(chan Event, 16), dropped: make(chan struct{})}
	c.drop = sync.OnceFunc(func() { close(c.dropped) })
	s.mu.Lock()
	s.last++
	c.ID = strconv.Itoa(s.last)
	s.calls[c.ID] = c
	s.mu.Unlock()
	f.Type, f.ID = FrameInvoke, c.ID
	return c, s.send(ctx, f)
}

// Cancel asks for the end of the invocation, whose events say what came of it.
func (c *SocketCall) Cancel(ctx context.Context) error {
	return c.s.send(ctx, Frame{Type: FrameCancel, ID: c.ID})
}

// Events yields the invocation's events as they come, once. They must be read:
// what nobody reads holds up the other calls of the socket. The one error,
// such as a *CloseError, is the last of the sequence.
func (c *SocketCall) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		defer c.drop()
		for {
			e, err := c.next(ctx)
			if !yield(e, err) || err != nil || e.Last() {
				return
			}
		}
	}
}

func (c *SocketCall) next(ctx context.Context) (Event, error) {
	select {
	case e := <-c.events:
		return e, nil
	case <-ctx.Done():
		return Event{}, fmt.Errorf("carrel client: %w", ctx.Err())
	case <-c.s.ended:
	}
	select { // what came before the end
	case e := <-c.events:
		return e, nil
	default:
		return Event{}, c.s.Err()
	}
}

// Result waits for the answer, or the problem that the invocation failed with.
func (c *SocketCall) Result(ctx context.Context) (Invocation, error) {
	return Result(c.Events(ctx), nil)
}

func (s *Socket) send(ctx context.Context, f Frame) error {
	b, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("carrel client: encode frame: %w", err)
	}
	if err := s.conn.Write(ctx, websocket.MessageText, b); err != nil {
		return fmt.Errorf("carrel client: %w", errors.Join(err, s.Err()))
	}
	return nil
}

// Ended is closed when the connection has ended.
func (s *Socket) Ended() <-chan struct{} { return s.ended }

// Err returns why the connection ended, and nil as long as it has not.
func (s *Socket) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the connection and waits until nothing of it is left here. What
// runs on it is cancelled, and its own session closes.
func (s *Socket) Close() error {
	s.quit()
	err := s.conn.Close(websocket.StatusNormalClosure, "")
	<-s.ended
	if err != nil {
		return fmt.Errorf("carrel client: %w", err)
	}
	return nil
}
