package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/host/model"
	"github.com/carrelhost/carrel/host/scope"
)

// run is an invocation whose events are read while it goes on. It is the one
// producer of events, for every transport. As an invoke.Stream it belongs to
// the goroutine of its invocation.
type run struct {
	api     *API
	call    invoke.Call
	session carrel.SessionID // that it runs in, or ""
	cancel  context.CancelCauseFunc

	detached bool // it goes on when the client that started it goes away

	started chan struct{} // closed once there is buf
	ended   chan struct{} // closed after its last event, or when it failed before its first

	buf *buffer // to be read after started
	err error   // to be read after ended: what it failed with

	status string // of client.Response; to be read after ended

	text      strings.Builder // of the deltas
	textBytes int64           // of the same as JSON

	mu   sync.Mutex // guards left
	left bool       // whoever started it does not read (any more)
}

var _ invoke.Stream = (*run)(nil)

// start starts an invocation in a goroutine of its own, which the end of ctx
// does not end. Whoever starts it is its first reader, and calls leave once.
func (a *API) start(ctx context.Context, call invoke.Call, detached bool) *run {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r := &run{
		api: a, call: call, session: call.Session, cancel: cancel, detached: detached,
		started: make(chan struct{}), ended: make(chan struct{}),
	}
	if r.session == "" && call.Socket != nil {
		r.session = call.Socket.ID()
	}
	r.call.Stream = r
	a.background.Go(func() {
		defer cancel(context.Canceled)
		r.do(ctx)
	})
	return r
}

func (r *run) do(ctx context.Context) {
	defer close(r.ended)
	result, closed, err := r.guarded(ctx)
	r.err = err
	if r.buf == nil { // whoever started it says so
		return
	}
	r.api.logFailure(ctx, string(r.call.Request), err)
	r.finish(result, closed, err)
	r.api.buffers.end(r.buf, r.api.cfg.Now())
}

// guarded runs the invocation, and returns a panic of it as an internal error.
func (r *run) guarded(ctx context.Context) (result invoke.Result, closed scope.Closed, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.api.cfg.Log.Error("panic", "request", r.call.Request, "panic", p, "stack", string(debug.Stack()))
			err = carrel.Fail("httpapi.run", abi.Internal, "")
		}
	}()
	return r.api.cfg.Invoker.Run(ctx, r.call)
}

// leave says that whoever started the run does not read it any more.
func (r *run) leave(sawEnd bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = true
	if r.buf != nil {
		r.api.buffers.leave(r.buf, sawEnd)
	}
}

// begun waits until there are events. It is false if there never will be, or
// if ctx ended first, which is its error.
func (r *run) begun(ctx context.Context) (bool, error) {
	select {
	case <-r.started:
		return true, nil
	case <-r.ended:
	case <-ctx.Done():
		return false, fmt.Errorf("wait for the invocation: %w", ctx.Err())
	}
	select { // both may have come
	case <-r.started:
		return true, nil
	default:
		return false, nil
	}
}

// Started implements invoke.Stream.
func (r *run) Started(invocation string) error {
	b, err := r.api.buffers.open(invocation, r.call.Caller, r.session, r)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.buf = b
	if r.left {
		r.api.buffers.leave(b, false)
	}
	r.mu.Unlock()
	r.emit(client.Event{Type: client.EventCreated, Response: &client.Response{
		Status: client.StatusInProgress, Invocation: client.Invocation{ID: invocation, Evicted: []client.Evicted{}},
	}})
	close(r.started)
	return nil
}

// endBytes is room for the events of an invocation's end, besides its text.
const endBytes = 4 << 10

// Delta implements invoke.Stream. The text is sent three times in all: in
// pieces, when it is done, and in the answer; there must be room for that.
func (r *run) Delta(text string) error {
	if text == "" {
		return nil
	}
	e := r.event(client.Event{Type: client.EventTextDelta, Delta: text})
	used, _ := r.buf.size()
	r.textBytes += quotedBytes(text)
	if most := r.api.cfg.Limits.EventBytes; used+int64(len(e.data))+2*r.textBytes+endBytes > most {
		return carrel.FailLimit("httpapi.events", abi.LimitExceeded, "eventBytes", fmt.Sprintf(
			"the events of one invocation may have %d bytes, and the answer is longer; the host's operator can raise `limits.eventBytes`", most))
	}
	r.text.WriteString(text)
	r.buf.add(e, false)
	return nil
}

func quotedBytes(text string) int64 {
	b, err := json.Marshal(text)
	if err != nil { // no string fails
		return int64(6 * len(text))
	}
	return int64(len(b))
}

// finish sends what follows the end of the request's scope.
func (r *run) finish(result invoke.Result, closed scope.Closed, err error) {
	evicted := evictedOf(closed.Evicted)
	answer := &client.Response{Status: client.StatusFailed, Invocation: client.Invocation{
		ID: r.buf.id, Evicted: evicted, EvictionPending: closed.Pending,
	}}
	if err == nil {
		r.textDone(result)
		answer.Status, answer.Invocation = client.StatusCompleted, invocationOf(result, closed)
	}
	if len(evicted) > 0 {
		r.emit(client.Event{Type: client.EventEvicted, Evicted: evicted})
	}
	last := client.Event{Type: client.EventCompleted, Response: answer}
	switch {
	case err != nil:
		p := problemOf(err, string(r.call.Request))
		r.emit(client.Event{Type: client.EventError, Error: &p})
		last.Type = client.EventFailed
	case result.FinishReason == model.FinishLength || result.FinishReason == model.FinishFilter:
		answer.Status, last.Type = client.StatusIncomplete, client.EventIncomplete
	}
	r.status = answer.Status
	r.buf.add(r.event(last), true)
}

// textDone ends the text, if the output is one. The deltas are all of it,
// also where it did not come in pieces.
func (r *run) textDone(result invoke.Result) {
	text, ok := result.Output.(string)
	if !ok {
		return
	}
	if text != "" && r.text.Len() == 0 {
		r.emit(client.Event{Type: client.EventTextDelta, Delta: text})
	}
	r.emit(client.Event{Type: client.EventTextDone, Text: &text})
}

func (r *run) emit(e client.Event) { r.buf.add(r.event(e), false) }

func (r *run) event(e client.Event) event {
	_, e.Sequence = r.buf.size()
	data, err := json.Marshal(e)
	if err != nil { // a guest's output is checked before it gets here
		r.api.cfg.Log.Error("event not encoded", "request", r.call.Request, "err", err)
		data = fmt.Appendf(nil, `{"type":%q,"sequence_number":%d}`, e.Type, e.Sequence)
	}
	return event{e.Type, data}
}
