package invoke

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/idempotency"
	"github.com/carrelhost/carrel/host/model"
	"github.com/carrelhost/carrel/store"
)

// once waits until a call with an idempotency key is the only one with it, and
// looks for the answer of an earlier one. If there is none (nil) the call is
// to be made: its method is found, and the caller settles it after its end,
// saying whether it succeeded.
func (v *Invoker) once(ctx context.Context, f *frame) (earlier *Result, settle func(ok bool), err error) {
	c := f.tree.call
	once, err := v.cfg.Repeats.Enter(ctx, idempotency.Call{
		Key: c.IdempotencyKey, Caller: c.Caller, Address: c.Address, Session: c.Session, Args: c.Args.Value,
	})
	if err != nil {
		return nil, nil, err
	}
	// Also at a panic, or nobody could ever use the key again.
	defer func() {
		if settle == nil {
			once.End(ctx, false)
		}
	}()
	// What is not there any more answers nothing, not even what it answered.
	if err := v.find(ctx, f); err != nil {
		return nil, nil, err
	}
	stored, err := once.Claim(ctx, f.method.Spec.Kind == abi.KindHandler)
	if err == nil && stored == nil {
		f.tree.once = once
		return nil, func(ok bool) {
			f.running.Release()
			once.End(ctx, ok)
		}, nil
	}
	f.running.Release()
	if err != nil {
		return nil, nil, err
	}
	result, err := openAnswer(stored.Answer)
	if err != nil {
		return nil, nil, err
	}
	result.Trimmed = stored.Trimmed
	return &result, nil, nil
}

// replay tells a call's edge of the answer of an earlier one.
func replay(c Call, earlier Result) (Result, error) {
	if c.Replaying != nil {
		c.Replaying()
	}
	if c.Stream != nil {
		if err := c.Stream.Started(earlier.ID); err != nil {
			return Result{}, fmt.Errorf("stream: %w", err)
		}
	}
	return earlier, nil
}

// once is the claim that an invocation answers, or nil: one that a guest makes
// answers none.
func (f *frame) once() *idempotency.Once {
	if !f.outermost() {
		return nil
	}
	return f.tree.once
}

// sealed is the answer that is stored with a chat method's turn; nil if nobody
// asked for that. What the turn trims is not known yet: the store adds it.
func (f *frame) sealed(r Result) (*store.Answer, error) {
	once := f.once()
	if once == nil {
		return nil, nil //nolint:nilnil // no answer is kept
	}
	answer, err := packAnswer(r)
	if err != nil {
		return nil, err
	}
	return once.Seal(answer), nil
}

// answered stores a handler's answer. One that cannot be stored is given all
// the same: the work is done, and whoever repeats the call learns that it was
// begun.
func (v *Invoker) answered(ctx context.Context, f *frame, r Result) {
	once := f.once()
	if once == nil {
		return
	}
	answer, err := packAnswer(r)
	if err == nil {
		err = once.Answer(ctx, answer)
	} else {
		once.Doubt()
	}
	if err != nil {
		v.cfg.Log.Error("handler's answer not kept", "request", f.tree.call.Request, "err", err)
	}
}

// answerHead is what is kept of a result besides its output, which follows it
// after a newline. It is in stores for as long as idempotency.Kept.
type answerHead struct {
	ID           string             `json:"id"`
	Text         bool               `json:"text"` // the output is text, else JSON
	MemoryID     carrel.MemoryID    `json:"memoryId,omitempty"`
	Model        string             `json:"model,omitempty"`
	FinishReason model.FinishReason `json:"finishReason,omitempty"`
	Usage        Usage              `json:"usage"`
}

func packAnswer(r Result) ([]byte, error) {
	h := answerHead{ID: r.ID, MemoryID: r.MemoryID, Model: r.Model, FinishReason: r.FinishReason, Usage: r.Usage}
	var output []byte
	switch o := r.Output.(type) {
	case string:
		h.Text, output = true, []byte(o)
	case json.RawMessage:
		output = o
	default:
		return nil, fmt.Errorf("keep answer: an output is text or JSON, not %T", o)
	}
	head, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("keep answer: %w", err)
	}
	return append(append(head, '\n'), output...), nil
}

func openAnswer(stored []byte) (Result, error) {
	head, output, ok := bytes.Cut(stored, []byte{'\n'})
	if !ok {
		return Result{}, errors.New("read kept answer: it has no head")
	}
	var h answerHead
	if err := json.Unmarshal(head, &h); err != nil {
		return Result{}, fmt.Errorf("read kept answer: %w", err)
	}
	r := Result{
		ID: h.ID, MemoryID: h.MemoryID, Model: h.Model, FinishReason: h.FinishReason, Usage: h.Usage,
		Output: json.RawMessage(output), Replayed: true,
	}
	if h.Text {
		r.Output = string(output)
	}
	return r, nil
}
