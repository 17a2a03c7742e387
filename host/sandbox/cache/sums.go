package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// sumsName is the file of an entry of the cache that describes the other one.
// An entry without it is none.
const (
	sumsName   = "sums"
	sumsMost   = 64 << 10 // bytes
	sumsFormat = "v2"     // what it begins with
	fileMost   = 4 << 30  // bytes of the other file
)

// sum describes the file of an entry. Its digest has the entry's name, the
// file's and the content, so that no entry passes for another one.
type sum struct {
	file   string // its path in the entry
	size   int64
	digest [sha256.Size]byte
}

// digestOf begins the digest of a file that is named in an entry.
func digestOf(entry, file string) hash.Hash {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00", entry, filepath.ToSlash(file))
	return h
}

// filesIn lists the files below a directory, by their path in it: one more than
// an entry has at the most. What is neither file nor directory is an error.
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
		if err == nil && len(files) > 2 {
			err = fs.SkipAll
		}
		return err
	})
	return files, err
}

// seal describes the one file of a directory that becomes an entry, and returns
// its bytes.
func seal(dir, entry, folder string) (int64, error) {
	files, err := filesIn(dir)
	if err != nil {
		return 0, err
	}
	if len(files) != 1 || filepath.Dir(files[0]) != folder {
		return 0, fmt.Errorf("%w, in %s: there are %q", ErrForm, folder, files)
	}
	f, _, err := openFile(filepath.Join(dir, files[0]))
	if err != nil {
		return 0, err
	}
	h := digestOf(entry, files[0])
	size, err := io.Copy(h, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	line := fmt.Sprintf("%s %x %d %s\n", sumsFormat, h.Sum(nil), size, filepath.ToSlash(files[0]))
	return size, os.WriteFile(filepath.Join(dir, sumsName), []byte(line), 0o600)
}

// ErrForm says that what is to be published has not the form of an entry.
var ErrForm = errors.New("an entry is one file where its user will look for it")

// readSum reads the description of an entry, and when it was last used.
func readSum(dir string) (s sum, used time.Time, err error) {
	f, info, err := openFile(filepath.Join(dir, sumsName))
	if err != nil {
		return s, used, err
	}
	if info.Size() > sumsMost {
		return s, used, errors.Join(fmt.Errorf("%s has %d bytes", sumsName, info.Size()), f.Close())
	}
	b, err := io.ReadAll(io.LimitReader(f, sumsMost))
	if err = errors.Join(err, f.Close()); err != nil {
		return s, used, err
	}
	s, err = parseSum(string(b))
	return s, info.ModTime(), err
}

func parseSum(text string) (s sum, err error) {
	damaged := fmt.Errorf("%s is damaged", sumsName)
	line, ended := strings.CutSuffix(text, "\n")
	fields := strings.Split(line, " ")
	if !ended || len(fields) != 4 || fields[0] != sumsFormat || strings.Contains(line, "\n") || !filepath.IsLocal(fields[3]) {
		return s, damaged
	}
	raw, err := hex.DecodeString(fields[1])
	if err != nil || len(raw) != sha256.Size {
		return s, damaged
	}
	s.size, err = strconv.ParseInt(fields[2], 10, 64)
	if err != nil || s.size < 0 || s.size > fileMost {
		return s, damaged
	}
	copy(s.digest[:], raw)
	s.file = filepath.FromSlash(fields[3])
	return s, nil
}

// verify reads an entry and compares it with its description. The engine's own
// check of what it loads is one of 32 bits, and not of all of it. fits tells
// the names that its file may have. use, if it is not nil, is lent the content
// meanwhile; its error is used.
func verify(dir string, fits func(file string) bool, use func(content io.Reader, size int64) error) (size int64, used, err error) {
	want, _, err := readSum(dir)
	if err != nil {
		return 0, nil, err
	}
	files, err := filesIn(dir)
	if err != nil {
		return 0, nil, err
	}
	if len(files) != 2 {
		return 0, nil, fmt.Errorf("%s holds other files than its own", dir)
	}
	path := filepath.Join(dir, want.file)
	if !fits(want.file) {
		return 0, nil, fmt.Errorf("%s is not where this version keeps it", path)
	}
	for _, d := range []string{dir, filepath.Dir(path)} {
		info, err := os.Lstat(d)
		if err == nil {
			err = trusted(d, info)
		}
		if err != nil {
			return 0, nil, err
		}
	}
	f, info, err := openFile(path)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	if err := trusted(path, info); err != nil {
		return 0, nil, err
	}
	if info.Size() != want.size {
		return 0, nil, fmt.Errorf("%s has %d bytes, it should be %d", path, info.Size(), want.size)
	}
	content := &watched{file: io.LimitReader(f, want.size), hash: digestOf(filepath.Base(dir), want.file)}
	if use != nil {
		used = use(content, want.size)
	}
	if _, err := io.Copy(io.Discard, content); content.err == nil {
		content.err = err
	}
	if content.err != nil {
		return 0, nil, content.err
	}
	if [sha256.Size]byte(content.hash.Sum(nil)) != want.digest {
		return 0, nil, fmt.Errorf("%s is not what was written", path)
	}
	return want.size, used, nil
}

// watched hashes what is read of a file.
type watched struct {
	file io.Reader
	hash hash.Hash
	err  error // why it cannot be read on, but for its end
}

func (w *watched) Read(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.file.Read(p)
	w.hash.Write(p[:n])
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}
