package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// Target is what a model alias stands for.
type Target struct {
	Provider Provider
	Model    string        // the provider's own name for the model
	Timeout  time.Duration // for one call; 0 = only the request's own deadline
}

// Set maps aliases to models. It is read-only once it is in use.
type Set map[string]Target

// Aliases returns the aliases in order.
func (s Set) Aliases() []string { return slices.Sorted(maps.Keys(s)) }

// Generate calls the model behind an alias, within the alias's timeout.
// r.Model is ignored. Beyond what Provider.Generate returns, an alias that is
// not in the set and a call that outlives the alias's timeout are
// model_failed.
func (s Set) Generate(ctx context.Context, alias string, r Request, onDelta func(text string) error) (Response, error) {
	const op = "model.Generate"
	t, ok := s[alias]
	if !ok {
		return Response{}, carrel.Fail(op, abi.ModelFailed, fmt.Sprintf(
			"this host has no model alias %q; its operator can add it under `models`", alias))
	}
	r.Model = t.Model
	if t.Timeout == 0 {
		return t.Provider.Generate(ctx, r, onDelta)
	}
	inner, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	resp, err := t.Provider.Generate(inner, r, onDelta)
	if err != nil && ctx.Err() == nil && errors.Is(inner.Err(), context.DeadlineExceeded) {
		return Response{}, &carrel.Error{
			Op: op, Code: abi.ModelFailed, Limit: "models." + alias + ".timeout", Err: err,
			Msg: fmt.Sprintf("the model gave no whole answer within %v (models.%s.timeout)", t.Timeout, alias),
		}
	}
	return resp, err
}
