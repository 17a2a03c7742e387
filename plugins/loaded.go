package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/prompt"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/schema"
	"github.com/carrelhost/carrel/plugins/manifest"
	"github.com/carrelhost/carrel/store"
)

// Loaded is a version made ready for invocations. It is read-only and shared;
// its code is closed when the catalog and every invocation have let go of it.
type Loaded struct {
	Version  store.Version
	Manifest abi.Manifest
	Code     *sandbox.Plugin // nil: a prompt plugin
	methods  map[qualified]*Method
	texts    int64 // bytes of memory that it takes besides its code

	mu   sync.Mutex // guards refs
	refs int        // 0: closed, and never used again
}

type qualified struct {
	service carrel.ServiceName
	method  carrel.MethodName
}

// Method is a service method made ready for invocations.
type Method struct {
	Service carrel.ServiceName
	Scope   carrel.Scope
	Spec    abi.Method
	Params  *schema.Schema
	Output  *schema.Schema   // nil: the output is text
	System  *prompt.Template // nil: none declared, by method or service
	User    *prompt.Template // nil: the user message is the param Spec.UserParam
}

// Running is a version at the start of an invocation, with the application
// scope that is open then. Whoever got it calls Release once.
type Running struct {
	*Loaded
	Application store.ScopeInstance
}

// Method returns a method by its names.
func (l *Loaded) Method(s carrel.ServiceName, m carrel.MethodName) (*Method, bool) {
	found, ok := l.methods[qualified{s, m}]
	return found, ok
}

// acquire counts one more user, unless the code is closed already.
func (l *Loaded) acquire() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refs == 0 {
		return false
	}
	l.refs++
	return true
}

// inUse reports whether others than the cache use the version.
func (l *Loaded) inUse() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refs > 1
}

// Release lets go of the version. The last one to do so closes its code.
func (l *Loaded) Release() {
	l.mu.Lock()
	l.refs--
	last := l.refs == 0
	l.mu.Unlock()
	if last && l.Code != nil {
		// Nobody calls it any more, so there is nothing to wait for, and what
		// the engine has to say of its own resources helps nobody here.
		_ = l.Code.Close()
	}
}

// loadedVersion returns a version with one more user. One that a caller named
// is looked up first, unless it is the active one, which cannot be deleted:
// another may have been since it was loaded.
func (c *Catalog) loadedVersion(ctx context.Context, p plugin, ref carrel.VersionRef, active carrel.Digest) (*Loaded, error) {
	if ref.IsActive() || ref.Digest == active {
		return c.loadedBuild(ctx, build{p, active})
	}
	if l, ok := c.cache.getLoaded(build{p, active}); ok {
		if l.Version.N == ref.N {
			return l, nil
		}
		l.Release()
	}
	v, err := c.version(ctx, p.tenant, p.name, ref)
	if err != nil {
		return nil, err
	}
	return c.loadedBuild(ctx, build{p, v.Digest})
}

// loadedBuild returns a version with one more user, loading it if need be. The
// load goes on when ctx ends, for others may wait for it.
func (c *Catalog) loadedBuild(ctx context.Context, b build) (*Loaded, error) {
	for {
		if l, ok := c.cache.getLoaded(b); ok {
			return l, nil
		}
		var mine *Loaded // stays nil if another caller is loading it
		done := c.loads.DoChan(string(b.tenant)+"/"+string(b.name)+"/"+b.digest.String(), func() (any, error) {
			l, ok := c.cache.beginLoad(b)
			if ok { // whoever loaded it has just ended
				mine = l
				return nil, nil //nolint:nilnil // it is in mine
			}
			var err error
			mine, err = c.loadBuild(context.WithoutCancel(ctx), b)
			c.cache.endLoad(b, mine)
			return nil, err
		})
		select {
		case r := <-done:
			if r.Err != nil || mine != nil {
				return mine, r.Err
			}
		case <-ctx.Done():
			c.abandoned.Go(func() {
				if <-done; mine != nil {
					mine.Release()
				}
			})
			return nil, fmt.Errorf("wait for version %s of %s to load: %w", b.digest, b.name, ctx.Err())
		}
	}
}

// loadBuild reads and loads a version. It runs in a goroutine of its own,
// where a panic would end the process.
func (c *Catalog) loadBuild(ctx context.Context, b build) (l *Loaded, err error) {
	defer func() {
		if v := recover(); v != nil {
			l, err = nil, fmt.Errorf("load version %s of %s: panic: %v\n%s", b.digest, b.name, v, debug.Stack())
		}
	}()
	if err := c.mayRun(b); err != nil {
		return nil, err
	}
	v, err := c.version(ctx, b.tenant, b.name, carrel.VersionRef{Digest: b.digest})
	if err != nil {
		return nil, err
	}
	return c.load(ctx, v)
}

// What a version takes besides its code, in bytes: so much, and so many times
// its manifest and report for those, their schemas and templates. Measured.
const (
	loadedBytes = 6 << 10
	loadedTimes = 5
)

// load makes a stored version ready, with one user: the caller. What is stored
// was checked at admission, so an error is a fault of the host or its storage,
// but for those that openCode lets through.
func (c *Catalog) load(ctx context.Context, v store.Version) (*Loaded, error) {
	stored := func(err error) error {
		// Not wrapped: its code would be shown as the caller's fault.
		return fmt.Errorf("stored version %d of %s: %v", v.N, v.Plugin, err) //nolint:errorlint // see above
	}
	m, schemas, err := manifest.Compile(ctx, v.Manifest, manifest.Known{})
	if err != nil {
		return nil, stored(err)
	}
	l := &Loaded{
		Version: v, Manifest: m, methods: map[qualified]*Method{}, refs: 1,
		texts: loadedBytes + loadedTimes*int64(len(v.Manifest)+len(v.Report)),
	}
	for _, s := range m.Services {
		for _, spec := range s.Methods {
			method, err := loadMethod(s, spec, schemas)
			if err != nil {
				return nil, stored(err)
			}
			l.methods[qualified{method.Service, carrel.MethodName(spec.Name)}] = method
		}
	}
	var r Report
	if err := json.Unmarshal(v.Report, &r); err != nil {
		return nil, stored(err)
	}
	if r.Path == sandbox.PathPrompt {
		return l, nil
	}
	wasm, err := c.cfg.Store.Module(ctx, v.Tenant, v.Plugin, v.Digest)
	if err != nil {
		return nil, fmt.Errorf("read module: %w", err)
	}
	begin := setup(m)
	begin.Share = string(v.Tenant)
	if l.Code, err = c.openCode(ctx, wasm, begin); err != nil {
		if code := carrel.CodeOf(err); code == abi.Overloaded || code == abi.Draining {
			return nil, fmt.Errorf("open version %d of %s: %w", v.N, v.Plugin, err)
		}
		return nil, stored(err)
	}
	return l, nil
}

// openCode opens the code of a version. When the system has no room for it,
// code that nobody uses makes some. What keeps the code from being opened at
// the moment only is overloaded or draining; other errors are faults.
func (c *Catalog) openCode(ctx context.Context, wasm []byte, begin sandbox.Setup) (*sandbox.Plugin, error) {
	code, err := c.cfg.Sandbox.Open(ctx, wasm, begin)
	if carrel.CodeOf(err) == abi.Overloaded && c.cache.unloadHalf() {
		code, err = c.cfg.Sandbox.Open(ctx, wasm, begin)
	}
	failed, ok := errors.AsType[*carrel.Error](err)
	if ok && failed.Code == abi.LimitExceeded && strings.HasPrefix(failed.Limit, "sandbox.compile") {
		// The admission kept to it, when the host was less busy.
		return nil, &carrel.Error{Op: "plugins.Running", Code: abi.Overloaded, Limit: failed.Limit, Err: err, Msg: fmt.Sprintf(
			"the host cannot make this version ready within the limit %s now; try again when it is less busy", failed.Limit)}
	}
	return code, err
}

// loadMethod makes a method ready, with the schemas of manifest.Compile.
func loadMethod(s abi.Service, spec abi.Method, schemas map[string]*schema.Schema) (*Method, error) {
	m := &Method{
		Service: carrel.ServiceName(s.Name), Scope: carrel.Scope(s.Scope), Spec: spec,
		Params: schemas[string(spec.Params)],
	}
	if !manifest.IsText(spec.Output) {
		m.Output = schemas[string(spec.Output)]
	}
	if spec.Kind != abi.KindChat {
		return m, nil
	}
	system := spec.SystemMessage
	if system == "" {
		system = s.SystemMessage
	}
	var err error
	if m.System, err = optionalTemplate(system); err != nil {
		return nil, err
	}
	m.User, err = optionalTemplate(spec.UserMessage)
	return m, err
}

func optionalTemplate(text string) (*prompt.Template, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no template is a valid state of a method
	}
	return prompt.Parse(text)
}
