package sandbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/carrelhost/carrel/host/sandbox/cache"
	"github.com/carrelhost/carrel/host/sandbox/snapshot"
)

const (
	// snapshotFormat is part of each entry's name. It changes with the form of
	// the file, and with whatever a guest can tell of its admission: the stubs
	// of clock and randomness, which imports work, what runs in which order.
	snapshotFormat = "1"
	snapshotFile   = "snapshot" // of an entry of the cache of snapshots
)

// openSnapshots takes stock of Config.SnapshotDir.
func openSnapshots(cfg Config) (*cache.Cache, error) {
	c, err := cache.Open(cache.Config{Dir: cfg.SnapshotDir, What: "snapshots", Most: cfg.SnapshotBytes, Now: cfg.Now, Log: cfg.Log})
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	return c, nil
}

// snapshotName returns the entry's name of a program. It has all that the
// state depends on: the module, its setup, the code that it was rewritten to
// with the engine that runs it, and the bounds that a guest can notice.
func (s *Sandbox) snapshotName(k *recipe) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00%d\x00%d\x00%d\x00", snapshotFormat, s.files.name(k.code.digest), k.key.memoryMiB, s.cfg.Fuel, s.cfg.OutputBytes)
	h.Write(k.key.digest[:])
	h.Write(k.key.warmup[:])
	return hex.EncodeToString(h.Sum(nil))
}

// storeSnapshot keeps a program's state for the next start of the host, unless
// it is there, or lacks what had no time.
func (s *Sandbox) storeSnapshot(k *recipe, p *program, memory []byte) {
	if s.snapshots == nil || !k.guestMade() {
		return
	}
	if !k.admitting {
		s.cfg.Log.Info("the state that a plugin's calls begin with was not in the cache, and is made anew", "module", hex.EncodeToString(p.key.digest[:]))
	}
	if p.late {
		return
	}
	state := snapshot.State{Memory: snapshot.Of(memory), Values: p.values, Passed: p.passed, Warmed: p.warmed}
	name, b := s.snapshotName(k), state.Encode()
	if !bytes.Equal(s.snapshots.Read(name, snapshotFile), b) {
		s.snapshots.Write(name, snapshotFile, b)
	}
}

// restoreSnapshot gives a program the state that was stored. There is none if
// it is damaged or not of this program.
func (s *Sandbox) restoreSnapshot(k *recipe, p *program) (there bool, err error) {
	if s.snapshots == nil || !k.guestMade() {
		return false, nil
	}
	name := s.snapshotName(k)
	b := s.snapshots.Read(name, snapshotFile)
	if b == nil {
		return false, nil
	}
	state, err := snapshot.Decode(b)
	w, pages := k.rewritten, state.Memory.Pages()
	if err == nil && (len(state.Values) != len(w.Globals) || pages < w.MinPages || pages > w.MaxPages || int(pages)*PageBytes > p.memoryBytes()) {
		err = errors.New("it is of another module")
	}
	if err != nil {
		s.cfg.Log.Warn("a snapshot in the cache cannot be used, and is made anew", "err", err)
		s.snapshots.Drop(name)
		return false, nil
	}
	p.pages = pages
	if w.MaxPages > 0 {
		if err := s.fillImage(p, state.Memory.Fill); err != nil {
			return false, err
		}
	}
	p.values, p.passed, p.warmed = state.Values, state.Passed, state.Warmed
	return true, nil
}
