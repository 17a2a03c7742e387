package httpapi

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/coder/websocket"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/invoke"
)

// freeFrameBytes of a frame do not count against limits.bodyBytes, so that
// pings and cancels never wait for room.
const freeFrameBytes = 4 << 10

// read takes in frames until the connection ends, or is to.
func (s *socket) read() {
	for {
		// The end of a context would break the connection; it is closed instead.
		kind, r, err := s.conn.Reader(context.Background())
		if err != nil {
			return
		}
		b, done, err := s.readFrame(r)
		if err != nil {
			return
		}
		s.hear()
		most := s.api.cfg.Limits.FrameBytes
		switch {
		case int64(len(b)) > most:
			done()
			s.close(closeTooBig, fmt.Sprintf("a frame has at most %d bytes (limits.frameBytes)", most))
		case !s.rate.allow(s.api.cfg.Now()):
			done()
			s.slowDown()
		case kind != websocket.MessageText:
			done()
			s.close(closeBadFrame, "frames are JSON in text messages")
		default:
			s.take(b, done)
		}
		select {
		case <-s.bye:
			return
		default:
		}
	}
}

// readFrame reads a frame, one byte over limits.frameBytes at most, within
// limits.bodyTimeout. Its bytes count against limits.bodyBytes as they arrive,
// until done is called, which has to be called once. An error says that the
// connection is over, or is to be.
func (s *socket) readFrame(r io.Reader) (b []byte, done func(), err error) {
	l := s.api.cfg.Limits
	late := time.AfterFunc(l.BodyTimeout, func() {
		s.close(closeIdle, fmt.Sprintf("a frame did not arrive whole within %v (limits.bodyTimeout)", l.BodyTimeout))
	})
	defer late.Stop()
	deadline := time.Now().Add(l.BodyTimeout)
	held := int64(0)
	done = func() {
		if held > 0 {
			s.api.bodies.release(s.who.Tenant, held)
		}
	}
	b = make([]byte, 0, 512)
	for {
		if len(b) == cap(b) {
			size := min(2*int64(cap(b)), l.FrameBytes+1)
			if more := size - held; size > freeFrameBytes {
				late.Stop()
				if err := s.frameRoom(deadline, more); err != nil {
					done()
					s.close(closeSlowDown, fmt.Sprintf("the host has no room for frames now (limits.bodyBytes, %d)", l.BodyBytes))
					return nil, nil, err
				}
				held += more
				late.Reset(time.Until(deadline))
			}
			b = append(make([]byte, 0, size), b...)
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF || int64(len(b)) > l.FrameBytes:
			return b, done, nil
		case err != nil:
			done()
			return nil, nil, fmt.Errorf("read a frame: %w", err)
		}
	}
}

// frameRoom takes room for bytes of a frame from the budget of all bodies.
func (s *socket) frameRoom(deadline time.Time, size int64) error {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if err := s.api.bodies.acquire(ctx, s.who.Tenant, size); err != nil {
		return fmt.Errorf("room for a frame: %w", err)
	}
	return nil
}

// begin lets an invocation start when those of earlier frames have their
// places among the turns of their memory ids. Once it has ended, done is
// called.
func (s *socket) begin(id string, call invoke.Call, detached bool, done func()) error {
	const op = "httpapi.socket"
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.running[id]; twice {
		return carrel.Fail(op, abi.BadRequest, "an invocation with this id runs on this WebSocket")
	}
	most := s.api.cfg.Limits.SocketInvocations
	full := carrel.FailLimit(op, abi.QuotaExceeded, "socketInvocations", fmt.Sprintf(
		"%d invocations run on this WebSocket already; the host's operator can raise `limits.socketInvocations`", most))
	if len(s.running) >= most {
		return full
	}
	r := s.api.prepare(context.Background(), call, detached)
	r.done = done
	select {
	case s.queue <- r:
	default: // it is full of what was cancelled
		r.cancel(nil)
		return full
	}
	s.running[id] = r
	s.pumping++
	start := s.api.cfg.Now()
	s.pumps.Go(func() {
		s.pump(id, r)
		s.logged(r, s.api.cfg.Now().Sub(start))
	})
	if s.code != 0 { // it is being closed
		s.abandon(r, "the host closed the WebSocket: "+s.reason)
	}
	return nil
}

// sequence starts invocations in the order of their frames: each when the one
// before has its place among the turns of its memory id, or has ended. It ends
// when all that were read have started.
func (s *socket) sequence() {
	for r := range s.queue {
		r.launch()
		select {
		case <-r.queued:
		case <-r.ended: // it was refused before it got that far
		}
	}
}
