package carrel

import (
	"errors"
	"fmt"
	"os"

	"github.com/carrelhost/carrel/abi"
)

// Plugin declares a plugin. It is a value: nothing is registered anywhere, and
// it must not be changed once its methods can be called.
type Plugin struct {
	Name        string // ^[a-z][a-z0-9-]{0,62}$
	Version     string // free text, such as "1.0.0"
	Description string
	Services    []Service
	// DefaultMemoryID yields memory ids for calls that name none; nil leaves
	// that to the session and the request.
	DefaultMemoryID *DefaultMemoryID
	// AllowDefaultIDLeak accepts that application-scoped methods without a
	// required memory id leave histories behind that nothing ends.
	AllowDefaultIDLeak bool
	MemoryNamespace    string // shared with other plugins; needs a grant
	Capabilities       Capabilities
	Limits             Limits
	// Warmup is a call that the host makes once, at upload, so that every
	// other call begins with what it left in variables and caches; nil if
	// there is nothing to gain.
	Warmup *Warmup
}

// Service is an AI service: a named group of methods with a scope.
type Service struct {
	Name          string // dotted identifiers, such as com.acme.Support
	Description   string
	Scope         Scope  // "" is ScopeRequest
	SystemMessage string // template for methods without one of their own
	Methods       []Method
}

// Scope says how long the memory that a service used lives.
type Scope string

// The scopes.
const (
	ScopeRequest     Scope = abi.ScopeRequest
	ScopeSession     Scope = abi.ScopeSession
	ScopeApplication Scope = abi.ScopeApplication
)

// Capabilities is what a plugin asks to be allowed: model aliases for
// Context.Generate, and other plugins' methods for Context.Invoke.
type Capabilities = abi.Capabilities

// Limits are a plugin's wishes within the host's limits.
type Limits = abi.PluginLimits

// Generation holds options for the model; a nil field is the provider's choice.
type Generation = abi.Generation

// DefaultMemoryID is a plugin's own provider of default memory ids: either
// Func or From.
type DefaultMemoryID struct {
	// Func yields the id: 1 to 128 bytes without control characters, or ""
	// to leave it to the next provider. An error fails the call.
	Func func(ctx *Context) (string, error)
	// From is "subject", or "header:" and the name of a request header.
	From string
	// Priority orders the providers, lower numbers first; 0 stands for
	// abi.DefaultProviderPriority.
	Priority int
}

// Warmup is a call of a handler at upload. Nobody sees its output. It has no
// host to ask: operations, Emit and errors of its own answer ENOSYS, and the
// clock and randomness are the same each time. One that fails is left out,
// which the version's report says; an upload whose warm-up takes longer than
// 5 s (the host's limit sandbox.admitTimeout) is refused.
type Warmup struct {
	Method string // a handler of this plugin: Service.method
	// Params is a value of the handler's params type, such as greetParams{},
	// as typical as can be: what it does not reach stays cold. nil is {}.
	Params any
}

// Method is a method of a service, made by Chat or Handler.
type Method struct {
	name        string
	description string
	chat        *ChatMethod // nil for handlers
	params      payload
	output      payload
	handle      func(*Context) error // nil for chat methods
}

// ChatMethod declares a method that the host runs by itself: it renders the
// messages, applies memory and calls the model.
type ChatMethod struct {
	Description string
	// Params is a value, such as chatParams{}, of the struct type whose
	// fields are the params. nil stands for the MemoryID param, if there is
	// one, and a string "msg", both required.
	Params        any
	MemoryID      string // name of the string param that holds the memory id
	SystemMessage string // template; "" = the service's
	UserMessage   string // template; "" = the single string param that is not the memory id
	Model         string // alias; "" = "default"
	Generation
	// At most one of these two bounds what is sent; both 0 is the host's default.
	WindowMessages int       // messages
	WindowTokens   int       // tokens, as the host estimates them
	RetainWindow   bool      // the history keeps no more than what fits the window
	Seed           []Example // the turns that an empty history begins with
}

// Example is a turn that a history begins with. Its texts are no templates.
type Example = abi.Example

// Chat returns a chat method.
func Chat(name string, c ChatMethod) Method {
	return Method{name: name, description: c.Description, chat: &c, params: chatParams(c), output: textPayload}
}

// defaultIDExport is the export of a plugin's default memory id provider. Two
// underscores keep it apart from every handler's.
const defaultIDExport = "default__memory_id"

// exportName is the export of a handler: unique in the plugin, an identifier,
// and never one of the names that have a meaning of their own, such as memory.
func exportName(service int, m Method) string { return fmt.Sprintf("s%d_%s", service, m.name) }

// export finds what an export runs, or nil.
func (p Plugin) export(name string) func(*Context) error {
	if name == defaultIDExport && p.DefaultMemoryID != nil && p.DefaultMemoryID.Func != nil {
		return p.DefaultMemoryID.run
	}
	for i, s := range p.Services {
		for _, m := range s.Methods {
			if m.handle != nil && exportName(i, m) == name {
				return m.handle
			}
		}
	}
	return nil
}

func (d DefaultMemoryID) run(ctx *Context) error {
	id, err := d.Func(ctx)
	if err != nil {
		return err
	}
	return ctx.host.Output([]byte(id))
}

// Run runs the code behind an export of the manifest on a host and returns the
// export's result: 0, or 1 after the host was told of the failure. A panic is
// not caught: the guest ends, and its stack is in the plugin's log. The
// generated exports and carreltest call it.
func (p Plugin) Run(h Host, export string) int32 {
	handle := p.export(export)
	if handle == nil {
		h.Fail("no_such_export", fmt.Sprintf("the plugin has no export %q; build it anew", export))
		return 1
	}
	if err := handle(newContext(h)); err != nil {
		report(h, err)
		return 1
	}
	return 0
}

// Describe writes the manifest as the call's output, for the export
// carrel_describe.
func (p Plugin) Describe(h Host) int32 {
	raw, err := p.Manifest()
	if err == nil {
		err = h.Output(raw)
	}
	if err != nil {
		report(h, err)
		return 1
	}
	return 0
}

// ManifestFileEnv names the environment variable that tells Main where to
// write the manifest.
const ManifestFileEnv = "CARREL_MANIFEST_FILE"

// FaultsSuffix is added to the name of the manifest's file for that in which
// Main writes a declaration's faults, if it has any: a JSON array of Fault. The
// manifest beside it is then as Declare makes it.
const FaultsSuffix = ".faults"

// Main is what a plugin's main function calls. It writes the manifest to the
// file that ManifestFileEnv names, else to stdout, and exits with 1 and every
// fault of Manifest on stderr if the declaration has any. In a guest main does
// not run.
func (p Plugin) Main() {
	if err := p.tell(os.Getenv(ManifestFileEnv)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// tell writes the manifest to a file, or to stdout without one.
func (p Plugin) tell(file string) error {
	const private = 0o600
	raw, faults, err := p.Declare()
	switch {
	case err != nil:
		return err
	case len(faults) > 0 && file == "":
		return joined(faults)
	case file == "":
		_, err = os.Stdout.Write(append(raw, '\n'))
		return err
	}
	if err := os.WriteFile(file, raw, private); err != nil { //nolint:gosec // the path is what the build asks for
		return err
	}
	if len(faults) == 0 {
		return nil
	}
	told, err := encode(faults)
	if err == nil {
		err = os.WriteFile(file+FaultsSuffix, told, private) //nolint:gosec // as above
	}
	return errors.Join(joined(faults), err)
}
