package sandbox

import (
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// VerifyCache checks the entry that holds a file of machine code.
func VerifyCache(file string) error {
	engine := filepath.Dir(file)
	return verify(filepath.Dir(engine), filepath.Base(engine)+string(filepath.Separator))
}

// ParseSums returns the sizes that a description of an entry has, by path.
func ParseSums(b []byte) map[string]int64 {
	parsed, err := parseSums(b)
	if err != nil {
		return nil
	}
	out := map[string]int64{}
	for path, s := range parsed {
		out[path] = s.size
	}
	return out
}

// SealSnapshot describes the file of an entry anew, whatever is in it.
func SealSnapshot(dir string) error {
	if err := os.Remove(filepath.Join(dir, sumsName)); err != nil {
		return err
	}
	_, err := seal(dir, here)
	return err
}

// Cache is a cache without a sandbox.
type Cache struct{ cache *cache }

// OpenCache returns one that keeps so many bytes.
func OpenCache(dir string, most int64, now func() time.Time, log *slog.Logger) (Cache, error) {
	c := &cache{dir: dir, what: "files", folder: here, most: most, now: now, log: log}
	return Cache{c}, c.prepare()
}

// Publish makes an entry, and has it until give.
func (c Cache) Publish(name string, b []byte) (give func(), err error) {
	dir := c.cache.room()
	if err := os.WriteFile(filepath.Join(dir, "file"), b, 0o600); err != nil {
		return nil, err
	}
	e, err := c.cache.publish(dir, name)
	return func() { c.cache.give(e) }, err
}

// Take has an entry until give; there is none if that is nil.
func (c Cache) Take(name string) (give func()) {
	if e := c.cache.take(name); e != nil {
		return func() { c.cache.give(e) }
	}
	return nil
}

func (c Cache) Drop(name string) { c.cache.drop(name) }
