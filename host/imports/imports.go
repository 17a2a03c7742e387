// Package imports is what guests may ask of the host: the operations of the
// import `call`, one file per topic. It decodes requests strictly, hands them
// to the invocation that the guest runs in, and gives every failure its errno.
// Identity comes from the invocation; no operation takes it as an argument.
package imports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/strictjson"
)

// Invoker is the invocation that a guest runs in, as far as the guest may use
// it. Errors with a meaning are *carrel.Error values.
type Invoker interface {
	Describe() Context
	Invoke(ctx context.Context, r Invoke) (Invoked, error)
	Generate(ctx context.Context, r Generate) (Generated, error)
	DefaultMemoryID(ctx context.Context, s carrel.ServiceName, m carrel.MethodName) (Memory, error)
	// Messages returns up to limit messages with seqs above after, and whether
	// there are more. It may stop before limit, but never at none.
	Messages(ctx context.Context, of Memory, after int64, limit int) (page []Message, more bool, err error)
	Append(ctx context.Context, to Memory, turn []carrel.Message) (Appended, error)
	// Delete ends a history, DeleteTurn takes one turn out of it. They report
	// whether it was there.
	Delete(ctx context.Context, m Memory) (bool, error)
	DeleteTurn(ctx context.Context, m Memory, turn int64) (bool, error)
	List(ctx context.Context, prefix string, after string, limit int) ([]Listed, string, error)
}

// Host answers the host calls of one guest call.
type Host struct{ in Invoker }

// New returns the host of a guest call that belongs to an invocation.
func New(in Invoker) *Host { return &Host{in} }

var _ sandbox.Host = (*Host)(nil)

// operation decodes a request, performs it and returns the result, to be
// encoded as JSON.
type operation func(h *Host, ctx context.Context, request []byte) (any, error)

// operations are those that this host performs. The others of abi.Ops are
// ENOSYS.
var operations = map[abi.Op]operation{
	abi.OpContext:         (*Host).context,
	abi.OpInvoke:          (*Host).invoke,
	abi.OpModelGenerate:   (*Host).generate,
	abi.OpMemoryDefaultID: (*Host).defaultID,
	abi.OpMemoryMessages:  (*Host).messages,
	abi.OpMemoryAppend:    (*Host).append,
	abi.OpMemoryDelete:    (*Host).delete,
	abi.OpMemoryList:      (*Host).list,
	abi.OpConfigGet:       (*Host).config,
}

// Knows implements sandbox.Host.
func (h *Host) Knows(feature string) bool {
	_, ok := operations[abi.Op(feature)]
	return ok
}

// Do implements sandbox.Host.
func (h *Host) Do(ctx context.Context, op abi.Op, request []byte) ([]byte, *sandbox.Refusal) {
	do, ok := operations[op]
	if !ok {
		return nil, &sandbox.Refusal{
			Errno: abi.ENOSYS, Code: abi.BadRequest.String(),
			Message: fmt.Sprintf("this host has no operation %.64q", string(op)),
			Remedy:  "ask with `feature` before calling it",
		}
	}
	result, err := do(h, ctx, request)
	if err != nil {
		return nil, refusal(err)
	}
	b, err := json.Marshal(result)
	if err != nil {
		return nil, refusal(fmt.Errorf("encode result of %s: %w", op, err))
	}
	return b, nil
}

// decode reads an operation's request: an object without unknown members.
func decode[T any](request []byte) (T, error) {
	var in T
	err := strictjson.Into(request, &in, strictjson.DefaultDepth)
	return in, err
}

// refusal is what a guest may know of a failure. A guest is a stranger: what
// nobody classified stays inside.
func refusal(err error) *sandbox.Refusal {
	code := carrel.CodeOf(err)
	r := &sandbox.Refusal{Errno: errnos[code], Code: code.String(), Message: "the host failed"}
	if e, ok := errors.AsType[*carrel.Error](err); ok && code != abi.Internal {
		if e.Msg != "" {
			r.Message = e.Msg
		}
		if e.Limit != "" && !strings.Contains(e.Msg, e.Limit) {
			r.Message += fmt.Sprintf(" (limit %s)", e.Limit)
		}
		for i, f := range e.Faults {
			if i == maxFaults {
				break
			}
			r.Message += fmt.Sprintf("; %s: %s", f.Pointer, f.Message)
		}
	}
	return r
}

// maxFaults bounds how many faults of a document a guest is told.
const maxFaults = 8
