package quarantine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/strictjson"
	"github.com/carrelhost/carrel/store/datadir"
)

// document is the file.
type document struct {
	Version int      `json:"version"`
	Modules []stored `json:"modules"`
}

// stored is a record in the file.
type stored struct {
	Digest  string      `json:"digest"`
	Crashes []time.Time `json:"crashes"`
	Tenants []string    `json:"tenants,omitempty"`
	Since   time.Time   `json:"since,omitzero"`
}

const (
	fileVersion  = 1
	maxFileBytes = 4 << 20
	fileDepth    = 5
)

// readFile returns the records of a file that is whole; none if it is missing.
func readFile(path string) ([]Record, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no file")
	}
	f, err := os.Open(path) //nolint:gosec // a file of the host's own
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxFileBytes {
		return nil, fmt.Errorf("it is longer than %d bytes", maxFileBytes)
	}
	return parse(content)
}

func parse(content []byte) ([]Record, error) {
	var doc document
	if err := strictjson.Into(content, &doc, fileDepth); err != nil {
		return nil, err
	}
	if doc.Version != fileVersion {
		return nil, fmt.Errorf("it has version %d, this host reads %d", doc.Version, fileVersion)
	}
	if len(doc.Modules) > maxRecords {
		return nil, fmt.Errorf("it has %d modules, there are at most %d", len(doc.Modules), maxRecords)
	}
	var out []Record
	seen := map[carrel.Digest]bool{}
	for i, m := range doc.Modules {
		r, err := m.record()
		if err != nil {
			return nil, fmt.Errorf("module %d: %w", i, err)
		}
		if seen[r.Digest] {
			return nil, fmt.Errorf("module %d: %s is there twice", i, r.Digest)
		}
		seen[r.Digest] = true
		out = append(out, r)
	}
	return out, nil
}

func (m stored) record() (Record, error) {
	d, err := carrel.ParseDigest(m.Digest)
	if err != nil {
		return Record{}, err
	}
	if len(m.Crashes) < 1 || len(m.Crashes) > maxCrashes || len(m.Tenants) > maxTenants {
		return Record{}, fmt.Errorf("%d crashes, %d tenants", len(m.Crashes), len(m.Tenants))
	}
	r := Record{Digest: d, Crashes: m.Crashes, Since: m.Since}
	for _, name := range m.Tenants {
		t, err := carrel.ParseTenantID(name)
		if err != nil {
			return Record{}, err
		}
		r.Tenants = append(r.Tenants, t)
	}
	return r, nil
}

// writeFile replaces the file, whole or not at all.
func writeFile(path string, records []Record) error {
	doc := document{Version: fileVersion, Modules: []stored{}}
	for _, r := range records {
		m := stored{Digest: r.Digest.String(), Crashes: r.Crashes, Since: r.Since}
		for _, t := range r.Tenants {
			m.Tenants = append(m.Tenants, string(t))
		}
		doc.Modules = append(doc.Modules, m)
	}
	content, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		return fmt.Errorf("encode the list of quarantined plugins: %w", err)
	}
	if err := datadir.WriteFile(path, append(content, '\n')); err != nil {
		return fmt.Errorf("the list of quarantined plugins: %w", err)
	}
	return nil
}

// full reports whether there was no room.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
