package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
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

	launch  func()        // starts it; what comes after the first call does nothing
	queued  chan struct{} // closed once it has its place among the turns of its memory id, unless it failed before
	done    func()        // called when it ends; nil = nobody wants to know
	started chan struct{} // closed once there is buf
	ended   chan struct{} // closed after its last event, or when it failed before its first

	buf     *buffer // to be read after started
	replays bool    // the answer is that of an earlier call; to be read after started
	err     error   // to be read after ended: what it failed with

	status string // of client.Response; to be read after ended

	track  *track
	text   [][]byte // of the deltas, as JSON
	evicts bool     // the evicted event is sent

	mu   sync.Mutex // guards left
	left bool       // whoever started it does not read (any more)
}

var _ invoke.Stream = (*run)(nil)

// start starts an invocation in a goroutine of its own, which the end of ctx
// does not end. Whoever starts it is its first reader, and calls leave once.
func (a *API) start(ctx context.Context, call invoke.Call, detached bool) *run {
	r := a.prepare(ctx, call, detached)
	r.launch()
	return r
}

// prepare is start but for the start, which is up to launch.
func (a *API) prepare(ctx context.Context, call invoke.Call, detached bool) *run {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r := &run{
		api: a, call: call, session: call.Session, cancel: cancel, detached: detached,
		queued: make(chan struct{}), started: make(chan struct{}), ended: make(chan struct{}),
	}
	if r.session == "" && call.Socket != nil {
		r.session = call.Socket.ID()
	}
	r.call.Stream = r
	r.call.Queued = func() { close(r.queued) }
	r.call.Replaying = func() { r.replays = true }
	r.launch = sync.OnceFunc(func() {
		a.background.Go(func() {
			defer cancel(context.Canceled)
			r.do(ctx)
		})
	})
	return r
}

func (r *run) do(ctx context.Context) {
	defer close(r.ended)
	if r.done != nil {
		defer r.done()
	}
	r.track = r.api.buffers.follow(r.call.Request)
	result, closed, err := r.guarded(ctx)
	r.err = err
	if r.buf != nil { // else whoever started it says what it failed with
		r.api.logFailure(ctx, string(r.call.Request), err)
		r.err = r.finish(result, closed, err)
		r.api.buffers.end(r.buf, r.api.cfg.Now())
	}
	r.api.buffers.unfollow(r.track)
}

// guarded runs the invocation, and returns a panic of it as an internal error.
func (r *run) guarded(ctx context.Context) (result invoke.Result, closed scope.Closed, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.api.cfg.Log.Error("panic", "request", r.call.Request, "panic", p, "stack", string(debug.Stack()))
			err = carrel.Fail("httpapi.run", abi.Internal, "")
		}
	}()
	if ctx.Err() != nil { // it was cancelled before its turn to start came
		return invoke.Result{}, scope.Closed{}, context.Cause(ctx)
	}
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
	err = r.emit(client.Event{Type: client.EventCreated, Response: &client.Response{
		Status: client.StatusInProgress, Invocation: client.Invocation{ID: invocation, Evicted: []client.Evicted{}},
	}}, must)
	close(r.started)
	return err
}

// endBytes is room for the events of an invocation's end, besides its text.
const endBytes = 4 << 10

// How an event is added.
const (
	may  = iota // if there is room for it
	must        // in any case
	last        // as may, and none follows
	end         // as must, and none follows
)

// Delta implements invoke.Stream. What there is no room for fails here, before
// the turn is stored.
func (r *run) Delta(text string) error {
	if text == "" {
		return nil
	}
	piece := quoted(text)
	e := r.event(client.Event{Type: client.EventTextDelta, Delta: hole}, "delta", [][]byte{piece})
	if err := r.add(e, int64(len(piece)), endBytes, may); err != nil {
		return err
	}
	r.text = append(r.text, piece)
	return nil
}

// quoted returns a text as JSON, without its quotes.
func quoted(text string) []byte {
	b, err := json.Marshal(text)
	if err != nil { // no string fails
		return nil
	}
	return b[1 : len(b)-1]
}

// finish sends what follows the end of the request's scope, and returns what
// the invocation failed with in the end: an answer for which there is no room
// is a failure, too.
func (r *run) finish(result invoke.Result, closed scope.Closed, err error) error {
	if err == nil {
		if err = r.complete(result, closed); err == nil {
			return nil
		}
	}
	r.status = client.StatusFailed
	if evicted := evictedOf(closed.Evicted); len(evicted) > 0 && !r.evicts {
		_ = r.emit(client.Event{Type: client.EventEvicted, Evicted: evicted}, must) // which never fails
	}
	p := problemOf(err, string(r.call.Request))
	_ = r.emit(client.Event{Type: client.EventError, Error: &p}, must)
	_ = r.emit(client.Event{Type: client.EventFailed, Response: &client.Response{
		Status: client.StatusFailed,
		Invocation: client.Invocation{
			ID: r.buf.id, Usage: usageOf(result.Usage),
			Evicted: evictedOf(closed.Evicted), EvictionPending: closed.Pending,
		},
	}}, end)
	return err
}

// complete sends the answer. Errors: those of buffers.add; the failure is
// still to be sent.
func (r *run) complete(result invoke.Result, closed scope.Closed) error {
	text, isText := result.Output.(string)
	if isText {
		if err := r.textDone(text); err != nil {
			return err
		}
	}
	if evicted := evictedOf(closed.Evicted); len(evicted) > 0 {
		if err := r.emit(client.Event{Type: client.EventEvicted, Evicted: evicted}, may); err != nil {
			return err
		}
		r.evicts = true
	}
	answer := client.Response{Status: client.StatusCompleted, Invocation: invocationOf(result, closed)}
	kind := client.EventCompleted
	if result.FinishReason == model.FinishLength || result.FinishReason == model.FinishFilter {
		answer.Status, kind = client.StatusIncomplete, client.EventIncomplete
	}
	r.status = answer.Status
	if !isText {
		return r.emit(client.Event{Type: kind, Response: &answer}, last)
	}
	answer.Output = hole
	return r.add(r.event(client.Event{Type: kind, Response: &answer}, "output", r.text), 0, 0, last)
}

// textDone ends the text. The deltas are all of it, also where it did not come
// in pieces.
func (r *run) textDone(text string) error {
	if len(r.text) == 0 {
		if err := r.Delta(text); err != nil {
			return err
		}
	}
	own := int64(0)
	if len(r.text) > 1 {
		if whole := quoted(text); !isJoined(whole, r.text) { // a character was cut in two
			r.text, own = [][]byte{whole}, int64(len(whole))
		}
	}
	said := hole
	return r.add(r.event(client.Event{Type: client.EventTextDone, Text: &said}, "text", r.text), own, 0, may)
}

// isJoined reports whether the pieces are the whole.
func isJoined(whole []byte, pieces [][]byte) bool {
	for _, p := range pieces {
		rest, ok := bytes.CutPrefix(whole, p)
		if !ok {
			return false
		}
		whole = rest
	}
	return len(whole) == 0
}

func (r *run) emit(e client.Event, how int) error {
	return r.add(r.event(e, "", nil), 0, 0, how)
}

// add adds an event, of whose text some bytes are its own.
func (r *run) add(e event, own, spare int64, how int) error {
	own += int64(len(e.head) + len(e.tail))
	return r.api.buffers.add(r.buf, e, own, spare, how == must || how == end, how == last || how == end)
}

// hole stands for a text in an event that is about to be cut there.
const hole = " "

// event makes the next event. If it has a member whose value is hole, the text
// takes its place.
func (r *run) event(e client.Event, member string, text [][]byte) event {
	e.Sequence = r.buf.number()
	data, err := json.Marshal(e)
	if err != nil { // a guest's output is checked before it gets here
		r.api.cfg.Log.Error("event not encoded", "request", r.call.Request, "err", err)
		data = fmt.Appendf(nil, `{"type":%q,"sequence_number":%d}`, e.Type, e.Sequence)
	}
	if member != "" {
		// What the host did not make itself comes after it.
		at := []byte(`"` + member + `":"`)
		if head, tail, ok := bytes.Cut(data, append(at, hole+`"`...)); ok {
			return event{kind: e.Type, head: append(head[:len(head):len(head)], at...), tail: append([]byte(`"`), tail...), text: text}
		}
	}
	return event{kind: e.Type, head: data}
}
