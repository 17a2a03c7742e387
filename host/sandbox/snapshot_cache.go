package sandbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/carrelhost/carrel/host/sandbox/cache"
)

// snapshotFile is the file of an entry of the cache of snapshots.
const snapshotFile = "snapshot"

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

// storeSnapshot keeps a program's state for the next start of the host. An
// admission replaces what is there if it is another one: its warm-up may have
// succeeded where an earlier one had no time. One that had no time itself does
// not replace what is warm, which may be that of others with the same bytes.
func (s *Sandbox) storeSnapshot(k *recipe, p *program, memory []byte) {
	if s.snapshots == nil || !k.guestMade() {
		return
	}
	if !k.admitting {
		s.cfg.Log.Info("the state that a plugin's calls begin with was not in the cache, and is made anew", "module", hex.EncodeToString(p.key.digest[:]))
		if outOfTime(k.discarded) {
			return // perhaps the machine was busy, and the next opening has more luck
		}
	}
	state := snapshot{pages: p.pages, values: p.values, passed: p.passed, warmed: p.warmed, stretches: stretchesOf(memory)}
	name, b := s.snapshotName(k), state.encode()
	there := s.snapshots.Read(name, snapshotFile)
	if bytes.Equal(there, b) || outOfTime(k.discarded) && isWarm(there) {
		return
	}
	s.snapshots.Write(name, snapshotFile, b)
}

// isWarm reports whether a file is a snapshot that has its warm-up in it.
func isWarm(file []byte) bool {
	state, err := decodeSnapshot(file)
	return err == nil && state.warmed
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
	state, err := decodeSnapshot(b)
	w := k.rewritten
	if err == nil && (len(state.values) != len(w.Globals) || state.pages < w.MinPages || state.pages > w.MaxPages || int(state.pages)*PageBytes > p.memoryBytes()) {
		err = fmt.Errorf("%w: it is of another module", errSnapshot)
	}
	if err != nil {
		s.cfg.Log.Warn("a snapshot in the cache cannot be used, and is made anew", "err", err)
		s.snapshots.Drop(name)
		return false, nil
	}
	p.pages = state.pages
	if w.MaxPages > 0 {
		if err := s.fillImage(p, state.fill); err != nil {
			return false, err
		}
	}
	p.values, p.passed, p.warmed = state.values, state.passed, state.warmed
	return true, nil
}
