// Package quarantine remembers which modules were running when the host
// crashed. One that was so at Crashes crashes is quarantined: it is not run
// any more, in no tenant, until an operator lifts that.
package quarantine

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store/datadir"
)

// Crashes is at how many of them a module is quarantined.
const Crashes = 2

// Forgotten is after how long a crash does not count any more: a module that
// only ran beside another's crash is rarely there at the next one so soon.
const Forgotten = 7 * 24 * time.Hour

// Bounds of what is remembered.
const (
	maxRecords = 1000 // modules; those that are not quarantined go first, then the oldest
	maxTenants = 8    // named for one module
	maxCrashes = 8    // times of one module, the newest
)

// Record is what is known of one module.
type Record struct {
	Digest  carrel.Digest     // of its bytes
	Crashes []time.Time       // at which it ran, oldest first, at least one
	Tenants []carrel.TenantID // who ran it then, sorted; not all, if many did
	Since   time.Time         // when it was quarantined; zero: it is not
}

// Quarantined reports whether the module must not run.
func (r Record) Quarantined() bool { return !r.Since.IsZero() }

func (r Record) clone() Record {
	r.Crashes, r.Tenants = slices.Clone(r.Crashes), slices.Clone(r.Tenants)
	return r
}

// newest is the time of the last crash.
func (r Record) newest() time.Time { return r.Crashes[len(r.Crashes)-1] }

// Suspect is a module that ran at a crash.
type Suspect struct {
	Digest carrel.Digest
	Tenant carrel.TenantID // who ran it; "" if that is not known
}

// List is the modules that ran at crashes. It is safe for concurrent use, but
// for two Lists on one file. A nil List is empty.
type List struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex // guards what follows, and the file
	records map[carrel.Digest]Record
}

// Open returns the list in a file. It never fails: a file that is missing is
// an empty list, one that cannot be read is one as well, and is moved aside;
// the log says so. What is Forgotten by now is left out.
func Open(path string, now time.Time, log *slog.Logger) *List {
	l := &List{path: path, log: log, records: map[carrel.Digest]Record{}}
	records, err := readFile(path)
	if err != nil {
		aside, asideErr := datadir.MoveAside(path)
		log.Error("the list of quarantined plugins cannot be read; it is moved aside, and nothing is quarantined",
			"file", path, "to", aside, "err", errors.Join(err, asideErr))
	}
	for _, r := range records {
		l.records[r.Digest] = r
	}
	l.forget(now)
	return l
}

// forget drops what is not quarantined and has not run at a crash for long. It
// needs mu, or nobody else.
func (l *List) forget(now time.Time) {
	maps.DeleteFunc(l.records, func(_ carrel.Digest, r Record) bool {
		return !r.Quarantined() && now.Sub(r.newest()) > Forgotten
	})
}

// Crashed counts a crash against the modules that ran, each once, and returns
// what is known of each now, by digest. Its error is of the file: then it is
// in memory all the same.
func (l *List) Crashed(at time.Time, suspects []Suspect) ([]Record, error) {
	if len(suspects) == 0 {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(at)
	counted := map[carrel.Digest]bool{}
	for _, s := range suspects {
		r := l.records[s.Digest].clone()
		r.Digest = s.Digest
		if !counted[s.Digest] {
			counted[s.Digest] = true
			r.crashed(at)
		}
		if s.Tenant != "" && len(r.Tenants) < maxTenants && !slices.Contains(r.Tenants, s.Tenant) {
			r.Tenants = append(r.Tenants, s.Tenant)
			slices.Sort(r.Tenants)
		}
		l.records[s.Digest] = r
	}
	l.bound()
	var out []Record
	for _, r := range l.sorted() {
		if counted[r.Digest] {
			out = append(out, r.clone())
		}
	}
	return out, writeFile(l.path, l.sorted())
}

// crashed counts one crash.
func (r *Record) crashed(at time.Time) {
	at = at.UTC()
	r.Crashes = append(r.Crashes, at)
	slices.SortFunc(r.Crashes, time.Time.Compare) // clocks are set back
	if !r.Quarantined() {
		r.Crashes = slices.DeleteFunc(r.Crashes, func(t time.Time) bool { return at.Sub(t) > Forgotten })
	}
	r.Crashes = r.Crashes[max(0, len(r.Crashes)-maxCrashes):]
	if len(r.Crashes) >= Crashes && !r.Quarantined() {
		r.Since = at
	}
}

// bound drops what is too much. It needs mu.
func (l *List) bound() {
	over := len(l.records) - maxRecords
	if over <= 0 {
		return
	}
	all := l.sorted()
	slices.SortFunc(all, func(a, b Record) int {
		switch {
		case a.Quarantined() == b.Quarantined():
			return a.newest().Compare(b.newest())
		case b.Quarantined():
			return -1
		default:
			return 1
		}
	})
	for _, r := range all[:over] {
		if r.Quarantined() {
			l.log.Warn("a plugin is quarantined no longer: too many are", "digest", r.Digest, "most", maxRecords)
		}
		delete(l.records, r.Digest)
	}
}

// sorted returns all records by digest. It needs mu.
func (l *List) sorted() []Record {
	return slices.SortedFunc(maps.Values(l.records), func(a, b Record) int { return bytes.Compare(a.Digest[:], b.Digest[:]) })
}

// Of returns what is known of a module that is quarantined. ok is false of any
// other.
func (l *List) Of(d carrel.Digest) (r Record, ok bool) {
	if l == nil {
		return Record{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r = l.records[d]
	return r.clone(), r.Quarantined()
}

// After returns up to limit records with digests above one, by digest: of
// modules that are quarantined, and of others that ran at a crash.
func (l *List) After(d carrel.Digest, limit int) []Record {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Record
	for _, r := range l.sorted() {
		if len(out) >= limit {
			break
		}
		if bytes.Compare(r.Digest[:], d[:]) > 0 {
			out = append(out, r.clone())
		}
	}
	return out
}

// Lift forgets all crashes of a module: it is quarantined no longer, and its
// next crash is its first. not_found for a digest that is not in the list. If
// the file cannot be written, nothing changes; storage_full if that is for
// lack of room.
func (l *List) Lift(d carrel.Digest) error {
	const op = "quarantine.Lift"
	if l == nil {
		return carrel.FailNotFound(op)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before, ok := l.records[d]
	if !ok {
		return carrel.FailNotFound(op)
	}
	delete(l.records, d)
	err := writeFile(l.path, l.sorted())
	if err == nil {
		return nil
	}
	l.records[d] = before
	if full(err) {
		return &carrel.Error{Op: op, Code: abi.StorageFull, Msg: "the host's disk is full", Err: err}
	}
	return err
}
