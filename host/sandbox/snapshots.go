package sandbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/carrelhost/carrel/host/sandbox/cache"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/host/sandbox/snapshot"
)

const (
	// snapshotFormat is part of each entry's name. It changes with the form of
	// the file, and with whatever a guest can tell of its admission: the stubs
	// of clock and randomness, which imports work, what runs in which order.
	snapshotFormat = "2"
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
// with the engine that runs it, and the bounds that a guest can notice. It is ""
// while the engine's names are not known.
func (s *Sandbox) snapshotName(k *recipe) string {
	engine := s.files.engine()
	if engine == (engineNames{}) {
		return ""
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00%d\x00%d\x00%d\x00", snapshotFormat, engine.entry(k.code.digest), k.key.memoryMiB, s.cfg.Fuel, s.cfg.OutputBytes)
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
	name := s.snapshotName(k)
	if name == "" {
		return
	}
	state := snapshot.State{
		Header: snapshot.Header{Values: p.values, Passed: p.passed, Warmed: p.warmed},
		Memory: snapshot.Of(memory),
	}
	err := s.snapshots.Read(name, snapshotFile, func(there io.Reader, _ int64) error {
		if _, err := state.WriteTo(&comparison{with: there}); err != nil {
			return errAnother
		}
		if n, _ := io.ReadFull(there, make([]byte, 1)); n > 0 {
			return errAnother
		}
		return nil
	})
	if errors.Is(err, cache.ErrMissing) || errors.Is(err, errAnother) {
		s.snapshots.Write(name, snapshotFile, state)
	} // what cannot be read at the moment is not replaced: it may be this one
}

var errAnother = errors.New("it is another snapshot")

// comparison fails when what is written is not what can be read.
type comparison struct {
	with io.Reader
	part [64 << 10]byte
}

// Write compares, and reads as much as it is given.
func (c *comparison) Write(p []byte) (int, error) {
	for at := 0; at < len(p); {
		part := c.part[:min(len(c.part), len(p)-at)]
		if _, err := io.ReadFull(c.with, part); err != nil || !bytes.Equal(part, p[at:at+len(part)]) {
			return at, errAnother
		}
		at += len(part)
	}
	return len(p), nil
}

// restoreSnapshot gives a program the state that was stored, and holds a place
// for openings meanwhile. There is none if it is damaged, not of this program,
// or cannot be read at the moment. The error is image.ErrNoRoom, or the
// context's while it waits for the place.
func (s *Sandbox) restoreSnapshot(ctx context.Context, k *recipe, p *program) (there bool, err error) {
	if s.snapshots == nil || !k.guestMade() {
		return false, nil
	}
	name := s.snapshotName(k)
	if name == "" {
		return false, nil
	}
	leave, err := queue{s.opening, k.share, func(Stage) {}}.enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	var state *snapshot.Reader
	var made *image.Image // nobody has it before all was found right
	err = s.snapshots.Read(name, snapshotFile, func(content io.Reader, size int64) error {
		state, err = snapshot.NewReader(content, size)
		if err == nil {
			err = p.fits(state)
		}
		if err == nil && k.rewritten.MaxPages > 0 {
			made, err = image.Make(state.End(), p.memoryBytes(), s.memory, state.Memory)
		}
		return err
	})
	switch {
	case err == nil:
		p.beginning = beginning{
			path: k.path, image: made, pages: state.Pages(), values: state.Values, passed: state.Passed, warmed: state.Warmed,
		}
		return true, nil
	case made != nil:
		err = also(err, made.Close())
	}
	switch {
	case errors.Is(err, image.ErrNoRoom):
		return false, err
	case errors.Is(err, cache.ErrLack):
		return false, fmt.Errorf("%w: %w", image.ErrNoRoom, err)
	case errors.Is(err, snapshot.ErrDamaged), errors.Is(err, errOfAnother):
		s.cfg.Log.Warn("a snapshot in the cache cannot be used, and is made anew", "err", err)
		s.snapshots.Drop(name)
	}
	return false, nil
}

var errOfAnother = errors.New("it is of another module")

// fits judges a state that is said to be the program's.
func (p *program) fits(state *snapshot.Reader) error {
	w, pages := p.rewritten, state.Pages()
	if len(state.Values) != len(w.Globals) || pages < w.MinPages || pages > w.MaxPages || int(pages)*PageBytes > p.memoryBytes() {
		return errOfAnother
	}
	return nil
}
