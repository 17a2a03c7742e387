package lifetime_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel/host/lifetime"
)

func TestAContextEndsAsAnyOther(t *testing.T) {
	slow, gone := errors.New("slow"), errors.New("gone")
	const most = time.Minute
	for _, c := range []struct {
		name        string
		most        time.Duration
		outer       time.Duration // the caller's deadline; 0 = none
		end         func(cancel context.CancelCauseFunc, end func(error))
		want, cause error
	}{
		{"it goes on before its deadline", most, 0, func(context.CancelCauseFunc, func(error)) { time.Sleep(most - 1) }, nil, nil},
		{"it goes on without a deadline", 0, 0, func(context.CancelCauseFunc, func(error)) { time.Sleep(100 * most) }, nil, nil},
		{"it ends at its deadline, with the cause of that", most, 0,
			func(context.CancelCauseFunc, func(error)) { time.Sleep(most) }, context.DeadlineExceeded, slow},
		{"a later deadline of the caller's changes nothing", most, 2 * most,
			func(context.CancelCauseFunc, func(error)) { time.Sleep(most) }, context.DeadlineExceeded, slow},
		{"it ends at the caller's deadline if that is earlier", most, most / 2,
			func(context.CancelCauseFunc, func(error)) { time.Sleep(most / 2) }, context.DeadlineExceeded, context.DeadlineExceeded},
		{"a time that is over ends it at once", -1, 0, func(context.CancelCauseFunc, func(error)) {}, context.DeadlineExceeded, slow},
		{"it ends with its caller, with the caller's cause", most, 0,
			func(cancel context.CancelCauseFunc, _ func(error)) { cancel(gone) }, context.Canceled, gone},
		{"without a deadline it ends with its caller, too", 0, 0,
			func(cancel context.CancelCauseFunc, _ func(error)) { cancel(gone) }, context.Canceled, gone},
		{"it can be ended", most, 0, func(_ context.CancelCauseFunc, end func(error)) { end(nil) }, context.Canceled, context.Canceled},
		{"it can be ended with a cause, and no other one follows", most, 0, func(cancel context.CancelCauseFunc, end func(error)) {
			end(gone)
			end(slow)
			cancel(slow)
			time.Sleep(most)
		}, context.Canceled, gone},
		{"an end after the deadline changes nothing", most, 0, func(_ context.CancelCauseFunc, end func(error)) {
			time.Sleep(most + 1)
			end(gone)
		}, context.DeadlineExceeded, slow},
		{"without a deadline it can be ended, too", 0, 0,
			func(_ context.CancelCauseFunc, end func(error)) { end(nil) }, context.Canceled, context.Canceled},
	} {
		for _, waited := range []struct {
			name string
			wait func(ctx context.Context)
		}{
			{"somebody waits", func(ctx context.Context) { ctx.Done() }},
			{"nobody waits", func(context.Context) {}},
			{"nobody waits, and its cause is asked for first", nil},
		} {
			t.Run(c.name+" while "+waited.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					caller, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					first := c.most
					if c.outer > 0 {
						var stop context.CancelFunc
						caller, stop = context.WithTimeout(caller, c.outer)
						defer stop()
						first = min(first, c.outer)
					}
					ctx := lifetime.New(caller, c.most, func() error { return slow })
					defer ctx.End(nil)
					if at, ok := ctx.Deadline(); ok != (first != 0) || ok && time.Until(at) != first {
						t.Errorf("its deadline is in %v (%t), want %v", time.Until(at), ok, first)
					}
					if waited.wait != nil {
						waited.wait(ctx)
					}
					c.end(cancel, ctx.End)
					synctest.Wait()
					if waited.wait == nil {
						wantCause(ctx, t, c.cause)
					}
					wantEnd(ctx, t, c.want, c.cause)
					// What is made of it ends as it does.
					child, stop := context.WithCancel(ctx)
					defer stop()
					wantEnd(child, t, c.want, c.cause)
				})
			})
		}
	}
}

func wantEnd(ctx context.Context, t *testing.T, want, cause error) {
	t.Helper()
	if got := ctx.Err(); !errors.Is(got, want) || want == nil && got != nil {
		t.Errorf("its error is %v, want %v", got, want)
	}
	wantCause(ctx, t, cause)
	select {
	case <-ctx.Done():
		if want == nil {
			t.Error("it ended")
		}
	default:
		if want != nil {
			t.Error("it goes on")
		}
	}
}

func wantCause(ctx context.Context, t *testing.T, cause error) {
	t.Helper()
	if got := context.Cause(ctx); !errors.Is(got, cause) || cause == nil && got != nil {
		t.Errorf("its cause is %v, want %v", got, cause)
	}
}

func TestWhoWaitsIsToldOfTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := lifetime.New(t.Context(), time.Minute, nil)
		defer ctx.End(nil)
		child, stop := context.WithCancel(ctx)
		defer stop()
		begin := time.Now()
		<-child.Done()
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("it took %v", took)
		}
		wantEnd(ctx, t, context.DeadlineExceeded, context.DeadlineExceeded)
	})
}

func TestAValueIsFoundWhetherSomebodyWaitsOrNot(t *testing.T) {
	type key struct{}
	ctx := lifetime.New(context.WithValue(t.Context(), key{}, 7), time.Minute, nil)
	defer ctx.End(nil)
	for range 2 {
		if got := ctx.Value(key{}); got != 7 {
			t.Errorf("got %v", got)
		}
		ctx.Done()
	}
}
