package memory_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
)

const (
	acme    carrel.TenantID    = "acme"
	plugin  carrel.PluginName  = "helper"
	service carrel.ServiceName = "com.acme.MyChat"
	method  carrel.MethodName  = "chat"
	suffix                     = "#com.acme.MyChat.chat"
)

var caller = carrel.Caller{Tenant: acme, Key: "key_1", Role: carrel.RoleCaller}

// ambient is a request of the caller with headers given as name, value, name,
// value and so on.
func ambient(c carrel.Caller, headers ...string) memory.Ambient {
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	return memory.Ambient{Caller: c, Request: "req_1", Header: h.Values}
}

// target is a request-scoped method without a memory id, changed by change.
func target(change func(*memory.Target)) memory.Target {
	t := memory.Target{Plugin: plugin, Service: service, Method: method, Scope: carrel.ScopeRequest}
	if change != nil {
		change(&t)
	}
	return t
}

func provider(from string, priority int) *abi.DefaultMemoryID {
	return &abi.DefaultMemoryID{From: from, Priority: priority}
}

func optionalID(t *memory.Target) { t.IDParam = "id" }

func requiredID(t *memory.Target) { t.IDParam, t.Required = "id", true }

func fromHeader(t *memory.Target) { t.Provider = provider("header:X-Conversation", -10) }

func fromSubject(t *memory.Target) { t.Provider = provider("subject", -10) }

func appScoped(t *memory.Target) { t.Scope = carrel.ScopeApplication }

func both(fs ...func(*memory.Target)) func(*memory.Target) {
	return func(t *memory.Target) {
		for _, f := range fs {
			f(t)
		}
	}
}

func ann(subject carrel.Subject) carrel.Caller {
	c := caller
	c.Subject = subject
	return c
}

func TestResolve(t *testing.T) {
	const long = abi.MaxDefaultIDBytes
	for name, tc := range map[string]struct {
		in    memory.Ambient
		to    func(*memory.Target)
		args  map[string]any
		kind  carrel.KeyKind
		owner carrel.Owner
		id    carrel.MemoryID
	}{
		"an explicit id is taken byte for byte and without a suffix": {
			ambient(caller), requiredID, map[string]any{"id": " Ünï#code/1.2 "}, carrel.KindExplicit, "", " Ünï#code/1.2 ",
		},
		"an explicit id may have 256 bytes": {
			ambient(caller), requiredID, map[string]any{"id": strings.Repeat("é", 128)}, carrel.KindExplicit, "", carrel.MemoryID(strings.Repeat("é", 128)),
		},
		"an explicit id wins over the plugin's provider": {
			ambient(caller, "X-Conversation", "c"), both(optionalID, fromHeader), map[string]any{"id": "1"}, carrel.KindExplicit, "", "1",
		},
		"an explicit id wins over a faulty header": {
			ambient(caller, "X-Conversation", "c", "X-Conversation", "d"), both(optionalID, fromHeader), map[string]any{"id": "1"}, carrel.KindExplicit, "", "1",
		},
		"an explicit id keeps an application-scoped service from leaking": {
			ambient(caller), both(optionalID, appScoped), map[string]any{"id": "1"}, carrel.KindExplicit, "", "1",
		},
		"an absent optional id falls back to the request's": {
			ambient(caller), optionalID, map[string]any{"msg": "hi"}, carrel.KindRequest, "", "req_1" + suffix,
		},
		"an empty optional id counts as absent": {
			ambient(caller), optionalID, map[string]any{"id": ""}, carrel.KindRequest, "", "req_1" + suffix,
		},
		"an empty optional id falls back to the plugin's provider": {
			ambient(ann("ann")), both(optionalID, fromSubject), map[string]any{"id": ""}, carrel.KindPlugin, "", "ann" + suffix,
		},
		"a param that happens to be named id is no memory id": {
			ambient(caller), nil, map[string]any{"id": "1"}, carrel.KindRequest, "", "req_1" + suffix,
		},
		"without any provider the request's id is the default": {
			ambient(caller), nil, nil, carrel.KindRequest, "", "req_1" + suffix,
		},
		"a subject does not own a request's id": {
			ambient(ann("ann")), nil, nil, carrel.KindRequest, "", "req_1" + suffix,
		},
		"a header's id is owned by the API key": {
			ambient(caller, "X-Conversation", "c1"), fromHeader, nil, carrel.KindPlugin, "key:key_1", "c1" + suffix,
		},
		"a header's id is owned by the subject if there is one": {
			ambient(ann("ann"), "X-Conversation", "c1"), fromHeader, nil, carrel.KindPlugin, "subject:ann", "c1" + suffix,
		},
		"a header's name has no case": {
			ambient(caller, "x-conversation", "c1"), fromHeader, nil, carrel.KindPlugin, "key:key_1", "c1" + suffix,
		},
		"a header may have 128 bytes": {
			ambient(caller, "X-Conversation", strings.Repeat("a", long)), fromHeader, nil, carrel.KindPlugin, "key:key_1", carrel.MemoryID(strings.Repeat("a", long) + suffix),
		},
		"a header of one byte is enough": {
			ambient(caller, "X-Conversation", "0"), fromHeader, nil, carrel.KindPlugin, "key:key_1", "0" + suffix,
		},
		"a missing header yields nothing and leaves no owner behind": {
			ambient(ann("ann")), fromHeader, nil, carrel.KindRequest, "", "req_1" + suffix,
		},
		"an empty header yields nothing": {
			ambient(caller, "X-Conversation", ""), fromHeader, nil, carrel.KindRequest, "", "req_1" + suffix,
		},
		"an edge without headers yields nothing": {
			memory.Ambient{Caller: caller, Request: "req_1"}, fromHeader, nil, carrel.KindRequest, "", "req_1" + suffix,
		},
		"a subject provider's id has no owner": {
			ambient(ann("ann")), fromSubject, nil, carrel.KindPlugin, "", "ann" + suffix,
		},
		"a caller without subject yields nothing": {
			ambient(caller), fromSubject, nil, carrel.KindRequest, "", "req_1" + suffix,
		},
		"a provider just before the request's is asked": {
			ambient(ann("ann")), func(t *memory.Target) { t.Provider = provider("subject", 99) }, nil, carrel.KindPlugin, "", "ann" + suffix,
		},
		"a provider as late as the request's is never asked": {
			ambient(ann("ann")), func(t *memory.Target) { t.Provider = provider("subject", 100) }, nil, carrel.KindRequest, "", "req_1" + suffix,
		},
		"a provider behind the request's is never asked, whatever it would say": {
			ambient(caller, "X-Conversation", "a", "X-Conversation", "b"), func(t *memory.Target) { t.Provider = provider("header:X-Conversation", 1000) }, nil, carrel.KindRequest, "", "req_1" + suffix,
		},
		"an application-scoped service uses what the plugin's provider yields": {
			ambient(caller, "X-Conversation", "c1"), both(fromHeader, appScoped), nil, carrel.KindPlugin, "key:key_1", "c1" + suffix,
		},
		"a plugin that accepts the leak gets the request's id": {
			ambient(caller), both(appScoped, func(t *memory.Target) { t.AllowLeak = true }), nil, carrel.KindRequest, "", "req_1" + suffix,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := memory.Resolve(tc.in, target(tc.to), tc.args)
			if err != nil {
				t.Fatal(err)
			}
			want := carrel.MemoryKey{Tenant: acme, Namespace: "helper", Kind: tc.kind, Owner: tc.owner, ID: tc.id}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		in      memory.Ambient
		to      func(*memory.Target)
		args    map[string]any
		code    abi.Code
		pointer string // of the only fault; "" wants none
		message string // part of the fault's message, else of the error's
	}{
		"a required id that is missing": {
			ambient(caller), requiredID, map[string]any{"msg": "hi"}, abi.InvalidMemoryID, "/id", "missing",
		},
		"a required id where there are no params at all": {
			ambient(caller), requiredID, nil, abi.InvalidMemoryID, "/id", "missing",
		},
		"a required id that is empty": {
			ambient(caller), requiredID, map[string]any{"id": ""}, abi.InvalidMemoryID, "/id", "empty",
		},
		"a required id that is missing although the plugin has a provider": {
			ambient(ann("ann")), both(requiredID, fromSubject), nil, abi.InvalidMemoryID, "/id", "missing",
		},
		"an id that is a number": {
			ambient(caller), optionalID, map[string]any{"id": 1.0}, abi.InvalidMemoryID, "/id", "must be a string",
		},
		"an optional id that is null": {
			ambient(caller), optionalID, map[string]any{"id": nil}, abi.InvalidMemoryID, "/id", "must be a string",
		},
		"an id of 257 bytes": {
			ambient(caller), requiredID, map[string]any{"id": strings.Repeat("a", 257)}, abi.InvalidMemoryID, "/id", "257 bytes",
		},
		"an optional id of 257 bytes": {
			ambient(caller), optionalID, map[string]any{"id": strings.Repeat("a", 257)}, abi.InvalidMemoryID, "/id", "257 bytes",
		},
		"an id with a line break": {
			ambient(caller), requiredID, map[string]any{"id": "a\nb"}, abi.InvalidMemoryID, "/id", "U+000A",
		},
		"an id with a control character beyond ASCII": {
			ambient(caller), requiredID, map[string]any{"id": "a\u0085b"}, abi.InvalidMemoryID, "/id", "U+0085",
		},
		"an id that is not UTF-8": {
			ambient(caller), requiredID, map[string]any{"id": "a\xff"}, abi.InvalidMemoryID, "/id", "UTF-8",
		},
		"a param whose name needs escaping in a pointer": {
			ambient(caller), func(t *memory.Target) { t.IDParam, t.Required = "a/b~c", true }, nil, abi.InvalidMemoryID, "/a~1b~0c", "missing",
		},
		"a header that is sent twice": {
			ambient(caller, "X-Conversation", "a", "X-Conversation", "a"), fromHeader, nil, abi.InvalidMemoryID, "", "sent 2 times",
		},
		"a header that is sent twice, once empty": {
			ambient(caller, "X-Conversation", "", "X-Conversation", "a"), fromHeader, nil, abi.InvalidMemoryID, "", "sent 2 times",
		},
		"a header of 129 bytes": {
			ambient(caller, "X-Conversation", strings.Repeat("a", 129)), fromHeader, nil, abi.InvalidMemoryID, "", "129 bytes",
		},
		"a header with a tab": {
			ambient(caller, "X-Conversation", "a\tb"), fromHeader, nil, abi.InvalidMemoryID, "", "U+0009",
		},
		"a header that is not UTF-8": {
			ambient(caller, "X-Conversation", "caf\xe9"), fromHeader, nil, abi.InvalidMemoryID, "", "UTF-8",
		},
		"a subject too long for a default id": {
			ambient(ann(carrel.Subject(strings.Repeat("a", 129)))), fromSubject, nil, abi.InvalidMemoryID, "", "129 bytes",
		},
		"a default id in an application-scoped service": {
			ambient(caller), appScoped, nil, abi.DefaultIDLeak, "", "declares nothing",
		},
		"an optional id that an application-scoped service's caller leaves out": {
			ambient(caller), both(appScoped, optionalID), map[string]any{"id": ""}, abi.DefaultIDLeak, "", "com.acme.MyChat.chat is application-scoped",
		},
		"an application-scoped service whose header is missing": {
			ambient(caller), both(appScoped, fromHeader), nil, abi.DefaultIDLeak, "", "header:X-Conversation",
		},
		"an application-scoped service whose caller has no subject": {
			ambient(caller), both(appScoped, fromSubject), nil, abi.DefaultIDLeak, "", "(subject)",
		},
		"an application-scoped service whose provider comes too late to be asked": {
			ambient(ann("ann")), both(appScoped, func(t *memory.Target) { t.Provider = provider("subject", 101) }), nil, abi.DefaultIDLeak, "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			key, err := memory.Resolve(tc.in, target(tc.to), tc.args)
			if key != (carrel.MemoryKey{}) {
				t.Errorf("got the key %+v with an error", key)
			}
			wantFault(t, err, tc.code, tc.pointer, tc.message)
		})
	}
}

func wantFault(t *testing.T, err error, code abi.Code, pointer, message string) {
	t.Helper()
	e, ok := err.(*carrel.Error) //nolint:errorlint // the edge wants the outermost
	if !ok || e.Code != code {
		t.Fatalf("got %v, want %v", err, code)
	}
	text := e.Msg
	switch {
	case pointer == "" && len(e.Faults) > 0:
		t.Errorf("got faults %v, want none", e.Faults)
	case pointer != "" && (len(e.Faults) != 1 || e.Faults[0].Pointer != pointer):
		t.Fatalf("got faults %v, want one at %s", e.Faults, pointer)
	case pointer != "":
		text = e.Faults[0].Message
	}
	if !strings.Contains(text, message) {
		t.Errorf("got %q, want …%s…", text, message)
	}
}

func TestDefaultIDsOfTwoMethodsDiffer(t *testing.T) {
	seen := map[carrel.MemoryID]bool{}
	for _, m := range []struct {
		s carrel.ServiceName
		m carrel.MethodName
	}{{"com.acme.A", "x"}, {"com.acme.A", "y"}, {"com.acme.B", "x"}, {"com.acme", "A"}} {
		id := memory.DefaultID("r", m.s, m.m)
		if seen[id] {
			t.Errorf("%s.%s shares the default id %s", m.s, m.m, id)
		}
		seen[id] = true
	}
	if got := memory.DefaultID("r", "com.acme.A", "x"); got != "r#com.acme.A.x" {
		t.Errorf("got %q", got)
	}
}

// An explicit id never reaches a default history, however it is spelled.
func TestAnExplicitIDSpelledLikeADefaultOneIsAnother(t *testing.T) {
	spelled, err := memory.Resolve(ambient(caller), target(optionalID), map[string]any{"id": "req_1" + suffix})
	if err != nil {
		t.Fatal(err)
	}
	byDefault, err := memory.Resolve(ambient(caller), target(optionalID), nil)
	if err != nil {
		t.Fatal(err)
	}
	if spelled.ID != byDefault.ID || spelled == byDefault {
		t.Errorf("got %+v and %+v, want the same id in two keys", spelled, byDefault)
	}
}

func TestExplicitIDsLiveInTheSharedNamespaceAndDefaultOnesDoNot(t *testing.T) {
	in := memory.Ambient{Caller: caller, Request: "req_1"}
	to := target(optionalID)
	to.Shared = memory.Shared("helper") // named like the plugin itself
	explicit, err := memory.Resolve(in, to, map[string]any{"id": "1"})
	if want := (carrel.MemoryKey{Tenant: acme, Namespace: "shared:helper", Kind: carrel.KindExplicit, ID: "1"}); err != nil || explicit != want {
		t.Errorf("got %+v, %v, want %+v", explicit, err, want)
	}
	byDefault, err := memory.Resolve(in, to, nil)
	if want := (carrel.MemoryKey{Tenant: acme, Namespace: "helper", Kind: carrel.KindRequest, ID: "req_1" + suffix}); err != nil || byDefault != want {
		t.Errorf("got %+v, %v, want %+v", byDefault, err, want)
	}
	if _, err := carrel.ParsePluginName(string(memory.Shared("helper"))); err == nil {
		t.Error("a plugin could be named like a shared namespace is stored")
	}
}
