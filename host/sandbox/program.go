package sandbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// programKey names a program: equal bytes with equal setup run as one.
type programKey struct {
	digest    [sha256.Size]byte
	memoryMiB int
	warmup    [sha256.Size]byte // zero without one
}

// keyOf names the program of a module with a complete setup.
func keyOf(wasm []byte, setup Setup) programKey {
	k := programKey{digest: sha256.Sum256(wasm), memoryMiB: setup.MemoryMiB}
	if w := setup.Warmup; w != nil {
		h := sha256.New()
		fmt.Fprintf(h, "%d %s ", len(w.Export), w.Export)
		h.Write(w.Input)
		h.Sum(k.warmup[:0])
	}
	return k
}

// program is code with what its instances begin with. It is read-only and
// serves any number of plugins; their instances are gone before it.
type program struct {
	key       programKey
	code      *code
	rewritten *module.Rewritten // without Code and Data: those are the module's bytes
	beginning
	late bool // something is missing that had no time: for one opening only
	refs int  // plugins that use it, and Sandbox.latest; guarded by Sandbox.mu
}

// beginning is what a program's instances begin with. A program gets it whole
// or not at all: globals of one beginning and memory of another are a state
// that no guest ever made.
type beginning struct {
	path   string
	image  *image.Image // nil without a memory
	pages  uint32       // of the image
	values []uint64     // of the globals; nil on PathPlain only, where instances initialise themselves
	passed int64        // what the monotonic clock showed last, in ns
	warmed bool         // a warm-up is in the image and the values
}

// howItRuns returns the fastest way that gives each call fresh state, and why
// it is no faster one.
func howItRuns(c *code, w *module.Rewritten) (path string, why []string) {
	if w.Resettable {
		return PathReset, []string{"memory and globals are all that a call can change, and both can be set back"}
	}
	for _, g := range w.Globals {
		if !g.Restorable() {
			return PathPlain, w.Why
		}
	}
	// Tables and passive segments cannot be seen from here. If code of the
	// guest runs before the image is taken, it may have changed them.
	const before = " runs code before the first call, which may do that, too, and no image of the memory could show it: so it runs again in each call"
	switch {
	case w.Start:
		return PathPlain, append(slices.Clone(w.Why), "the start function"+before)
	case c.has[abi.InitializeExport]:
		return PathPlain, append(slices.Clone(w.Why), abi.InitializeExport+before)
	default:
		return PathImage, w.Why
	}
}

// newProgram makes the program of a recipe. It runs the module's
// initialisation and its warm-up, or reads what came of them when they ran
// before. If the initialisation fails, so does an admission; else each call
// will fail, too, and tells why. What fails for a reason of the host's is an
// error of both. The program takes over the reference to the code, also with an
// error.
func (s *Sandbox) newProgram(ctx context.Context, k *recipe) (p *program, err error) {
	kept := *k.rewritten
	kept.Code, kept.Data = nil, nil
	p = &program{key: k.key, code: k.code, rewritten: &kept}
	defer func() {
		if err != nil {
			err = also(err, s.closeProgram(ctx, p))
			p = nil
		}
	}()
	if k.warmup != nil && k.path != PathReset {
		k.discarded, k.warmup = notOnThisPath(k.path, kept.Why), nil
	}
	if k.path != PathPlain && !k.admitting {
		if there, err := s.restoreSnapshot(ctx, k, p); there || err != nil {
			return p, noRoom(err)
		}
	}
	if k.path != PathPlain || k.admitting {
		err := s.bake(ctx, k, p)
		switch {
		case err == nil && k.path != PathPlain:
			return p, nil
		case err == nil:
		case ctx.Err() != nil, k.admitting:
			return p, noRoom(err)
		case outOfTime(err):
			s.goesOn(p, err)
		case !ofGuest(err):
			return p, noRoom(err)
		}
	}
	return p, s.dataImage(p, k.rewritten)
}

// memoryBytes is what an instance of the program may have.
func (p *program) memoryBytes() int { return p.key.memoryMiB << 20 }

// loaded returns an instance with its data, of which no code has run.
func (s *Sandbox) loaded(ctx context.Context, c *code, w *module.Rewritten, most int) (*instance, error) {
	var blank *image.Image
	if w.MaxPages > 0 {
		blank = s.blank
	}
	//nolint:contextcheck // what closeHalf closes is another call's
	in, err := s.withRoom(func() (*instance, error) { return newInstance(ctx, c, blank, w.MinPages, most, w.Globals) })
	if err != nil {
		return nil, err
	}
	if in.slot != nil {
		writeData(in.slot.Bytes(int(w.MinPages)*PageBytes), w)
	}
	return in, nil
}

// dataImage makes the program one of instances that initialise themselves, on
// PathPlain, and the image that they do it in.
func (s *Sandbox) dataImage(p *program, w *module.Rewritten) error {
	p.beginning = beginning{path: PathPlain, pages: w.MinPages}
	if w.MaxPages == 0 {
		return nil
	}
	slot, err := s.blank.Slot()
	if err != nil {
		return noRoom(err)
	}
	memory := slot.Bytes(int(p.pages) * PageBytes)
	if memory == nil {
		err = slot.Lack()
	} else {
		writeData(memory, w)
		p.image, err = image.New(memory, p.memoryBytes(), s.memory)
	}
	return also(noRoom(err), slot.Close())
}

// writeData writes the module's data into a memory that is all zero.
func writeData(memory []byte, w *module.Rewritten) {
	for _, d := range w.Data {
		copy(memory[d.Offset:], d.Bytes)
	}
}

// instance returns a new instance as it is before a call: with the state of
// the image, or to be initialised.
func (p *program) instance(ctx context.Context) (*instance, error) {
	in, err := newInstance(ctx, p.code, p.image, p.rewritten.MinPages, p.memoryBytes(), p.rewritten.Globals)
	if err != nil {
		return nil, err
	}
	if more := p.pages - p.rewritten.MinPages; more > 0 {
		if _, ok := in.module.Memory().Grow(more); !ok {
			err := fmt.Errorf("the image's %d pages: %w", p.pages, in.slot.Lack())
			in.close(ctx)
			return nil, err
		}
		in.pages = p.pages
	}
	in.restore(p.values)
	return in, nil
}

// restore sets the globals; without values they stay.
func (in *instance) restore(values []uint64) {
	for i, v := range values {
		in.globals[i].Set(v)
	}
}

// closeProgram gives up the image and the program's share of the code.
func (s *Sandbox) closeProgram(ctx context.Context, p *program) error {
	var err error
	if p.image != nil {
		err = p.image.Close()
	}
	return also(err, s.release(ctx, p.code))
}

// noRoom says that the machine, not the module, has too little.
func noRoom(err error) error {
	if !errors.Is(err, image.ErrNoRoom) || carrel.CodeOf(err) == abi.Overloaded {
		return err
	}
	return &carrel.Error{Op: "sandbox", Code: abi.Overloaded, Msg: "the host has no room for another guest's memory; try again", Err: err}
}

// also adds a failure to close to an error, which stays as it is without one:
// callers look at its type.
func also(err, closing error) error {
	switch {
	case closing == nil:
		return err
	case err == nil:
		return fmt.Errorf("sandbox: close a program: %w", closing)
	default:
		return errors.Join(err, closing)
	}
}
