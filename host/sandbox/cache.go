package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// cache keeps files in a directory: one directory for each entry, with one
// file, which comes into place by a rename and is then never changed. Guests
// run what is in it, so it is checked before each use. Whatever is wrong with
// an entry makes it a missing one. All methods are safe for concurrent use,
// but one process at a time may use the directory.
type cache struct {
	dir    string
	what   string // is kept, for messages
	folder string // of an entry's file, in the entry, with a separator at its end
	most   int64  // bytes of all entries
	now    func() time.Time
	log    *slog.Logger

	mu      sync.Mutex // guards what is below
	entries map[string]*cached
	bytes   int64
	told    bool // that the directory cannot be written
}

// cached is what the cache knows of an entry. One that was replaced or removed
// while somebody had it is no longer in entries: it counts for nothing.
type cached struct {
	path  string // of its directory
	bytes int64
	used  time.Time
	pins  int // loads that run: it is not removed
}

const (
	building = "tmp-" // what names of directories that are no entries begin with
	private  = fs.FileMode(0o700)
	others   = fs.FileMode(0o022) // those who may write besides the owner
)

// here is the folder of files that are in the entry itself.
const here = "." + string(filepath.Separator)

// prepare makes the directory if it is missing. One that others may write is
// refused: they could say what runs in this process. One that cannot be made
// or written is not: the log says so, and nothing is kept.
func (c *cache) prepare() (err error) {
	c.entries = map[string]*cached{}
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return fmt.Errorf("sandbox: cache of %s: %w", c.what, err)
	}
	if err := os.MkdirAll(c.dir, private); err != nil {
		c.unwritable(err)
	} else if err := trusted(c.dir); err != nil {
		return fmt.Errorf("sandbox: the cache of %s holds what this process executes: %w; "+
			"take that right away (chmod go-w), or delete the directory, it is made anew", c.what, err)
	}
	return nil
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

// survey takes stock of the directory, without reading files. It removes what
// a process that was killed left there.
func (c *cache) survey() {
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
		c.entries[f.Name()] = &cached{path: path, bytes: sums.bytes(), used: info.ModTime()}
		c.bytes += sums.bytes()
	}
}

// take returns an entry that was verified, and keeps it from being removed to
// make room until give; nil if there is none.
func (c *cache) take(name string) *cached {
	return c.taken(name, func(dir string) error { return verify(dir, c.folder) })
}

// read returns what an entry's file holds, if it was verified; nil if there is
// none. The caller owns it.
func (c *cache) read(name string) []byte {
	var b []byte
	e := c.taken(name, func(dir string) (err error) {
		b, err = verified(dir, c.folder)
		return err
	})
	if e == nil {
		return nil
	}
	c.give(e)
	return b
}

// taken is take with a verification.
func (c *cache) taken(name string, verify func(dir string) error) *cached {
	now := c.now()
	c.mu.Lock()
	e := c.entries[name]
	if e == nil {
		c.mu.Unlock()
		return nil
	}
	e.pins++
	e.used = now
	c.mu.Unlock()
	if err := verify(e.path); err != nil {
		c.log.Warn("an entry of the cache of "+c.what+" is damaged, and is made anew", "err", err)
		c.drop(name)
		return nil
	}
	// The time of use outlives the process. On a disk that cannot be written
	// nothing is removed either.
	_ = os.Chtimes(filepath.Join(e.path, sumsName), now, now)
	return e
}

// write makes an entry of bytes, in the place of one that is there. If that
// does not succeed, the log says so.
func (c *cache) write(name, file string, b []byte) {
	dir := c.room()
	if dir == "" {
		return
	}
	err := os.WriteFile(filepath.Join(dir, file), b, 0o600)
	var e *cached
	if err == nil {
		e, err = c.publish(dir, name)
	}
	if err != nil {
		c.unwritable(err)
		c.discard(dir)
		return
	}
	c.give(e)
}

// give lets go of an entry from take or publish.
func (c *cache) give(e *cached) {
	c.mu.Lock()
	e.pins--
	c.mu.Unlock()
	c.trim()
}

// drop removes an entry whatever uses it: who loads it has failed. Nobody
// needs to give it.
func (c *cache) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(name)
}

// remove forgets an entry and deletes it; mu is held.
func (c *cache) remove(name string) {
	if e := c.entries[name]; e != nil {
		c.bytes -= e.bytes
		delete(c.entries, name)
	}
	c.clear(filepath.Join(c.dir, name))
}

// clear deletes a directory. It is renamed first, so that a kill in between
// leaves nothing that looks like an entry.
func (c *cache) clear(path string) {
	away := filepath.Join(c.dir, building+filepath.Base(path))
	if strings.HasPrefix(filepath.Base(path), building) || os.Rename(path, away) != nil {
		away = path
	}
	if err := os.RemoveAll(away); err != nil {
		c.log.Warn("an entry of the cache of "+c.what+" cannot be removed", "err", err)
	}
}

// trim removes what was not used for longest, until the rest has room.
func (c *cache) trim() {
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

// room returns a new directory to fill, which publish or discard
// takes back; "" if there is none to be had.
func (c *cache) room() string {
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

func (c *cache) discard(dir string) {
	if dir != "" {
		c.clear(dir)
	}
}

// publish makes an entry of a directory from room, and takes it as take does.
func (c *cache) publish(dir, name string) (*cached, error) {
	bytes, err := seal(dir, c.folder)
	if err != nil {
		return nil, err
	}
	e := &cached{path: filepath.Join(c.dir, name), bytes: bytes, used: c.now(), pins: 1}
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

// unwritable says, once until it can be written again, that nothing is kept.
func (c *cache) unwritable(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.told {
		c.log.Warn("the cache of "+c.what+" cannot be written; what it would keep is made in memory, and again at the next start", "dir", c.dir, "err", err)
	}
	c.told = true
}
