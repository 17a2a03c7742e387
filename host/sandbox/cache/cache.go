// Package cache keeps files in a directory: one directory for each entry, with
// one file, which comes into place by a rename and is then never changed.
// Guests run what is in it, so it is checked before each use. Whatever is wrong
// with an entry makes it a missing one. What the system cannot read at the
// moment is not wrong: it stays.
package cache

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Config is what a Cache is opened with. All of it is needed.
type Config struct {
	Dir  string // made if it is missing
	What string // is kept, for messages
	Most int64  // bytes of all entries, but for those that somebody has
	Now  func() time.Time
	Log  *slog.Logger
}

// Cache is an open directory. All methods are safe for concurrent use, but one
// process at a time may use the directory. Nothing needs to be closed.
type Cache struct {
	cfg Config

	mu      sync.Mutex // guards what is below
	entries map[string]*Entry
	bytes   int64
	told    bool // that the directory cannot be written
}

// Entry is an entry that somebody has, from Take or Publish until Give.
type Entry struct {
	cache *Cache
	path  string
	bytes int64

	// Guarded by cache.mu. An entry that was replaced or removed while somebody
	// had it is no longer in cache.entries: what it says here counts for nothing.
	used time.Time
	pins int // how many have it: it is not removed to make room
}

// Dir returns the directory with the entry's file, which nobody may change.
func (e *Entry) Dir() string { return e.path }

// Bytes returns the size of its file.
func (e *Entry) Bytes() int64 { return e.bytes }

// Give lets go of the entry.
func (e *Entry) Give() {
	e.cache.mu.Lock()
	e.pins--
	e.cache.mu.Unlock()
	e.cache.trim()
}

const (
	building = "tmp-" // what names of directories that are no entries begin with
	private  = fs.FileMode(0o700)
	others   = fs.FileMode(0o022) // those who may write besides the owner
)

// Open takes stock of a directory, without reading the files, and removes what
// is too much and everything that is no entry, whoever put it there: the
// directory is the cache's alone. A directory that others
// may write is refused: they could say what runs in this process. One that
// cannot be made or written is not: the log says so, and nothing is kept.
func Open(cfg Config) (*Cache, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("cache of %s: %w", cfg.What, err)
	}
	cfg.Dir = dir
	c := &Cache{cfg: cfg, entries: map[string]*Entry{}}
	if err := os.MkdirAll(dir, private); err != nil {
		c.Unwritable(err)
	} else if err := trustedPath(dir); err != nil {
		return nil, fmt.Errorf("the cache of %s holds what this process executes: %w; "+
			"take that right away (chmod go-w), or delete the directory, it is made anew", cfg.What, err)
	}
	c.survey()
	c.trim()
	return c, nil
}

// trustedPath is trusted of what a path leads to.
func trustedPath(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return trusted(path, info)
}

// trusted judges a file or directory that is executed from.
func trusted(path string, info fs.FileInfo) error {
	if info.Mode().Perm()&others != 0 {
		return fmt.Errorf("others may write %s (mode %04o)", path, info.Mode().Perm())
	}
	return foreign(path, info)
}

// survey lists the entries, and removes all else.
func (c *Cache) survey() {
	found, err := os.ReadDir(c.cfg.Dir)
	if err != nil {
		return // it could not be made, which was said
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range found {
		path := filepath.Join(c.cfg.Dir, f.Name())
		if strings.HasPrefix(f.Name(), building) {
			c.clear(path)
			continue
		}
		e := &Entry{cache: c, path: path}
		switch sum, used, err := readSum(path); {
		case err == nil:
			e.bytes, e.used = sum.size, used
		case Refused(err) == nil:
			c.clear(path)
			continue
		} // what is unreadable may be whole: Take finds out
		c.entries[f.Name()] = e
		c.bytes += e.bytes
	}
}

// Take returns an entry whose file is in that folder of it, if it was verified,
// and keeps it from being removed to make room. The caller gives it. Its errors
// are those of Read.
func (c *Cache) Take(name, folder string) (*Entry, error) {
	return c.taken(name, func(file string) bool { return filepath.Dir(file) == folder }, nil)
}

// Read lends what an entry holds, whose file is that one in it, to use: size
// bytes, of which nothing may be believed before Read returns without an error.
// What use leaves is read too. The error is ErrMissing if there is no such
// entry or it was damaged, whatever use made of it; ErrLack or another one if
// the entry cannot be read at the moment; else that of use, and the entry
// stays.
func (c *Cache) Read(name, file string, use func(content io.Reader, size int64) error) error {
	e, err := c.taken(name, func(f string) bool { return f == file }, use)
	if e != nil {
		e.Give()
	}
	return err
}

var (
	// ErrMissing says that there is no such entry, or none any more.
	ErrMissing = errors.New("the cache has no such entry")
	// ErrLack says that the process has no memory or open files left to read an
	// entry with. Later there may be some.
	ErrLack = errors.New("too little memory or open files to read the cache")
)

// taken is Take with the names that the file may have. It returns the entry
// also with an error of use, which may be nil.
func (c *Cache) taken(name string, fits func(file string) bool, use func(content io.Reader, size int64) error) (*Entry, error) {
	now := c.cfg.Now()
	c.mu.Lock()
	e := c.entries[name]
	if e == nil {
		c.mu.Unlock()
		return nil, ErrMissing
	}
	e.pins++
	e.used = now
	c.mu.Unlock()
	size, used, err := verify(e.path, fits, use)
	refused := Refused(err)
	switch {
	case err == nil:
	case refused != nil:
		e.Give()
		c.cfg.Log.Warn("an entry of the cache of "+c.cfg.What+" cannot be read now, and is left as it is", "err", refused)
		return nil, refused
	default:
		c.cfg.Log.Warn("an entry of the cache of "+c.cfg.What+" is damaged, and is made anew", "err", err)
		c.mu.Lock()
		if c.entries[name] == e { // else somebody replaced it
			c.remove(name)
		}
		c.mu.Unlock()
		return nil, ErrMissing
	}
	c.mu.Lock()
	if c.entries[name] == e { // its size was not known if it was unreadable at first
		c.bytes += size - e.bytes
		e.bytes = size
	}
	c.mu.Unlock()
	// The time of use outlives the process. On a disk that cannot be written
	// nothing is removed either.
	_ = os.Chtimes(filepath.Join(e.path, sumsName), now, now)
	return e, used
}

// Write makes an entry of content, in a file of that name, in the place of one
// that is there. If that does not succeed, the log says so.
func (c *Cache) Write(name, file string, content io.WriterTo) {
	if err := c.write(name, file, content); err != nil {
		c.Unwritable(err)
	}
}

func (c *Cache) write(name, file string, content io.WriterTo) error {
	dir, err := c.Room()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // in a room of the cache
	if err == nil {
		_, err = content.WriteTo(f)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		c.Discard(dir)
		return err
	}
	e, err := c.Publish(dir, name, ".")
	if err == nil {
		e.Give()
	}
	return err
}

// Drop removes an entry whatever uses it: who loads it has failed. Those that
// have it may give it or not.
func (c *Cache) Drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(name)
}

// remove forgets an entry and deletes it; mu is held.
func (c *Cache) remove(name string) {
	if e := c.entries[name]; e != nil {
		c.bytes -= e.bytes
		delete(c.entries, name)
	}
	c.clear(filepath.Join(c.cfg.Dir, name))
}

// clear deletes a directory. It is renamed first, so that a kill in between
// leaves nothing that looks like an entry.
func (c *Cache) clear(path string) {
	away := filepath.Join(c.cfg.Dir, building+filepath.Base(path))
	if strings.HasPrefix(filepath.Base(path), building) || os.Rename(path, away) != nil {
		away = path
	}
	if err := os.RemoveAll(away); err != nil {
		c.cfg.Log.Warn("an entry of the cache of "+c.cfg.What+" cannot be removed", "err", err)
	}
}

// trim removes what was not used for longest, until the rest has room.
func (c *Cache) trim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.bytes > c.cfg.Most {
		var oldest string
		for name, e := range c.entries {
			if e.pins == 0 && (oldest == "" || e.used.Before(c.entries[oldest].used)) {
				oldest = name
			}
		}
		if oldest == "" {
			return // Give looks again
		}
		c.remove(oldest)
	}
}

// Room returns a new directory to fill, which Publish or Discard takes back.
// Its error is the system's.
func (c *Cache) Room() (string, error) {
	dir, err := os.MkdirTemp(c.cfg.Dir, building)
	if errors.Is(err, fs.ErrNotExist) { // the cache was deleted
		if err = os.MkdirAll(c.cfg.Dir, private); err == nil {
			dir, err = os.MkdirTemp(c.cfg.Dir, building)
		}
	}
	return dir, err
}

// Discard removes a directory from Room.
func (c *Cache) Discard(dir string) { c.clear(dir) }

// Publish makes an entry of a directory from Room, which has one file, in that
// folder, and takes it as Take does, in the place of one that is there. Its
// error is ErrForm, or the system's; then the directory is discarded.
func (c *Cache) Publish(dir, name, folder string) (*Entry, error) {
	e, err := c.publish(dir, name, folder)
	if err != nil {
		c.Discard(dir)
	}
	return e, err
}

func (c *Cache) publish(dir, name, folder string) (*Entry, error) {
	bytes, err := seal(dir, name, folder)
	if err != nil {
		return nil, err
	}
	e := &Entry{cache: c, path: filepath.Join(c.cfg.Dir, name), bytes: bytes, used: c.cfg.Now(), pins: 1}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(name) // perhaps one that nobody knew of
	if err := os.Rename(dir, e.path); err != nil {
		return nil, err
	}
	c.entries[name] = e
	c.bytes += bytes
	c.told = false
	return e, nil
}

// Unwritable says in the log, once until something is kept again, that nothing
// is, and why.
func (c *Cache) Unwritable(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.told {
		c.cfg.Log.Warn("the cache of "+c.cfg.What+" cannot be written; what it would keep is made in memory, and again at the next start", "dir", c.cfg.Dir, "err", err)
	}
	c.told = true
}
