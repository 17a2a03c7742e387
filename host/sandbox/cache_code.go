package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/tetratelabs/wazero"
)

// codeCache keeps compiled code. The folder of its files is the engine's.
type codeCache struct {
	cache
	cpu string // what the engine on this CPU calls a module that is always the same
}

// cacheFormat is part of each entry's name. It changes with the form of
// entries, and with whatever in engineConfig or in the engine's use changes
// the machine code that the same bytes become.
const cacheFormat = "1"

// openCodeCache takes stock of Config.CacheDir.
func openCodeCache(ctx context.Context, cfg Config) (*codeCache, error) {
	c := &codeCache{cache: cache{dir: cfg.CacheDir, what: "compiled code", most: cfg.CacheBytes, now: cfg.Now, log: cfg.Log}}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	if err := c.identify(ctx); err != nil {
		return nil, err
	}
	c.survey()
	c.trim()
	return c, nil
}

// identify finds out where this engine on this CPU keeps code, and what its
// keys depend on, by letting it compile the smallest module there is.
func (c *codeCache) identify(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp(c.dir, building)
	if err != nil {
		if dir, err = os.MkdirTemp("", "carrel-"); err != nil {
			return fmt.Errorf("sandbox: no directory can be written: %w", err)
		}
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	run := wazero.NewRuntimeWithConfig(ctx, engineConfig(cache))
	m, err := run.CompileModule(ctx, []byte("\x00asm\x01\x00\x00\x00"))
	if err == nil {
		err = m.Close(ctx)
	}
	if err = errors.Join(err, run.Close(ctx), cache.Close(ctx)); err != nil {
		return fmt.Errorf("sandbox: the engine's cache: %w", err)
	}
	files, err := filesIn(dir)
	if err != nil {
		return fmt.Errorf("sandbox: the engine's cache: %w", err)
	}
	if len(files) != 1 {
		return fmt.Errorf("sandbox: the engine's cache holds %d files of a module, not one", len(files))
	}
	c.folder, c.cpu = filepath.Split(files[0])
	return nil
}

// name returns the directory's name of the code with a digest. It has all
// that machine code depends on: the rewritten bytes, the engine's version, the
// system and the features of the CPU.
func (c *codeCache) name(digest [sha256.Size]byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00%s\x00%s/%s\x00", cacheFormat, filepath.ToSlash(c.folder), c.cpu, runtime.GOOS, runtime.GOARCH)
	h.Write(digest[:])
	return hex.EncodeToString(h.Sum(nil))
}
