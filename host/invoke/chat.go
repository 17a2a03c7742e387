package invoke

import (
	"context"
	"errors"
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
	"github.com/carrelhost/carrel/host/model"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/store"
)

// chat runs a chat method: the order of its steps is that of the memory
// contract, "One invocation of a chat method".
func (v *Invoker) chat(ctx context.Context, q *request, running plugins.Running, m *plugins.Method, c Call) (Result, error) {
	key, err := memory.Resolve(
		memory.Ambient{Caller: c.Caller, Request: q.ID(), Header: c.Header},
		memory.Target{
			Plugin: c.Address.Plugin, Service: m.Service, Method: c.Address.Method, Scope: m.Scope,
			IDParam: m.Spec.MemoryID, Required: m.Spec.MemoryIDRequired,
			Provider: running.Manifest.DefaultMemoryID, AllowLeak: running.Manifest.AllowDefaultIDLeak,
		}, c.Args)
	if err != nil {
		return Result{}, err
	}
	if err := m.Params.Validate(c.Args, c.ArgsBytes); err != nil {
		return Result{}, err
	}
	// Both messages depend on the params only. They are rendered before
	// anything is touched, so that params that are refused end no history.
	system, user, err := render(m, c.Args)
	if err != nil {
		return Result{}, err
	}

	if q.release, err = v.turns.acquire(ctx, key, c.RejectBusy); err != nil {
		return Result{}, err
	}
	use := scope.Use{
		Key: key, Plugin: c.Address.Plugin, Service: m.Scope, Application: running.Application,
		By: store.Toucher{Key: c.Caller.Key, Subject: c.Caller.Subject},
	}
	if err := q.Touch(ctx, use); err != nil {
		return Result{}, fmt.Errorf("touch: %w", err)
	}
	view, err := v.cfg.Histories.View(ctx, key, m.Spec.Window.Max)
	if err != nil {
		return Result{}, fmt.Errorf("read history: %w", err)
	}
	system, change := memory.System(view.System, system)
	turn := []carrel.Message{{Role: carrel.RoleUser, Content: user}}

	answer, err := v.cfg.Models.Generate(ctx, m.Spec.Model, model.Request{
		Messages: memory.Window(m.Spec.Window.Max, system, view.Recent, turn),
		Options:  m.Spec.Generation,
	}, nil)
	if err != nil {
		return Result{}, fmt.Errorf("call model: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("before commit: %w", err)
	}
	turn = append(turn, carrel.Message{Role: carrel.RoleAssistant, Content: answer.Text})

	// From here on the outcome is the store's alone: a client that goes away
	// during a commit must not leave anybody in doubt about it.
	commit, cancel := context.WithTimeout(context.WithoutCancel(ctx), v.cfg.Limits.CommitTimeout)
	defer cancel()
	if err := q.Commit(commit, use, view.Generation, change, turn); err != nil {
		return Result{}, v.commitFailed(commit, err)
	}
	return Result{
		ID: v.cfg.NewID(), Output: answer.Text, MemoryID: key.ID,
		Model: answer.Model, FinishReason: answer.FinishReason, Usage: answer.Usage,
	}, nil
}

// commitFailed says of a commit that took too long, and of no other, that
// nobody knows what became of it.
func (v *Invoker) commitFailed(commit context.Context, err error) error {
	if commit.Err() == nil || !errors.Is(err, commit.Err()) {
		return fmt.Errorf("commit: %w", err)
	}
	return &carrel.Error{
		Op: "invoke.commit", Code: abi.Timeout, Limit: "commitTimeout", Err: err,
		Msg: fmt.Sprintf("the store did not confirm the turn within %v, so it may be stored or not; read the history before a retry",
			v.cfg.Limits.CommitTimeout),
	}
}

// render returns a call's system message, "" if none is declared, and its
// user message. Neither may come out empty: invalid_params.
func render(m *plugins.Method, args map[string]any) (system, user string, err error) {
	if m.System != nil {
		if system, err = m.System.Render(args); err != nil {
			return "", "", err
		}
		if system == "" {
			return "", "", carrel.Fail("invoke.render", abi.InvalidParams, "with these params the system message is empty")
		}
	}
	if m.User == nil {
		user, _ = args[m.Spec.UserParam].(string)
	} else if user, err = m.User.Render(args); err != nil {
		return "", "", err
	}
	if user == "" {
		return "", "", carrel.Fail("invoke.render", abi.InvalidParams, "with these params the user message is empty")
	}
	return system, user, nil
}
