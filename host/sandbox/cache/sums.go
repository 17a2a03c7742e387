package cache

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sumsName is the file of an entry of the cache that describes the others. An
// entry without it is none.
const (
	sumsName = "sums"
	sumsMost = 64 << 10 // bytes
)

// sums are the files of an entry, by their path in it.
type sums map[string]sum

type sum struct {
	size   int64
	digest [sha256.Size]byte
}

func (s sums) bytes() int64 {
	var n int64
	for _, f := range s {
		n += f.size
	}
	return n
}

// filesIn lists the files below a directory, by their path in it. What is
// neither file nor directory is an error.
func filesIn(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir():
			return err
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is no file", path)
		}
		name, err := filepath.Rel(dir, path)
		files = append(files, name)
		return err
	})
	return files, err
}

// seal describes the one file of a directory, and returns its bytes.
func seal(dir, folder string) (int64, error) {
	files, err := filesIn(dir)
	if err != nil {
		return 0, err
	}
	if len(files) != 1 || filepath.Dir(files[0]) != folder {
		return 0, fmt.Errorf("%w, in %s: there are %q", ErrForm, folder, files)
	}
	digest, size, err := sumOf(filepath.Join(dir, files[0]))
	if err != nil {
		return 0, err
	}
	line := fmt.Sprintf("%x %d %s\n", digest, size, filepath.ToSlash(files[0]))
	return size, os.WriteFile(filepath.Join(dir, sumsName), []byte(line), 0o600)
}

// ErrForm says that what is to be published has not the form of an entry.
var ErrForm = errors.New("an entry is one file where its user will look for it")

func sumOf(path string) (digest [sha256.Size]byte, size int64, err error) {
	f, err := os.Open(path) //nolint:gosec // the caller lists a directory of its own
	if err != nil {
		return digest, 0, err
	}
	h := sha256.New()
	size, err = io.Copy(h, f)
	h.Sum(digest[:0])
	return digest, size, errors.Join(err, f.Close())
}

// readSums reads the description of an entry.
func readSums(dir string) (sums, error) {
	f, err := os.Open(filepath.Join(dir, sumsName)) //nolint:gosec // a directory of the cache
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, sumsMost))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return parseSums(b)
}

func parseSums(b []byte) (sums, error) {
	out := sums{}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		var s sum
		var digest, name string
		if n, err := fmt.Sscanf(lines.Text(), "%s %d %s", &digest, &s.size, &name); err != nil || n != 3 || s.size < 0 {
			return nil, fmt.Errorf("%s is damaged", sumsName)
		}
		raw, err := hex.DecodeString(digest)
		if err != nil || len(raw) != sha256.Size || !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%s is damaged", sumsName)
		}
		copy(s.digest[:], raw)
		out[filepath.FromSlash(name)] = s
	}
	if len(out) != 1 || !strings.HasSuffix(string(b), "\n") {
		return nil, fmt.Errorf("%s is damaged", sumsName)
	}
	return out, nil
}

// verify reads an entry and compares it with its description. The engine's
// own check of what it loads is one of 32 bits, and not of all of it.
func verify(dir, folder string) error {
	return verifyBy(dir, func(name string) bool { return filepath.Dir(name) == folder }, sumOf)
}

// verified returns what an entry's file holds, if it is that one and has no
// fault.
func verified(dir, file string) (b []byte, err error) {
	err = verifyBy(dir, func(name string) bool { return name == file }, func(path string) (digest [sha256.Size]byte, size int64, err error) {
		b, err = os.ReadFile(path) //nolint:gosec // a file of the cache, whose size is known
		return sha256.Sum256(b), int64(len(b)), err
	})
	return b, err
}

// verifyBy is verify with the names that the file may have, and with what reads
// it.
func verifyBy(dir string, fits func(name string) bool, sumOf func(path string) (digest [sha256.Size]byte, size int64, err error)) error {
	want, err := readSums(dir)
	if err != nil {
		return err
	}
	files, err := filesIn(dir)
	if err != nil {
		return err
	}
	if len(files) != len(want)+1 {
		return fmt.Errorf("%s holds %d files, it should be %d", dir, len(files), len(want)+1)
	}
	for name, s := range want {
		path := filepath.Join(dir, name)
		if !fits(name) {
			return fmt.Errorf("%s is not where this version keeps it", path)
		}
		for _, p := range []string{dir, filepath.Dir(path), path} {
			if err := trusted(p); err != nil {
				return err
			}
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Size() != s.size {
			return fmt.Errorf("%s has %d bytes, it should be %d", path, info.Size(), s.size)
		}
		digest, size, err := sumOf(path)
		if err != nil {
			return err
		}
		if digest != s.digest || size != s.size {
			return fmt.Errorf("%s is not what was written", path)
		}
	}
	return nil
}
