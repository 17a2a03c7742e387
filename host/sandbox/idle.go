package sandbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/image"
)

// idler is an instance of a plugin that waits for the next call, in the state
// of the image.
type idler struct {
	instance *instance
	since    time.Time
	trimmed  bool // it gave its private memory back
}

// idleMemory bounds what the instances of all plugins keep between calls. A
// call in the usual run of things writes nothing here: what an instance keeps
// is counted again only when it has changed.
type idleMemory struct {
	most   int64        // bytes
	bytes  atomic.Int64 // of the instances that were kept and are not closed, as of when they last were
	room   sync.Mutex   // held by who makes room
	looked atomic.Bool  // a look is planned

	mu    sync.Mutex
	timer *time.Timer // of the last look that was planned
}

// closeAfter is how many times Config.Idle an instance waits before it is
// closed.
const closeAfter = 6

// take returns an instance for one call: in the program's state, with one
// user. The caller gives it back with putBack. Where the system has no room for
// another one, those that wait make some.
func (p *Plugin) take(ctx context.Context) (*instance, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		in := p.idle[n-1].instance
		p.idle[n-1] = idler{}
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return in, nil
	}
	p.mu.Unlock()
	//nolint:contextcheck // what closeHalf closes is another call's
	return p.sandbox.withRoom(func() (*instance, error) { return p.program.instance(ctx) })
}

// slowToUnmap is the size of memory, in bytes, from which on nobody waits for
// the system to take it back: it takes 0.1 ms for each MiB that was written.
const slowToUnmap = 4 << 20

// putBack ends the use of an instance whose guest has stopped. After a call
// that returned, with success or failure, it is made as new and kept, if that
// can be; after everything else it is closed, whatever the state of it may be.
// A large one is closed later, and has the CPU slot of the run until it is:
// more of them than there are slots never wait for that.
func (p *Plugin) putBack(ctx context.Context, r *run, in *instance, err error) {
	returned := err == nil || carrel.CodeOf(err) == abi.GuestFailed
	//nolint:contextcheck // what keep closes to make room is another call's
	if returned && p.program.path == PathReset && in.reset(p.program) && p.keep(in) {
		return
	}
	if in.slot == nil || in.module.Memory().Size() < slowToUnmap || !r.onSlot {
		in.close(ctx)
		return
	}
	p.calls.Add(1) // Close waits for it as for the call
	giveBack := r.keepSlot()
	go func() {
		in.close(ctx)
		giveBack()
		p.calls.Done()
	}()
}

// reset makes an instance as new after a call that returned. It cannot if the
// memory has grown: the engine shrinks none.
func (in *instance) reset(p *program) bool {
	if in.slot != nil {
		if in.module.Memory().Size() != in.pages*PageBytes || in.slot.Reset() != nil {
			return false
		}
	}
	in.restore(p.values)
	return true
}

// keep takes an instance that is as new. It keeps no more than can run at one
// time, and makes room if all plugins keep too much.
func (p *Plugin) keep(in *instance) bool {
	more := in.count(&p.sandbox.idle)
	if !p.put(idler{instance: in, since: time.Now()}) {
		return false
	}
	if more {
		p.sandbox.makeRoom()
	}
	return true
}

// put adds an instance to those that wait, unless they are enough, and has
// somebody look at them later.
func (p *Plugin) put(i idler) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if p.closed || n >= p.sandbox.cfg.Slots {
		return false
	}
	for n > 0 && p.idle[n-1].since.After(i.since) {
		n--
	}
	p.idle = slices.Insert(p.idle, n, i)
	if !p.sandbox.idle.looked.Load() { // under mu: see age
		p.sandbox.look()
	}
	return true
}

// takeOut takes those that which names out of the instances that wait. The
// caller has each of them shrink, without a lock: the system takes its time to
// take memory back, and calls do not wait for that, but Close does.
func (p *Plugin) takeOut(which func(idler) bool) (out []idler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed { // Close has them
		return nil
	}
	p.idle = slices.DeleteFunc(p.idle, func(i idler) bool {
		if !which(i) {
			return false
		}
		out = append(out, i)
		return true
	})
	p.calls.Add(len(out))
	return out
}

// shrink takes memory from an instance that was taken out, which then waits
// again; or closes it, also if there is nothing to take.
func (p *Plugin) shrink(i idler, closes bool) {
	defer p.calls.Done()
	if closes || i.trimmed || !i.trim() || !p.put(i) {
		i.instance.close(context.Background())
	}
}

// count brings the sum up to date with what the instance keeps now, and
// reports whether it is more than before.
func (in *instance) count(sum *idleMemory) (more bool) {
	bytes := in.bytes()
	if bytes == in.counted {
		return false
	}
	more = bytes > in.counted
	sum.bytes.Add(bytes - in.counted)
	in.counted, in.sum = bytes, sum
	return more
}

// trim gives back what an instance can do without until its next call: the
// memory that is its own, and the stacks.
func (i *idler) trim() bool {
	i.instance.dropStacks()
	if i.instance.slot != nil && i.instance.slot.Trim() != nil {
		return false
	}
	i.instance.count(i.instance.sum)
	i.trimmed = true
	return true
}

// look plans the next look at the instances that wait, of all plugins.
func (s *Sandbox) look() {
	if s.idle.looked.Swap(true) {
		return
	}
	s.idle.mu.Lock()
	defer s.idle.mu.Unlock()
	s.idle.timer = time.AfterFunc(s.cfg.Idle, s.age)
}

// stop ends the looks, when every plugin is closed.
func (m *idleMemory) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.timer != nil {
		m.timer.Stop()
	}
}

// age takes the memory of instances that waited for a time, and closes those
// that waited for closeAfter times of it.
func (s *Sandbox) age() {
	// Before it looks: whoever puts an instance either sees this and plans the
	// next look, or put it before and is seen here.
	s.idle.looked.Store(false)
	left := 0
	for _, p := range s.everyPlugin() {
		left += p.age(s.cfg.Idle)
	}
	if left > 0 {
		s.look()
	}
}

// age is the sandbox's, of one plugin. It returns how many instances are left.
func (p *Plugin) age(idle time.Duration) (left int) {
	now := time.Now()
	ends := func(i idler) bool { return now.Sub(i.since) >= closeAfter*idle }
	for _, i := range p.takeOut(func(i idler) bool { return ends(i) || !i.trimmed && now.Sub(i.since) >= idle }) {
		p.shrink(i, ends(i))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}

// closeIdle closes the instances that wait. Nobody calls any more.
func (p *Plugin) closeIdle() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, i := range idle {
		i.instance.close(context.Background())
	}
}

// waiting is an instance that makeRoom may take.
type waiting struct {
	plugin *Plugin
	idler
}

// makeRoom takes memory from the instances that wait for longest, of whatever
// plugin, until all together keep a little less than they may. Each gives its
// memory back first and is closed when its turn comes again. Whoever keeps more
// meanwhile waits, so that the bound is exceeded by what runs at the most.
func (s *Sandbox) makeRoom() {
	if s.idle.bytes.Load() <= s.idle.most {
		return
	}
	s.idle.room.Lock()
	defer s.idle.room.Unlock()
	if s.idle.bytes.Load() <= s.idle.most {
		return
	}
	enough := s.idle.most - s.idle.most/16 // so that it is not for each call
	for range 2 {
		for _, w := range s.everyIdler() {
			if s.idle.bytes.Load() <= enough {
				return
			}
			w.plugin.yield(w.idler, false)
		}
	}
}

// closeHalf closes half of the instances that wait, those that wait for longest,
// and reports whether there were any. The system has no room for another one,
// and what they hold of its address space and mappings is theirs until they are
// closed.
func (s *Sandbox) closeHalf() bool {
	all := s.everyIdler()
	for _, w := range all[:(len(all)+1)/2] {
		w.plugin.yield(w.idler, true)
	}
	return len(all) > 0
}

// withRoom makes an instance. Where the system has no room for it, those that
// wait make some, and it is made once more.
func (s *Sandbox) withRoom(create func() (*instance, error)) (*instance, error) {
	in, err := create()
	if errors.Is(err, image.ErrNoRoom) && s.closeHalf() {
		return create()
	}
	return in, err
}

// yield shrinks an instance, unless it was used meanwhile.
func (p *Plugin) yield(w idler, closes bool) {
	for _, i := range p.takeOut(func(i idler) bool { return i.instance == w.instance && i.since.Equal(w.since) }) {
		p.shrink(i, closes)
	}
}

// everyIdler returns the instances that wait, the longest first.
func (s *Sandbox) everyIdler() []waiting {
	var all []waiting
	for _, p := range s.everyPlugin() {
		p.mu.Lock()
		for _, i := range p.idle {
			all = append(all, waiting{p, i})
		}
		p.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b waiting) int { return a.since.Compare(b.since) })
	return all
}

func (s *Sandbox) everyPlugin() []*Plugin {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Plugin, 0, len(s.plugins))
	for p := range s.plugins {
		all = append(all, p)
	}
	return all
}
