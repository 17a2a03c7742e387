package carreltest_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	carrel "github.com/carrelhost/carrel/sdk/go"
	"github.com/carrelhost/carrel/sdk/go/carreltest"

	"github.com/carrelhost/carrel/abi"
)

// TestAWarmupRunsAloneInTheWorld has the handler ask for all that a host can
// give.
func TestAWarmupRunsAloneInTheWorld(t *testing.T) {
	var told []string
	note := func(err error) {
		var r *carrel.Refusal
		if errors.As(err, &r) && r.Errno == abi.ENOSYS {
			told = append(told, r.Op)
		}
	}
	p := plugin(func(ctx *carrel.Context, in number) (number, error) {
		ctx.Log().Info("warm")
		_, err := ctx.Info()
		note(err)
		note(ctx.Emit("x"))
		_, err = ctx.Invoke("com.acme.Test.double", number{1}, nil)
		note(err)
		if ctx.Has(string(abi.OpInvoke)) || time.Until(ctx.Deadline()) < time.Minute || ctx.Rand() == nil {
			return number{}, errors.New("it is not as in a warm-up")
		}
		return double(ctx, in)
	})
	p.Warmup = &carrel.Warmup{Method: "com.acme.Test.run", Params: number{1}}
	h, err := carreltest.New(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Warmup(); err != nil || !slices.Equal(told, []string{"context", "emit", "invoke"}) || len(h.Logs) != 1 {
		t.Errorf("got %v, %q, %v", err, told, h.Logs)
	}
	p.Warmup.Params = number{-1}
	if h, err = carreltest.New(p); err != nil {
		t.Fatal(err)
	}
	if err := h.Warmup(); err == nil || !strings.Contains(err.Error(), "leave it out") || !strings.Contains(err.Error(), "negative") {
		t.Errorf("got %v", err)
	}
}

func TestWarmupsThatNoHostWouldRun(t *testing.T) {
	h := hostOf(t, double)
	if err := h.Warmup(); err == nil || !strings.Contains(err.Error(), "declares no warm-up") {
		t.Errorf("got %v", err)
	}
	p := plugin(double)
	p.Warmup = &carrel.Warmup{Method: "com.acme.Test.double"}
	if _, err := carreltest.New(p); err == nil || !strings.Contains(err.Error(), "params of the warm-up do not match") {
		t.Errorf("got %v", err)
	}
}
