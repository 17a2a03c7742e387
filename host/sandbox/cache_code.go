package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"

	"github.com/tetratelabs/wazero"

	"github.com/carrelhost/carrel/host/sandbox/cache"
)

// codeCache keeps compiled code.
type codeCache struct {
	*cache.Cache
	folder string // of an entry's file, which is the engine's to name
	cpu    string // what the engine on this CPU calls a module that is always the same
}

// cacheFormat is part of each entry's name. It changes with the form of
// entries, and with whatever in engineConfig or in the engine's use changes
// the machine code that the same bytes become.
const cacheFormat = "1"

// openCodeCache takes stock of Config.CacheDir.
func openCodeCache(ctx context.Context, cfg Config) (*codeCache, error) {
	kept, err := cache.Open(cache.Config{Dir: cfg.CacheDir, What: "compiled code", Most: cfg.CacheBytes, Now: cfg.Now, Log: cfg.Log})
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	c := &codeCache{Cache: kept}
	return c, c.identify(ctx)
}

// identify finds out where this engine on this CPU keeps code, and what its
// keys depend on, by letting it compile the smallest module there is.
func (c *codeCache) identify(ctx context.Context) (err error) {
	dir, err := c.Room()
	if err != nil {
		if dir, err = os.MkdirTemp("", "carrel-"); err != nil {
			return fmt.Errorf("sandbox: no directory can be written: %w", err)
		}
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	engine, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	run := wazero.NewRuntimeWithConfig(ctx, engineConfig(engine))
	m, err := run.CompileModule(ctx, []byte("\x00asm\x01\x00\x00\x00"))
	if err == nil {
		err = m.Close(ctx)
	}
	if err = errors.Join(err, run.Close(ctx), engine.Close(ctx)); err != nil {
		return fmt.Errorf("sandbox: the engine's cache: %w", err)
	}
	files, err := fs.Glob(os.DirFS(dir), "*/*")
	if err != nil {
		return fmt.Errorf("sandbox: the engine's cache: %w", err)
	}
	if len(files) != 1 {
		return fmt.Errorf("sandbox: the engine's cache holds %d files of a module, not one", len(files))
	}
	c.folder, c.cpu = path.Split(files[0])
	c.folder = path.Clean(c.folder)
	return nil
}

// name returns the directory's name of the code with a digest. It has all
// that machine code depends on: the rewritten bytes, the engine's version, the
// system and the features of the CPU.
func (c *codeCache) name(digest [sha256.Size]byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s/\x00%s\x00%s/%s\x00", cacheFormat, c.folder, c.cpu, runtime.GOOS, runtime.GOARCH)
	h.Write(digest[:])
	return hex.EncodeToString(h.Sum(nil))
}

// cachedCode is newCode with a cache. Code that is there but does not load is
// made once more.
func (s *Sandbox) cachedCode(ctx context.Context, digest [sha256.Size]byte, wasm []byte) (*code, error) {
	name := s.files.name(digest)
	entry := s.files.Take(name, s.files.folder)
	for range 2 {
		if entry == nil {
			var err error
			if entry, err = s.fill(ctx, name, wasm); err != nil {
				return nil, err
			}
		}
		if entry == nil {
			break
		}
		c, err := s.load(ctx, entry.Dir(), wasm)
		if !errors.Is(err, errNotLoaded) && !errors.Is(err, errNotKept) {
			if err == nil {
				c.machineBytes = entry.Bytes()
			}
			entry.Give()
			return c, err
		}
		s.cfg.Log.Warn("compiled code in the cache does not load, and is made anew", "err", err)
		s.files.Drop(name)
		entry = nil
	}
	if err := ctx.Err(); err != nil {
		return nil, ended(ctx, "compile", err)
	}
	return s.assemble(ctx, nil, wasm)
}

// fill compiles into the cache and takes the entry. It returns nil if the code
// cannot be kept, but may be compiled in this process.
func (s *Sandbox) fill(ctx context.Context, name string, wasm []byte) (entry *cache.Entry, err error) {
	room, err := s.files.Room()
	if err == nil {
		err = s.compileInto(ctx, room, wasm)
		switch {
		case err == nil:
			if entry, err = s.files.Publish(room, name, s.files.folder); err == nil {
				return entry, nil
			}
		case errors.Is(err, errNotKept):
			s.files.Discard(room)
		default:
			s.files.Discard(room)
			return nil, err
		}
	}
	if errors.Is(err, cache.ErrForm) { // the program's file was replaced while it runs
		err = fmt.Errorf("the compiler is of another version than the host: %w", err)
	}
	s.files.Unwritable(err)
	if len(s.cfg.CompileCommand) == 0 {
		return nil, nil //nolint:nilnil // nothing is kept, which is no failure
	}
	// What this process compiles, it cannot stop. So another one shows first
	// that it ends.
	return nil, s.childCompiles(ctx, "", wasm)
}

// compileInto compiles into a directory of the cache, and keeps nothing else.
func (s *Sandbox) compileInto(ctx context.Context, dir string, wasm []byte) error {
	if len(s.cfg.CompileCommand) > 0 {
		return s.childCompiles(ctx, dir, wasm)
	}
	c, err := s.load(ctx, dir, wasm)
	if err == nil {
		err = c.close(ctx)
	}
	return err
}

// Why there is no code in or from a directory, without a fault of the module.
var (
	errNotKept   = errors.New("the compiled code cannot be written")
	errNotLoaded = errors.New("the compiled code cannot be read")
)
