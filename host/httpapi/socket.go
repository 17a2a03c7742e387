package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/scope"
)

// The codes with which a host closes a WebSocket, besides 1012 for draining.
const (
	closeBadFrame websocket.StatusCode = 4400
	closeIdle     websocket.StatusCode = 4408
	closeTooBig   websocket.StatusCode = 4413
	closeSlowDown websocket.StatusCode = 4429
)

const (
	pingEvery      = 30 * time.Second
	closeTimeout   = 5 * time.Second
	outgoingFrames = 16 // that wait for the client; more wait in their buffers
)

// socket is one WebSocket. One goroutine reads, one writes, one watches over
// it, one starts invocations, and each invocation has one that passes its events on.
type socket struct {
	api      *API
	who      carrel.Caller
	request  string           // the id of the upgrade
	header   http.Header      // of the upgrade
	own      *scope.Session   // the connection's own session; nil if it is attached
	attached carrel.SessionID // to an HTTP session, or ""

	rate  rate          // used by the reading goroutine alone
	seen  atomic.Int64  // when the client was heard last, as Unix nanoseconds
	out   chan [][]byte // frames to be written, in pieces
	queue chan *run     // to be started, in the order of their frames
	bye   chan struct{} // closed when the host has a reason to close it
	over  chan struct{} // closed when nothing more is read
	mute  chan struct{} // closed when nothing more is written
	pumps sync.WaitGroup

	mu       sync.Mutex // guards what follows
	conn     *websocket.Conn
	below    net.Conn             // what conn runs over
	code     websocket.StatusCode // why the host closes it, once bye is closed
	reason   string
	draining bool
	running  map[string]*run // by the id that the client gave
	pumping  int             // invocations whose events are not all passed on
}

func (a *API) newSocket(who carrel.Caller, request string, header http.Header) *socket {
	return &socket{
		api: a, who: who, request: request, header: header,
		rate: newRate(a.cfg.Limits.FramesPerSecond, a.cfg.Now()),
		out:  make(chan [][]byte, outgoingFrames), queue: make(chan *run, a.cfg.Limits.SocketInvocations), bye: make(chan struct{}), over: make(chan struct{}), mute: make(chan struct{}),
		running: map[string]*run{},
	}
}

// session returns the id of the session that invocations run in.
func (s *socket) session() carrel.SessionID {
	if s.own != nil {
		return s.own.ID()
	}
	return s.attached
}

// serve runs the socket to its end. When it returns, nothing of it runs, but
// for invocations of an attached one that asked to go on.
func (s *socket) serve(conn *websocket.Conn, below net.Conn) {
	s.mu.Lock()
	s.conn, s.below = conn, below
	s.mu.Unlock()
	conn.SetReadLimit(-1) // the limit has a close code of its own
	watched, unwatch := context.WithCancel(context.Background())
	s.hear()
	var parts sync.WaitGroup
	parts.Go(s.write)
	parts.Go(func() { s.watch(watched) })
	s.api.background.Go(s.sequence)
	s.send(s.sessionCreated())
	s.read()
	close(s.queue)
	close(s.over)
	unwatch()
	s.cancelAll("the WebSocket closed")
	s.pumps.Wait()
	parts.Wait()
	_ = conn.CloseNow() // it is closed already, unless it broke
}

func (s *socket) sessionCreated() []byte {
	b, err := json.Marshal(map[string]any{"type": client.FrameSessionCreated, "session": s.session()})
	if err != nil { // nothing in it can fail
		s.api.cfg.Log.Error("frame not encoded", "request", s.request, "err", err)
	}
	return b
}

// hear notes that the client is there.
func (s *socket) hear() { s.seen.Store(s.api.cfg.Now().UnixNano()) }

// pinged is told of each ping of the client's, by whoever reads; they count as
// frames.
func (s *socket) pinged(context.Context, []byte) bool {
	select {
	case <-s.bye: // then it may be the writer that reads, up to the client's close
		return false
	default:
	}
	s.hear()
	ok := s.rate.allow(s.api.cfg.Now())
	if !ok {
		s.slowDown()
	}
	return ok
}

func (s *socket) slowDown() {
	s.close(closeSlowDown, fmt.Sprintf("at most %d frames a second (limits.framesPerSecond)", s.api.cfg.Limits.FramesPerSecond))
}

// close lets the writer close the connection, after what was sent before. The
// first reason counts. What runs is cancelled.
func (s *socket) close(code websocket.StatusCode, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing(code, reason)
}

// closing is close with s.mu held.
func (s *socket) closing(code websocket.StatusCode, reason string) {
	if s.code != 0 {
		return
	}
	s.code, s.reason = code, reason
	close(s.bye)
	for _, r := range s.running {
		s.abandon(r, "the host closed the WebSocket: "+reason)
	}
}

// abandon cancels an invocation, unless it is to go on without the socket.
func (s *socket) abandon(r *run, why string) {
	if !r.detached {
		r.cancel(carrel.Fail("httpapi.socket", abi.Canceled, why))
		r.launch() // if it waits for its turn to start, it ends now
	}
}

func (s *socket) cancelAll(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.running {
		s.abandon(r, why)
	}
}

// drain closes the socket as soon as nothing runs on it.
func (s *socket) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	s.closeIfDrained()
}

func (s *socket) closeIfDrained() {
	if s.draining && s.pumping == 0 {
		s.closing(websocket.StatusServiceRestart, "the host is shutting down")
	}
}

// cut ends the connection without a word.
func (s *socket) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing(websocket.StatusServiceRestart, "the host is shutting down")
	if s.below != nil {
		_ = s.below.Close() // what is broken is ended, too
	}
}

// logged logs the end of an invocation like that of a request, which it is.
func (s *socket) logged(r *run, took time.Duration) {
	attrs := []slog.Attr{
		slog.String("request", string(r.call.Request)), slog.String("method", "WS"), slog.String("session", string(s.session())),
		slog.Duration("took", took), slog.String("tenant", string(s.who.Tenant)), slog.String("key", string(s.who.Key)),
	}
	select {
	case <-r.ended:
		attrs = append(attrs, slog.String("code", carrel.CodeOf(r.err).String()))
	default: // it goes on
	}
	s.api.cfg.Log.LogAttrs(context.Background(), slog.LevelInfo, "request", attrs...)
}

// watch pings the client, and closes the connection of one that is not there.
func (s *socket) watch(ctx context.Context) {
	idle := s.api.cfg.Limits.SocketIdle
	every := min(pingEvery, idle/3)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.bye:
			return
		case <-s.over:
			return
		}
		if s.api.cfg.Now().UnixNano()-s.seen.Load() >= int64(idle) {
			s.close(closeIdle, fmt.Sprintf("nothing was heard for %v (limits.socketIdle)", idle))
			return
		}
		ping, cancel := context.WithTimeout(ctx, every)
		_ = s.conn.Ping(ping) // a client that does not answer is not heard
		cancel()
	}
}

// write sends what is to be sent, and closes the connection if the host has a
// reason to. A client that does not take a frame in time is cut off.
func (s *socket) write() {
	defer close(s.mute)
	for {
		select {
		case b := <-s.out:
			if !s.put(b) {
				return
			}
		case <-s.bye:
			s.part()
			return
		case <-s.over:
			select {
			case <-s.bye:
				s.part()
			default:
			}
			return
		}
	}
}

// part sends what waits, then says why the host closes the connection.
func (s *socket) part() {
	for {
		select {
		case b := <-s.out:
			if !s.put(b) {
				return
			}
			continue
		default:
		}
		break
	}
	s.mu.Lock()
	code, reason, below := s.code, s.reason, s.below
	s.mu.Unlock()
	// Close waits for the rest of a message that was begun, however long.
	if err := below.SetDeadline(s.api.cfg.Now().Add(min(s.api.cfg.Limits.WriteTimeout, closeTimeout))); err != nil {
		s.api.cfg.Log.Debug("close deadline not set", "request", s.request, "err", err)
	}
	_ = s.conn.Close(code, reason) // the client may be gone; it is closed in any case
}

func (s *socket) put(pieces [][]byte) bool {
	ctx, cancel := context.WithTimeout(context.Background(), s.api.cfg.Limits.WriteTimeout)
	defer cancel()
	if err := s.message(ctx, pieces); err != nil {
		_ = s.conn.CloseNow() // the error that counts is the other
		return false
	}
	return true
}

// gather is up to how many bytes the pieces of a frame are put together: each
// is written on its own otherwise, so that a large answer is not copied.
const gather = 16 << 10

func (s *socket) message(ctx context.Context, pieces [][]byte) error {
	size := 0
	for _, p := range pieces {
		size += len(p)
	}
	if size <= gather {
		pieces = [][]byte{slices.Concat(pieces...)}
	}
	w, err := s.conn.Writer(ctx, websocket.MessageText)
	if err != nil {
		return fmt.Errorf("begin a frame: %w", err)
	}
	for _, p := range pieces {
		if _, err := w.Write(p); err != nil {
			return fmt.Errorf("write a frame: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("end a frame: %w", err)
	}
	return nil
}

// send hands a frame to the writer, unless the connection is over.
func (s *socket) send(pieces ...[]byte) {
	select {
	case s.out <- pieces:
	case <-s.over:
	case <-s.mute:
	}
}
