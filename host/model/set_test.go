package model_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/model"
)

// provider answers after a while, on the test's clock. A real one needs a
// network, whose waits synctest cannot see.
type provider struct {
	takes time.Duration
	err   error
}

func (p provider) Generate(ctx context.Context, r model.Request, onDelta func(string) error) (model.Response, error) {
	select {
	case <-time.After(p.takes):
	case <-ctx.Done():
		return model.Response{}, ctx.Err()
	}
	if p.err != nil {
		return model.Response{}, p.err
	}
	if onDelta != nil {
		if err := onDelta("hi"); err != nil {
			return model.Response{}, err
		}
	}
	return model.Response{Text: "hi", Model: r.Model}, nil
}

func TestAliasesAreInOrder(t *testing.T) {
	set := model.Set{"small": {}, "default": {}, "large": {}}
	if got := set.Aliases(); !slices.Equal(got, []string{"default", "large", "small"}) {
		t.Errorf("aliases %q", got)
	}
}

func TestSetCallsTheModelBehindTheAlias(t *testing.T) {
	set := model.Set{
		"default": {Provider: provider{}, Model: "m1"},
		"bounded": {Provider: provider{}, Model: "m2", Timeout: time.Hour},
	}
	for alias, want := range map[string]string{"default": "m1", "bounded": "m2"} {
		var pieces []string
		resp, err := set.Generate(t.Context(), alias, model.Request{Model: "ignored"}, func(text string) error {
			pieces = append(pieces, text)
			return nil
		})
		if err != nil || resp.Text != "hi" || resp.Model != want || !slices.Equal(pieces, []string{"hi"}) {
			t.Errorf("%s: %+v, pieces %q, error %v", alias, resp, pieces, err)
		}
	}
}

func TestSetFailures(t *testing.T) {
	upstream := carrel.Fail("provider.Generate", abi.ModelFailed, "status 500")
	enough := errors.New("enough")
	for name, tc := range map[string]struct {
		alias    string
		target   model.Target
		deadline time.Duration // of the caller; 0 = none
		cancel   time.Duration // when the caller gives up; 0 = never
		onDelta  func(string) error
		after    time.Duration // when the call ends
		code     abi.Code
		limit    string
		wraps    error
	}{
		"an alias that is not there is model_failed": {
			alias: "other", code: abi.ModelFailed,
		},
		"a call that outlives the alias's timeout is model_failed": {
			target: model.Target{Provider: provider{takes: time.Hour}, Timeout: time.Minute},
			after:  time.Minute, code: abi.ModelFailed, limit: "models.default.timeout",
		},
		"the alias's timeout counts although the caller's deadline is later": {
			target:   model.Target{Provider: provider{takes: time.Hour}, Timeout: time.Minute},
			deadline: 2 * time.Minute,
			after:    time.Minute, code: abi.ModelFailed, limit: "models.default.timeout",
		},
		"the caller's earlier deadline stays the context's error": {
			target:   model.Target{Provider: provider{takes: time.Hour}, Timeout: time.Minute},
			deadline: time.Second,
			after:    time.Second, code: abi.Timeout, wraps: context.DeadlineExceeded,
		},
		"without a timeout the caller's deadline stays the context's error": {
			target:   model.Target{Provider: provider{takes: time.Hour}},
			deadline: time.Second,
			after:    time.Second, code: abi.Timeout, wraps: context.DeadlineExceeded,
		},
		"a caller that gives up is canceled": {
			target: model.Target{Provider: provider{takes: time.Hour}, Timeout: time.Minute},
			cancel: time.Second,
			after:  time.Second, code: abi.Canceled, wraps: context.Canceled,
		},
		"a failure of the provider is passed on": {
			target: model.Target{Provider: provider{err: upstream}, Timeout: time.Minute},
			code:   abi.ModelFailed, wraps: upstream,
		},
		"an error of the receiver is passed on": {
			target:  model.Target{Provider: provider{}, Timeout: time.Minute},
			onDelta: func(string) error { return enough },
			code:    abi.Internal, wraps: enough,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tc.alias == "" {
					tc.alias = "default"
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, tc.deadline)
					defer cancel()
				}
				if tc.cancel > 0 {
					time.AfterFunc(tc.cancel, cancel)
				}
				start := time.Now()
				resp, err := model.Set{"default": tc.target}.Generate(ctx, tc.alias, model.Request{}, tc.onDelta)
				if got := time.Since(start); got != tc.after {
					t.Errorf("the call took %v, want %v", got, tc.after)
				}
				if carrel.CodeOf(err) != tc.code || resp != (model.Response{}) {
					t.Errorf("response %+v, error %v; want code %v", resp, err, tc.code)
				}
				if tc.wraps != nil && !errors.Is(err, tc.wraps) {
					t.Errorf("the error %v does not wrap %v", err, tc.wraps)
				}
				limit, msg := "", ""
				if e, ok := errors.AsType[*carrel.Error](err); ok {
					limit, msg = e.Limit, e.Msg
				}
				if limit != tc.limit || !strings.Contains(msg, tc.limit) {
					t.Errorf("the limit is %q and the message %q, want limit %q", limit, msg, tc.limit)
				}
				if tc.alias == "other" && !strings.Contains(msg, `"other"`) {
					t.Errorf("the message %q does not name the alias", msg)
				}
			})
		})
	}
}
