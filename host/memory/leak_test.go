package memory_test

import (
	"reflect"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
)

func TestLeaks(t *testing.T) {
	plain := abi.Method{Name: "plain"}
	optional := abi.Method{Name: "optional", MemoryID: "id"}
	required := abi.Method{Name: "required", MemoryID: "id", MemoryIDRequired: true}
	handler := abi.Method{Name: "handler", Kind: abi.KindHandler}
	app := func(methods ...abi.Method) abi.Service {
		return abi.Service{Scope: abi.ScopeApplication, Methods: methods}
	}
	request := func(methods ...abi.Method) abi.Service {
		return abi.Service{Scope: abi.ScopeRequest, Methods: methods}
	}
	for name, tc := range map[string]struct {
		manifest abi.Manifest
		want     []memory.Leak
	}{
		"a plugin without services leaks nothing": {abi.Manifest{}, nil},
		"request-scoped methods never leak": {
			abi.Manifest{Services: []abi.Service{request(plain, optional, required)}}, nil,
		},
		"an application-scoped method with a required id does not leak": {
			abi.Manifest{Services: []abi.Service{app(required)}}, nil,
		},
		"every application-scoped method without a required id leaks": {
			abi.Manifest{Services: []abi.Service{app(required, plain, optional), request(plain), app(plain)}},
			[]memory.Leak{{Service: 0, Method: 1}, {Service: 0, Method: 2}, {Service: 2, Method: 0}},
		},
		"session-scoped methods never leak": {
			abi.Manifest{Services: []abi.Service{{Scope: abi.ScopeSession, Methods: []abi.Method{plain, optional}}}}, nil,
		},
		"an application-scoped handler does not leak": {
			abi.Manifest{Services: []abi.Service{app(handler)}}, nil,
		},
		"a chat method beside a handler leaks": {
			abi.Manifest{Services: []abi.Service{app(handler, plain)}}, []memory.Leak{{Service: 0, Method: 1}},
		},
		"a provider before the session's mends it": {
			abi.Manifest{Services: []abi.Service{app(plain)}, DefaultMemoryID: provider("subject", -1)}, nil,
		},
		"a provider behind the session's does not": {
			abi.Manifest{Services: []abi.Service{app(plain)}, DefaultMemoryID: provider("subject", 1)}, []memory.Leak{{}},
		},
		"a plugin may ask for the leak": {
			abi.Manifest{Services: []abi.Service{app(plain)}, AllowDefaultIDLeak: true}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := memory.Leaks(tc.manifest); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
