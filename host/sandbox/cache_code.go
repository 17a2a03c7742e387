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
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/tetratelabs/wazero"

	"github.com/carrelhost/carrel/host/sandbox/cache"
	"github.com/carrelhost/carrel/host/sandbox/image"
)

// codeCache keeps compiled code.
type codeCache struct {
	*cache.Cache
	mu    sync.Mutex // guards names
	names engineNames
}

// engineNames is how the engine names what it compiles. Without them nothing
// can be found in the cache, and nothing is kept.
type engineNames struct {
	folder string // of an entry's file
	cpu    string // on this CPU, the file of a module that is always the same
}

// cacheFormat is part of each entry's name. It changes with the form of
// entries, and with whatever in engineConfig or in the engine's use changes
// the machine code that the same bytes become.
const cacheFormat = "2"

// openCodeCache takes stock of Config.CacheDir.
func openCodeCache(ctx context.Context, cfg Config) (*codeCache, error) {
	kept, err := cache.Open(cache.Config{Dir: cfg.CacheDir, What: "compiled code", Most: cfg.CacheBytes, Now: cfg.Now, Log: cfg.Log})
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	c := &codeCache{Cache: kept}
	c.identify(ctx)
	return c, nil
}

// engine returns the engine's names, if they are known.
func (c *codeCache) engine() engineNames {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.names
}

// identify returns the engine's names, and finds them out if they are not
// known, which takes milliseconds. On a full disk that may fail; then the next
// use tries again.
func (c *codeCache) identify(ctx context.Context) engineNames {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names != (engineNames{}) {
		return c.names
	}
	dir, err := c.Room()
	if err == nil {
		c.names, err = namesIn(ctx, dir)
		c.Discard(dir)
	}
	if err != nil {
		c.Unwritable(err)
	}
	if c.names != (engineNames{}) {
		return c.names
	}
	// Another disk may have room. What can be read is then found.
	if dir, err = os.MkdirTemp("", "carrel-"); err == nil {
		c.names, _ = namesIn(ctx, dir)
		_ = os.RemoveAll(dir) // the system's own directory: it is emptied by others, too
	}
	return c.names
}

// namesIn finds out the engine's names by letting it compile the smallest
// module there is into a directory. They may be known also with an error: the
// engine names the file that it cannot write.
func namesIn(ctx context.Context, dir string) (engineNames, error) {
	engine, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return engineNames{}, fmt.Errorf("the engine's cache: %w", err)
	}
	run := wazero.NewRuntimeWithConfig(ctx, engineConfig(engine))
	m, err := run.CompileModule(ctx, []byte("\x00asm\x01\x00\x00\x00"))
	if err == nil {
		err = m.Close(ctx)
	}
	if err = errors.Join(err, run.Close(ctx), engine.Close(ctx)); err != nil {
		return namesOf(err), fmt.Errorf("the engine's cache: %w", err)
	}
	files, err := fs.Glob(os.DirFS(dir), "*/*")
	if err != nil {
		return engineNames{}, fmt.Errorf("the engine's cache: %w", err)
	}
	if len(files) != 1 {
		return engineNames{}, fmt.Errorf("the engine's cache holds %d files of a module, not one", len(files))
	}
	return engineNames{path.Dir(files[0]), path.Base(files[0])}, nil
}

// namesOf reads the names off the file that the engine could not write: its
// own name, a dot, and what makes it another one until it is whole.
func namesOf(err error) engineNames {
	failure, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return engineNames{}
	}
	file, _, unfinished := strings.Cut(filepath.Base(failure.Path), ".")
	if key, err := hex.DecodeString(file); err != nil || len(key) != sha256.Size || !unfinished {
		return engineNames{}
	}
	return engineNames{filepath.Base(filepath.Dir(failure.Path)), file}
}

// entry returns the directory's name of the code with a digest. It has all
// that machine code depends on: the rewritten bytes, the engine's version, the
// system and the features of the CPU.
func (n engineNames) entry(digest [sha256.Size]byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s/\x00%s\x00%s/%s\x00", cacheFormat, n.folder, n.cpu, runtime.GOOS, runtime.GOARCH)
	h.Write(digest[:])
	return hex.EncodeToString(h.Sum(nil))
}

// cachedCode is newCode with a cache. Code that is there but does not load is
// made once more; what cannot be read at the moment is made in memory.
func (s *Sandbox) cachedCode(ctx context.Context, digest [sha256.Size]byte, wasm []byte) (*code, error) {
	engine := s.files.identify(ctx)
	if engine == (engineNames{}) {
		return s.codeInMemory(ctx, wasm)
	}
	name := engine.entry(digest)
	entry, err := s.files.Take(name, engine.folder)
	for range 2 {
		if errors.Is(err, cache.ErrMissing) {
			if entry, err = s.fill(ctx, name, engine.folder, wasm); err != nil && !errors.Is(err, errNotKept) {
				return nil, err
			}
		}
		if err != nil {
			break
		}
		c, failed := s.load(ctx, entry.Dir(), wasm)
		if failed == nil {
			c.machineBytes = entry.Bytes()
		}
		entry.Give()
		if !errors.Is(failed, errNotLoaded) && !errors.Is(failed, errNotKept) {
			return c, failed
		}
		if err = cache.Refused(failed); err != nil {
			break
		}
		s.cfg.Log.Warn("compiled code in the cache does not load, and is made anew", "err", failed)
		s.files.Drop(name)
		err = cache.ErrMissing
	}
	if errors.Is(err, cache.ErrLack) {
		return nil, noRoom(fmt.Errorf("%w: %w", image.ErrNoRoom, err))
	}
	return s.codeInMemory(ctx, wasm)
}

// codeInMemory is newCode without the cache. What this process compiles, it
// cannot stop. So another one shows first that it ends.
func (s *Sandbox) codeInMemory(ctx context.Context, wasm []byte) (*code, error) {
	if len(s.cfg.CompileCommand) > 0 {
		if err := s.childCompiles(ctx, "", wasm); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, ended(ctx, "compile", err)
	}
	return s.assemble(ctx, nil, wasm)
}

// fill compiles into the cache and takes the entry. Its error is errNotKept if
// the code cannot be kept, which the log says, but perhaps compiled; else that
// of the module, overloaded, or the context's.
func (s *Sandbox) fill(ctx context.Context, name, folder string, wasm []byte) (*cache.Entry, error) {
	room, err := s.files.Room()
	if err == nil {
		if err = s.compileInto(ctx, room, wasm); err == nil {
			var entry *cache.Entry
			if entry, err = s.files.Publish(room, name, folder); err == nil {
				return entry, nil
			}
		} else {
			s.files.Discard(room)
			if !errors.Is(err, errNotKept) {
				return nil, err
			}
		}
	}
	if errors.Is(cache.Refused(err), cache.ErrLack) {
		return nil, noRoom(fmt.Errorf("%w: %w", image.ErrNoRoom, err))
	}
	if errors.Is(err, cache.ErrForm) { // the program's file was replaced while it runs
		err = fmt.Errorf("the compiler is of another version than the host: %w", err)
	}
	s.files.Unwritable(err)
	return nil, fmt.Errorf("%w: %w", errNotKept, err)
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
