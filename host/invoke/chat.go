package invoke

import (
	"context"
	"errors"
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
	"github.com/carrelhost/carrel/host/model"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/store"
)

// chat runs a chat method: the order of its steps is that of the memory
// contract, "One invocation of a chat method".
func (v *Invoker) chat(ctx context.Context, f *frame, args Args) (Result, error) {
	m := f.method
	target, err := v.target(ctx, f)
	if err != nil {
		return Result{}, err
	}
	if err := memory.CheckID(target, args.Value); err != nil {
		return Result{}, err
	}
	if err := m.Params.Validate(args.Value, len(args.JSON)); err != nil {
		return Result{}, err
	}
	// Both messages depend on the params only. They are rendered before
	// anything is touched, so that params that are refused end no history and
	// run no code: a default id may be the plugin's own code's to say.
	system, user, err := render(m, args.Value)
	if err != nil {
		return Result{}, err
	}
	key, err := v.resolve(ctx, f, target, args.Value)
	if err != nil {
		return Result{}, err
	}
	f.memory = key.ID

	release, err := v.turns.acquire(ctx, key, f, f.tree.call.RejectBusy, f.tree.queued)
	if err != nil {
		return Result{}, err
	}
	if f.outermost() {
		f.tree.release = release
	} else {
		defer release()
	}
	if err := f.tree.scope.Touch(ctx, f.use(key)); err != nil {
		return Result{}, fmt.Errorf("touch: %w", err)
	}
	if f.past, err = v.past(ctx, m.Spec, key); err != nil {
		return Result{}, err
	}
	system, change := memory.System(f.past.view.System, system)
	turn := []carrel.Message{{Role: carrel.RoleUser, Content: user}}
	sent, err := f.past.window.Send(system, f.past.turns, turn)
	if err != nil {
		return Result{}, err
	}

	onDelta, err := f.start()
	if err != nil {
		return Result{}, err
	}
	answer, err := v.cfg.Models.Generate(ctx, m.Spec.Model, model.Request{Messages: sent, Options: m.Spec.Generation}, onDelta)
	if err != nil {
		return Result{}, modelFailed(m.Spec.Model, err)
	}
	f.usage.add(Usage{Usage: answer.Usage})
	turn = append(turn, carrel.Message{Role: carrel.RoleAssistant, Content: answer.Text})
	result := Result{
		ID: f.id, Output: answer.Text, MemoryID: key.ID,
		Model: answer.Model, FinishReason: answer.FinishReason, Usage: f.usage,
	}
	kept, err := f.sealed(result)
	if err != nil {
		return Result{}, err
	}
	done, err := v.commit(ctx, f, key, store.Commit{
		Answer: kept, Generation: f.past.generation, System: change, Seeds: f.past.seeds, Turns: []store.NewTurn{{Messages: turn}},
		DropTo: f.past.dropTo(m.Spec, system, turn), TokenRate: memory.TokenRate(sent, answer.Usage),
	})
	if err != nil {
		return Result{}, err
	}
	result.Trimmed = done.Trimmed
	return result, nil
}

// modelFailed is an error of a model call. Which alias it was is nobody's
// secret, and the operator's first question.
func modelFailed(alias string, err error) error {
	if e, ok := errors.AsType[*carrel.Error](err); ok && e.Code == abi.ModelFailed && e.Msg != "" {
		named := *e
		named.Msg = fmt.Sprintf("model %q: %s", alias, e.Msg)
		err = &named
	}
	return fmt.Errorf("call model: %w", err)
}

// target is the chat method of an invocation, as far as its memory id depends
// on it.
func (v *Invoker) target(ctx context.Context, f *frame) (memory.Target, error) {
	t := memory.Target{
		Plugin: f.address.Plugin, Service: f.method.Service, Method: f.address.Method, Scope: f.method.Scope,
		IDParam: f.method.Spec.MemoryID, Required: f.method.Spec.MemoryIDRequired,
		Provider: f.running.Manifest.DefaultMemoryID, AllowLeak: f.running.Manifest.AllowDefaultIDLeak,
	}
	if t.IDParam == "" {
		return t, nil
	}
	var err error
	t.Shared, err = v.shared(ctx, f)
	return t, err
}

// resolve returns the memory key of a chat method's invocation.
func (v *Invoker) resolve(ctx context.Context, f *frame, t memory.Target, args map[string]any) (carrel.MemoryKey, error) {
	return memory.Resolve(memory.Ambient{
		Caller: f.tree.call.Caller, Request: f.tree.scope.ID(), Session: f.tree.sessionID(), Header: f.tree.call.Header,
		Exported: func() (string, error) { return v.exportedID(ctx, f) },
	}, t, args)
}

// start tells the client that its invocation has begun, and returns where the
// pieces of the answer go: only the client's own invocation is streamed.
func (f *frame) start() (onDelta func(string) error, err error) {
	stream := f.tree.call.Stream
	if stream == nil || !f.outermost() {
		return nil, nil //nolint:nilnil // nobody is told of pieces
	}
	if err := stream.Started(f.id); err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	return stream.Delta, nil
}

// commit changes a history, within the limit on its messages, unless ctx has
// ended or does while a scrub runs. Once it begins the outcome is the store's
// alone: a client that goes away during a commit must not leave anybody in
// doubt about it.
func (v *Invoker) commit(ctx context.Context, f *frame, k carrel.MemoryKey, c store.Commit) (store.Committed, error) {
	if err := ctx.Err(); err != nil {
		return store.Committed{}, fmt.Errorf("before commit: %w", err)
	}
	ctx, leave, err := v.cfg.Scopes.Pass(ctx)
	if err != nil {
		return store.Committed{}, fmt.Errorf("before commit: %w", err)
	}
	defer leave()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), v.cfg.Limits.CommitTimeout)
	defer cancel()
	c.Most = v.cfg.Limits.MessagesPerHistory
	done, err := f.tree.scope.Commit(ctx, f.use(k), c)
	switch {
	case err == nil && c.Generation == 0:
		f.began(k, done.Generation)
		return done, nil
	case err == nil:
		return done, nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()): // nobody knows what becomes of it
		if c.Answer != nil {
			f.tree.once.Doubt()
		}
		return store.Committed{}, &carrel.Error{
			Op: "invoke.commit", Code: abi.Timeout, Limit: "commitTimeout", Err: err,
			Msg: fmt.Sprintf("the store did not confirm the turn within %v, so it may be stored or not; %s",
				v.cfg.Limits.CommitTimeout, findOut(c)),
		}
	case carrel.CodeOf(err) == abi.Internal: // nobody knows what became of it
		return store.Committed{}, &carrel.Error{
			Op: "invoke.commit", Code: abi.Internal, Err: err,
			Msg: "the store failed while the turn was being stored, so it may be stored or not; " + findOut(c),
		}
	default:
		return store.Committed{}, fmt.Errorf("commit: %w", err)
	}
}

// findOut says how to learn what became of a commit.
func findOut(c store.Commit) string {
	if c.Answer != nil {
		return "repeat the call with its Idempotency-Key"
	}
	return "read the history before a retry"
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
