package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/host/strictjson"
)

// maxFrameID bounds the id of a frame, which each event repeats.
const maxFrameID = 128

// frame is what a client sends, as client.Frame.
type frame struct {
	Type         string          `json:"type"`
	ID           string          `json:"id"`
	Method       string          `json:"method"`
	Args         json.RawMessage `json:"args"`
	OnConflict   string          `json:"onConflict"`
	OnDisconnect string          `json:"onDisconnect"`
	Timeout      string          `json:"timeout"`
}

// check says what is wrong with a frame that nobody could answer; "" if
// nothing is.
func (f frame) check() string {
	bare := f.Method == "" && f.Args == nil && f.OnConflict == "" && f.OnDisconnect == "" && f.Timeout == ""
	switch f.Type {
	case client.FramePing:
		if f.ID != "" || !bare {
			return "a ping has no other members than type"
		}
		return ""
	case client.FrameCancel:
		if !bare {
			return "a cancel has the members type and id"
		}
	case client.FrameInvoke:
	default:
		return "the type of a frame is invoke, cancel or ping"
	}
	if f.ID == "" || len(f.ID) > maxFrameID {
		return fmt.Sprintf("the frame needs an id of 1 to %d bytes", maxFrameID)
	}
	return ""
}

// take does what a frame asks for. One that cannot be read, or answered, ends
// the connection. It calls done once nothing needs the frame's bytes, which may
// be long after it returned.
func (s *socket) take(b []byte, done func()) {
	held := false // by an invocation
	defer func() {
		if !held {
			done()
		}
	}()
	var f frame
	if err := strictjson.Into(b, &f, strictjson.DefaultDepth); err != nil {
		s.close(closeBadFrame, "the frame is "+carrel.CodeOf(err).String())
		return
	}
	if wrong := f.check(); wrong != "" {
		s.close(closeBadFrame, wrong)
		return
	}
	switch f.Type {
	case client.FramePing:
		s.send([]byte(`{"type":"` + client.FramePong + `"}`))
	case client.FrameCancel:
		s.cancel(f.ID)
	default:
		request := "req_" + s.api.cfg.NewID()
		call, detached, err := s.call(f, request)
		if err == nil {
			err = s.begin(f.ID, call, detached, done)
			held = err == nil
		}
		if err != nil {
			s.send(s.refusal(f.ID, request, err))
		}
	}
}

// cancel cancels an invocation. One that is not there has ended, or is about
// to be told so.
func (s *socket) cancel(id string) {
	s.mu.Lock()
	r := s.running[id]
	s.mu.Unlock()
	if r != nil {
		r.cancel(carrel.Fail("httpapi.socket", abi.Canceled, "the invocation was cancelled; nothing of it was stored"))
		r.launch() // if it waits for its turn to start, it ends now
	}
}

// call reads an invoke frame.
func (s *socket) call(f frame, request string) (call invoke.Call, detached bool, err error) {
	call = invoke.Call{
		Request: carrel.RequestID(request), Caller: s.who, Session: s.attached, Socket: s.own,
		Header: s.header.Values,
	}
	if call.Address, err = carrel.ParseAddress(f.Method); err != nil {
		return call, false, err
	}
	if detached, err = readChoices(&call, choices{f.OnConflict, f.OnDisconnect, f.Timeout}); err != nil {
		return call, false, err
	}
	if detached && s.own != nil {
		return call, false, carrel.Fail("httpapi.socket", abi.BadRequest,
			"an invocation cannot outlive the session that the WebSocket is; attach the WebSocket to an HTTP session for that")
	}
	if f.Args == nil {
		f.Args = json.RawMessage(`{}`)
	}
	call.Args, err = readArgs(f.Args)
	return call, detached, err
}

// refusal is the one event of an invocation that never began.
func (s *socket) refusal(id, request string, err error) []byte {
	s.api.logFailure(context.Background(), request, err)
	p := problemOf(err, request)
	b, err := json.Marshal(client.Event{Type: client.EventError, Frame: id, Error: &p})
	if err != nil { // nothing in it can fail
		s.api.cfg.Log.Error("frame not encoded", "request", request, "err", err)
	}
	return b
}

// pump passes the events of an invocation on. The client may use its id again
// once it has seen the last.
func (s *socket) pump(id string, r *run) {
	sawEnd := false
	defer func() {
		r.leave(sawEnd)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pumping--
		s.closeIfDrained()
	}()
	select {
	case <-r.started:
		sawEnd = s.forward(id, r.buf)
	case <-r.ended:
		if r.buf != nil { // both may have come
			sawEnd = s.forward(id, r.buf)
			break
		}
		s.free(id, r)
		s.send(s.refusal(id, string(r.call.Request), r.err))
	case <-s.over:
	}
	if !r.detached {
		<-r.ended
	}
	s.free(id, r)
}

// free lets the client use an id again, unless it does already.
func (s *socket) free(id string, r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[id] == r {
		delete(s.running, id)
	}
}

func (s *socket) forward(id string, b *buffer) (sawEnd bool) {
	quoted, err := json.Marshal(id)
	if err != nil { // no string fails
		return false
	}
	n := int64(0)
	for {
		events, ended, more := b.since(n)
		n += int64(len(events))
		for i, e := range events {
			if ended && i == len(events)-1 {
				<-b.run.ended // then nothing of it is left, and its id is free
				s.free(id, b.run)
			}
			pieces := e.pieces()
			pieces[0] = slices.Concat([]byte(`{"id":`), quoted, []byte(","), pieces[0][1:])
			s.send(pieces...)
		}
		if ended {
			return true
		}
		select {
		case <-more:
		case <-s.over:
			return false
		}
	}
}
