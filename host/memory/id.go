package memory

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// Ambient is what surrounds an invocation, whatever service it calls: default
// memory ids come from it.
type Ambient struct {
	Caller  carrel.Caller
	Request carrel.RequestID
	Session carrel.SessionID // "" outside of a session
	// Exported calls the plugin's own provider function, and returns the id
	// that it yields, or "". It is asked at most once, and only if the plugin
	// declares one.
	Exported func() (string, error)
	// Header returns the values of a header of the request, by its canonical
	// or any other spelling; nil where there are no headers.
	Header func(name string) []string
}

// Target is the method that an invocation calls, as far as ids depend on it.
type Target struct {
	Plugin    carrel.PluginName
	Shared    carrel.Namespace // where explicit ids live; "" = in the plugin's own namespace
	Service   carrel.ServiceName
	Method    carrel.MethodName
	Scope     carrel.Scope
	IDParam   string // the memory id param; "" if the method has none
	Required  bool   // that param is a required one
	Provider  *abi.DefaultMemoryID
	AllowLeak bool
}

// SessionPriority and RequestPriority are those of the built-in providers,
// which take the session's and the request's own id. The request's always
// yields, so nothing behind it is ever asked.
const (
	SessionPriority = 0
	RequestPriority = 100
)

// Shared returns the namespace that plugins share under a name. The prefix has
// a character that no plugin's name has, so that it is nobody's own.
func Shared(name carrel.Namespace) carrel.Namespace { return "shared:" + name }

// CheckID refuses, with invalid_memory_id, an explicit memory id that Resolve
// would refuse. It asks no provider, and so runs nobody's code.
func CheckID(t Target, args map[string]any) error {
	if t.IDParam == "" {
		return nil
	}
	_, err := explicitID(t, args)
	return err
}

// Resolve returns the key of the history that an invocation uses: an explicit
// id always wins, then the first default id provider that yields one. Its
// errors are invalid_memory_id, and default_id_leak if an application-scoped
// service would get an id that nobody can ever name again.
func Resolve(a Ambient, t Target, args map[string]any) (carrel.MemoryKey, error) {
	key := carrel.MemoryKey{Tenant: a.Caller.Tenant, Namespace: carrel.Namespace(t.Plugin)}
	if t.IDParam != "" {
		id, err := explicitID(t, args)
		if err != nil {
			return carrel.MemoryKey{}, err
		}
		if id != "" {
			key.Kind, key.ID = carrel.KindExplicit, id
			if t.Shared != "" {
				key.Namespace = t.Shared
			}
			return key, nil
		}
	}
	id, err := defaultID(a, t, &key)
	if err != nil {
		return carrel.MemoryKey{}, err
	}
	if t.Scope == carrel.ScopeApplication && key.Kind != carrel.KindPlugin && !t.AllowLeak {
		return carrel.MemoryKey{}, leak(t)
	}
	key.ID = DefaultID(id, t.Service, t.Method)
	return key, nil
}

// DefaultID builds a default memory id from what a provider yields. The method
// is part of it, so that two methods never share a default history.
func DefaultID(id carrel.MemoryID, s carrel.ServiceName, m carrel.MethodName) carrel.MemoryID {
	return carrel.MemoryID(string(id) + "#" + string(s) + "." + string(m))
}

// explicitID returns the memory id in args, or "" if it may be absent and is.
func explicitID(t Target, args map[string]any) (carrel.MemoryID, error) {
	v, present := args[t.IDParam]
	s, isString := v.(string)
	var reason string
	switch {
	case present && !isString:
		reason = "it must be a string"
	case s != "":
		id, err := carrel.ParseMemoryID(s)
		if err != nil {
			return "", withPointer(err, t.IDParam)
		}
		return id, nil
	case t.Required && present:
		reason = "it is empty, and this method needs one"
	case t.Required:
		reason = "it is missing, and this method needs one"
	default:
		return "", nil
	}
	return "", withPointer(carrel.Fail("memory.Resolve", abi.InvalidMemoryID, "memory id: "+reason), t.IDParam)
}

// withPointer adds where in the params the fault is.
func withPointer(err error, param string) error {
	return &carrel.Error{
		Op: "memory.Resolve", Code: abi.InvalidMemoryID, Err: err,
		Msg: fmt.Sprintf("the param %q holds no usable memory id: 1 to %d bytes of UTF-8 without control characters",
			param, abi.MaxMemoryIDBytes),
		Faults: []carrel.Fault{{Pointer: "/" + pointerEscaper.Replace(param), Message: messageOf(err)}},
	}
}

var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// defaultID asks the providers in order of priority, and fills in the kind and
// the owner of the one that yields.
func defaultID(a Ambient, t Target, key *carrel.MemoryKey) (carrel.MemoryID, error) {
	own := func(from, below int) (carrel.MemoryID, error) {
		if t.Provider == nil || t.Provider.Priority < from || t.Provider.Priority >= below {
			return "", nil
		}
		return pluginID(a, t.Provider, key)
	}
	if id, err := own(math.MinInt, SessionPriority); err != nil || id != "" {
		return id, err
	}
	if a.Session != "" {
		key.Kind = carrel.KindSession
		return carrel.MemoryID(a.Session), nil
	}
	if id, err := own(SessionPriority, RequestPriority); err != nil || id != "" {
		return id, err
	}
	key.Kind = carrel.KindRequest
	return carrel.MemoryID(a.Request), nil
}

// pluginID asks the plugin's own provider. "" means that it yields nothing;
// else the kind and the owner of the key are filled in.
func pluginID(a Ambient, p *abi.DefaultMemoryID, key *carrel.MemoryKey) (carrel.MemoryID, error) {
	value, owner, err := yielded(a, p)
	if err != nil || value == "" {
		return "", err
	}
	id, err := carrel.ParseDefaultID(value)
	if err != nil {
		return "", &carrel.Error{
			Op: "memory.Resolve", Code: abi.InvalidMemoryID, Err: err,
			Msg: fmt.Sprintf("the plugin takes its memory id from %s, which holds no usable one: %s", providerName(p), messageOf(err)),
		}
	}
	key.Kind, key.Owner = carrel.KindPlugin, owner
	return id, nil
}

// yielded returns what the plugin's own provider yields, and whose it is.
func yielded(a Ambient, p *abi.DefaultMemoryID) (value string, owner carrel.Owner, err error) {
	if p.Export != "" {
		value, err = a.Exported()
		return value, "", err
	}
	if p.From == abi.FromSubject {
		return string(a.Caller.Subject), "", nil
	}
	name := strings.TrimPrefix(p.From, abi.FromHeader)
	if a.Header == nil {
		return "", "", nil
	}
	switch values := a.Header(name); len(values) {
	case 0:
		return "", "", nil
	case 1:
		return values[0], OwnerOf(a.Caller), nil
	default:
		return "", "", carrel.Fail("memory.Resolve", abi.InvalidMemoryID, fmt.Sprintf(
			"the header %s names the conversation and was sent %d times; send it once", name, len(values)))
	}
}

// OwnerOf names who may share a header provider's ids with a caller. Subjects
// and key ids are marked apart: a subject spelled like a key's id is not that
// key.
func OwnerOf(c carrel.Caller) carrel.Owner {
	if c.Subject != "" {
		return carrel.Owner(ownerSubject + string(c.Subject))
	}
	return carrel.Owner(ownerKey + string(c.Key))
}

// How an owner says what it is an id of.
const (
	ownerSubject = "subject:"
	ownerKey     = "key:"
)

// ParseOwner judges an owner as OwnerOf names it and as an export has it.
// Error: invalid_params.
func ParseOwner(s string) (carrel.Owner, error) {
	id, ok := strings.CutPrefix(s, ownerSubject)
	if !ok {
		id, ok = strings.CutPrefix(s, ownerKey)
	}
	// An API key's id is no longer than a subject.
	if _, err := carrel.ParseSubject(id); err != nil || !ok {
		return "", carrel.Fail("memory.ParseOwner", abi.InvalidParams,
			"an owner is as an export names it: `"+ownerSubject+"` and a subject, or `"+ownerKey+"` and an API key's id")
	}
	return carrel.Owner(s), nil
}

func messageOf(err error) string {
	if e, ok := errors.AsType[*carrel.Error](err); ok && e.Msg != "" {
		return e.Msg
	}
	return "it is not usable"
}
