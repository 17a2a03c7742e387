// Package model is the contract between a host and model providers, and the
// set of aliases by which plugins name models. Providers live in folders
// below it; modeltest is the contract in executable form.
//
// Rules for every provider:
//
//   - Generate is safe for concurrent use and keeps nothing between calls.
//   - Exactly the given messages are sent, in order, none added, none merged.
//   - A context that ends stops the call upstream, within a second.
//   - A failure is a *carrel.Error with code model_failed (its Msg says what a
//     user may know: the status, whether a retry makes sense; never a key, an
//     address or an upstream body), or wraps the context's error if the
//     context ended.
package model

import (
	"context"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// Request is one model call.
type Request struct {
	Model    string // the provider's own name for the model
	Messages []carrel.Message
	Options  abi.Generation
}

// FinishReason says why a model stopped.
type FinishReason string

// The finish reasons. A provider maps its own to these.
const (
	FinishStop    FinishReason = "stop"
	FinishLength  FinishReason = "length"
	FinishFilter  FinishReason = "content_filter"
	FinishUnknown FinishReason = "unknown"
)

// Response is a model's whole answer.
type Response struct {
	Text         string
	FinishReason FinishReason
	Model        string // as the provider reports it, else as requested
	Usage        carrel.Usage
}

// Provider is a model server, or what acts as one.
type Provider interface {
	// Generate calls the model and returns the whole answer. If onDelta is not
	// nil, the answer is streamed: each piece of text is passed on as it
	// arrives, unmerged, in order, from the calling goroutine, and the pieces
	// joined are Response.Text. An error of onDelta stops the call upstream
	// and is returned, wrapped. Text that was passed on before a failure is
	// no answer.
	Generate(ctx context.Context, r Request, onDelta func(text string) error) (Response, error)
}
