package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
)

// codeCache keeps compiled code in a directory: one directory for each code,
// which comes into place by a rename and is then never changed. What is in it
// is executable, so it is checked before each use. Whatever is wrong with an
// entry makes it a missing one. All methods are safe for concurrent use, but
// one process at a time may use the directory.
type codeCache struct {
	dir    string
	most   int64  // bytes of all entries
	engine string // where this engine on this CPU keeps code: its folder inside an entry
	cpu    string // what the engine on this CPU calls a module that is always the same
	now    func() time.Time
	log    *slog.Logger

	mu      sync.Mutex // guards what is below
	entries map[string]*cached
	bytes   int64
	told    bool // that the directory cannot be written
}

// cached is what the cache knows of an entry.
type cached struct {
	bytes int64
	used  time.Time
	pins  int // loads that run: it is not removed
}

const (
	// cacheFormat is part of each entry's name. It changes with the form of
	// entries, and with whatever in engineConfig or in the engine's use
	// changes the machine code that the same bytes become.
	cacheFormat = "1"
	building    = "tmp-" // what names of directories that are no entries begin with
	private     = fs.FileMode(0o700)
	others      = fs.FileMode(0o022) // those who may write besides the owner
)

// openCache makes the directory if it is missing, and removes what a process
// that was killed left in it. A directory that others may write is refused:
// they could run code in this process. One that cannot be made or written is
// not: the log says so, and code is kept in memory.
func openCache(ctx context.Context, cfg Config) (*codeCache, error) {
	c := &codeCache{dir: cfg.CacheDir, most: cfg.CacheBytes, now: cfg.Now, log: cfg.Log, entries: map[string]*cached{}}
	var err error
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return nil, fmt.Errorf("sandbox: cache of compiled code: %w", err)
	}
	if err := os.MkdirAll(c.dir, private); err != nil {
		c.unwritable(err)
	} else if err := trusted(c.dir); err != nil {
		return nil, fmt.Errorf("sandbox: the cache of compiled code holds what this process executes: %w; "+
			"take that right away (chmod go-w), or delete the directory, it is made anew", err)
	}
	if err := c.identify(ctx); err != nil {
		return nil, err
	}
	c.survey()
	c.trim()
	return c, nil
}

// trusted judges a file or directory that is executed from.
func trusted(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&others != 0 {
		return fmt.Errorf("others may write %s (mode %04o)", path, info.Mode().Perm())
	}
	return foreign(path, info)
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
	c.engine, c.cpu = filepath.Split(files[0])
	return nil
}

// name returns the directory's name of the code with a digest. It has all
// that machine code depends on: the rewritten bytes, the engine's version, the
// system and the features of the CPU.
func (c *codeCache) name(digest [sha256.Size]byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00%s\x00%s/%s\x00", cacheFormat, filepath.ToSlash(c.engine), c.cpu, runtime.GOOS, runtime.GOARCH)
	h.Write(digest[:])
	return hex.EncodeToString(h.Sum(nil))
}

// survey takes stock of the directory, without reading code.
func (c *codeCache) survey() {
	found, err := os.ReadDir(c.dir)
	if err != nil {
		return // it could not be made, which was said
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range found {
		path := filepath.Join(c.dir, f.Name())
		info, err := os.Stat(filepath.Join(path, sumsName))
		if err != nil || strings.HasPrefix(f.Name(), building) {
			c.clear(path)
			continue
		}
		sums, err := readSums(path)
		if err != nil {
			c.clear(path)
			continue
		}
		c.entries[f.Name()] = &cached{bytes: sums.bytes(), used: info.ModTime()}
		c.bytes += sums.bytes()
	}
}

// take returns the directory of an entry that was verified, and keeps it from
// being removed until give; "" if there is none.
func (c *codeCache) take(name string) string {
	c.mu.Lock()
	e := c.entries[name]
	if e == nil {
		c.mu.Unlock()
		return ""
	}
	e.pins++
	e.used = c.now()
	c.mu.Unlock()
	path := filepath.Join(c.dir, name)
	if err := verify(path, c.engine); err != nil {
		c.log.Warn("compiled code in the cache is damaged, and is made anew", "err", err)
		c.drop(name)
		return ""
	}
	// The time of use outlives the process. On a disk that cannot be written
	// nothing is removed either.
	_ = os.Chtimes(filepath.Join(path, sumsName), e.used, e.used)
	return path
}

// give lets go of an entry.
func (c *codeCache) give(name string) {
	c.mu.Lock()
	if e := c.entries[name]; e != nil {
		e.pins--
	}
	c.mu.Unlock()
	c.trim()
}

// drop removes an entry whatever uses it: who loads it has failed.
func (c *codeCache) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(name)
}

// remove forgets an entry and deletes it; mu is held.
func (c *codeCache) remove(name string) {
	if e := c.entries[name]; e != nil {
		c.bytes -= e.bytes
		delete(c.entries, name)
	}
	c.clear(filepath.Join(c.dir, name))
}

// clear deletes a directory. It is renamed first, so that a kill in between
// leaves nothing that looks like an entry.
func (c *codeCache) clear(path string) {
	away := filepath.Join(c.dir, building+filepath.Base(path))
	if strings.HasPrefix(filepath.Base(path), building) || os.Rename(path, away) != nil {
		away = path
	}
	if err := os.RemoveAll(away); err != nil {
		c.log.Warn("compiled code cannot be removed from the cache", "err", err)
	}
}

// trim removes what was not used for longest, until the rest has room.
func (c *codeCache) trim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.bytes > c.most {
		var oldest string
		for name, e := range c.entries {
			if e.pins == 0 && (oldest == "" || e.used.Before(c.entries[oldest].used)) {
				oldest = name
			}
		}
		if oldest == "" {
			return // give looks again
		}
		c.remove(oldest)
	}
}

// room returns a new directory to compile into, which publish or discard
// takes back; "" if there is none to be had.
func (c *codeCache) room() string {
	dir, err := os.MkdirTemp(c.dir, building)
	if errors.Is(err, fs.ErrNotExist) { // the cache was deleted
		if err = os.MkdirAll(c.dir, private); err == nil {
			dir, err = os.MkdirTemp(c.dir, building)
		}
	}
	if err != nil {
		c.unwritable(err)
		return ""
	}
	return dir
}

func (c *codeCache) discard(dir string) {
	if dir != "" {
		c.clear(dir)
	}
}

// publish makes an entry of a directory from room, and takes it as take does.
func (c *codeCache) publish(dir, name string) error {
	bytes, err := seal(dir, c.engine)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(name) // perhaps one that nobody knew of
	if err := os.Rename(dir, filepath.Join(c.dir, name)); err != nil {
		return err
	}
	c.entries[name] = &cached{bytes: bytes, used: c.now(), pins: 1}
	c.bytes += bytes
	c.told = false
	return nil
}

// unwritable says, once until it can be written again, that code is not kept.
func (c *codeCache) unwritable(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.told {
		c.log.Warn("the cache of compiled code cannot be written; code is compiled in memory, and again at the next start", "dir", c.dir, "err", err)
	}
	c.told = true
}
