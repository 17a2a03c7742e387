package sandbox

import (
	"context"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// idler is an instance of a plugin that waits for the next call, in the state
// of the image.
type idler struct {
	instance *instance
	since    time.Time
	trimmed  bool // it gave its private memory back
}

// closeAfter is how many times Config.Idle an instance waits before it is
// closed.
const closeAfter = 6

// take returns an instance for one call: in the program's state, with one
// user. The caller gives it back with putBack.
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
	return p.program.instance(ctx)
}

// putBack ends the use of an instance whose guest has stopped. After a call
// that returned, with success or failure, it is made as new and kept, if that
// can be; after everything else it is closed, whatever the state of it may be.
func (p *Plugin) putBack(ctx context.Context, in *instance, err error) {
	returned := err == nil || carrel.CodeOf(err) == abi.GuestFailed
	//nolint:contextcheck // the timer that keep sets outlives the call
	if !returned || p.program.path != PathReset || !in.reset(p.program) || !p.keep(in) {
		in.close(ctx)
	}
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
// time.
func (p *Plugin) keep(in *instance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= p.sandbox.cfg.Slots {
		return false
	}
	p.idle = append(p.idle, idler{instance: in, since: time.Now()})
	p.look()
	return true
}

// look plans the next look at the instances that wait. It needs mu.
func (p *Plugin) look() {
	if p.timer == nil {
		p.timer = time.AfterFunc(p.sandbox.cfg.Idle, func() { p.trim(p.sandbox.cfg.Idle) })
	}
}

// trim takes the memory of instances that waited for a time, and closes those
// that waited for closeAfter times of it. 0 closes all.
func (p *Plugin) trim(idle time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	now, kept := time.Now(), p.idle[:0]
	for _, i := range p.idle {
		waited := now.Sub(i.since)
		if waited >= closeAfter*idle {
			i.instance.close(context.Background())
			continue
		}
		if waited >= idle && !i.trimmed && i.instance.slot != nil {
			if i.instance.slot.Trim() != nil {
				i.instance.close(context.Background())
				continue
			}
			i.trimmed = true
		}
		kept = append(kept, i)
	}
	clear(p.idle[len(kept):])
	p.idle = kept
	if len(kept) > 0 {
		p.look()
	}
}
