package carreltest_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	carrel "github.com/carrelhost/carrel/sdk/go"
	"github.com/carrelhost/carrel/sdk/go/carreltest"

	"github.com/carrelhost/carrel/abi"
)

func TestInvokeOwnAndOtherMethods(t *testing.T) {
	var asked string
	host, err := in(t, func(h *carreltest.Host) {
		h.Methods["com.acme.Test.chat"] = carreltest.Answers("first", "second")
		h.Methods["billing/com.acme.Bills.list"] = func(args json.RawMessage) (any, error) {
			asked = string(args)
			return []int{1, 2}, nil
		}
		h.Methods["billing/com.acme.Bills.pay"] = func(json.RawMessage) (any, error) { return nil, carrel.Fail("broke", "no money") }
	}, func(ctx *carrel.Context) error {
		for _, want := range []string{"first", "second"} {
			if got, err := carrel.Invoke[string](ctx, "com.acme.Test.chat", map[string]string{"id": "1", "msg": "hi"}); err != nil || got != want {
				t.Errorf("got %q, %v", got, err)
			}
		}
		_, err := ctx.Invoke("com.acme.Test.chat", nil, nil)
		if r := refusalOf(t, err); r.Errno != abi.EIO || !strings.Contains(r.Message, "used up") {
			t.Errorf("got %v", r)
		}
		if got, err := carrel.Invoke[[]int](ctx, "billing/com.acme.Bills.list", nil); err != nil || !slices.Equal(got, []int{1, 2}) || asked != "{}" {
			t.Errorf("got %v, %v for %q", got, err, asked)
		}
		_, err = ctx.Invoke("billing/com.acme.Bills.pay", nil, nil)
		if r := refusalOf(t, err); r.Code != "guest_failed" || !strings.Contains(r.Message, "no money") {
			t.Errorf("got %v", r)
		}
		if got, err := carrel.Invoke[number](ctx, "com.acme.Test.double", number{4}); err != nil || got.N != 8 {
			t.Errorf("got %v, %v: the plugin's own handlers run", got, err)
		}
		_, err = ctx.Invoke("com.acme.Test.double", number{-1}, nil)
		if r := refusalOf(t, err); r.Code != "guest_failed" || !strings.Contains(r.Message, "negative") {
			t.Errorf("got %v", r)
		}
		_, err = ctx.Invoke("com.acme.Test.double", nil, nil)
		if r := refusalOf(t, err); r.Code != "invalid_params" || r.Errno != abi.EINVAL {
			t.Errorf("got %v", r)
		}
		_, err = ctx.Invoke("mail/com.acme.Mail.send", nil, nil)
		if r := refusalOf(t, err); r.Errno != abi.EPERM || !strings.Contains(r.Remedy, "mail/com.acme.Mail.send") {
			t.Errorf("got %v", r)
		}
		_, err = ctx.Invoke("com.acme.Test.nope", nil, nil)
		if r := refusalOf(t, err); r.Errno != abi.ENOENT {
			t.Errorf("got %v", r)
		}
		var wrong int
		if _, err := ctx.Invoke("com.acme.Test.double", number{4}, &wrong); err == nil {
			t.Error("an object was decoded into an int")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if first := host.Asked[0]; first.Op != abi.OpInvoke ||
		string(first.Request) != `{"service":"com.acme.Test","method":"chat","args":{"id":"1","msg":"hi"}}` {
		t.Errorf("the host was asked %s %s", first.Op, first.Request)
	}
}

func TestAddressesThatNameNoMethod(t *testing.T) {
	for _, address := range []string{"", "chat", ".chat", "S.", "/S.chat", "p/chat", "p/"} {
		host, err := in(t, nil, func(ctx *carrel.Context) error {
			_, err := ctx.Invoke(address, nil, nil)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "no address") || len(host.Asked) > 0 {
			t.Errorf("%q: got %v", address, err)
		}
	}
}

func TestCallsNestAsDeepAsOnAHost(t *testing.T) {
	depth := 0
	h := hostOf(t, func(ctx *carrel.Context, _ struct{}) (string, error) {
		depth++
		return carrel.Invoke[string](ctx, "com.acme.Test.run", nil)
	})
	if _, err := h.Call("run", nil); err == nil || depth != abi.MaxCallDepth {
		t.Errorf("got %v after %d calls", err, depth)
	}
}
