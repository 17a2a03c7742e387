package httpapi

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/carrelhost/carrel"
)

// budget is room that all tenants have together. One of them has a part of it
// at the most: clients that announce bodies and send none, or ask for answers
// and do not read them, would else keep everybody out. It is safe for
// concurrent use.
type budget struct {
	all  *semaphore.Weighted
	most int64 // of one tenant

	mu      sync.Mutex // guards tenants, and what each part wants
	tenants map[carrel.TenantID]*part
}

// part is what one tenant has of the room. It exists while that has, or waits
// for, some of it.
type part struct {
	room   *semaphore.Weighted
	wanted int64 // what it has or waits for
}

// newBodies makes room for all bodies that are being handled, in bytes. A
// tenant has half of it, or as much as the largest single body takes.
func newBodies(l Limits) *budget {
	most := min(l.BodyBytes, max(l.BodyBytes/2, l.ModuleBytes, l.ImportBytes, l.RequestBytes, l.FrameBytes+1))
	return newBudget(l.BodyBytes, most)
}

// newModules makes room for the bodies of uploads, which they have besides their
// room among all bodies: they are held as long as an upload waits for others,
// and what waits is never to take the room of calls. All uploads have half of
// that room, and a tenant has half of theirs, or as much as one module takes.
func newModules(l Limits) *budget {
	all := max(l.BodyBytes/2, l.ModuleBytes)
	return newBudget(all, max(all/2, l.ModuleBytes))
}

func newBudget(all, mostOfTenant int64) *budget {
	return &budget{all: semaphore.NewWeighted(all), most: mostOfTenant, tenants: map[carrel.TenantID]*part{}}
}

// acquire takes room for a tenant, "" is the administrator's, and waits for it
// until ctx ends. All of it is to be released.
func (b *budget) acquire(ctx context.Context, t carrel.TenantID, size int64) error {
	if size == 0 {
		return nil
	}
	p := b.enter(t, size)
	if err := p.room.Acquire(ctx, size); err != nil {
		b.leave(t, size)
		return fmt.Errorf("wait for the tenant's part: %w", err)
	}
	if err := b.all.Acquire(ctx, size); err != nil {
		p.room.Release(size)
		b.leave(t, size)
		return fmt.Errorf("wait for room: %w", err)
	}
	return nil
}

// acquireWithin is acquire for whoever waits so long at the most.
func (b *budget) acquireWithin(ctx context.Context, most time.Duration, t carrel.TenantID, size int64) error {
	if b.take(t, size) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return b.acquire(ctx, t, size)
}

// take is acquire for whoever does not wait: it is false if others wait, or
// if there is not enough room.
func (b *budget) take(t carrel.TenantID, size int64) bool {
	if size == 0 {
		return true
	}
	p := b.enter(t, size)
	if p.room.TryAcquire(size) {
		if b.all.TryAcquire(size) {
			return true
		}
		p.room.Release(size)
	}
	b.leave(t, size)
	return false
}

// release gives back what a tenant took, at once or bit by bit.
func (b *budget) release(t carrel.TenantID, size int64) {
	if size == 0 {
		return
	}
	b.all.Release(size)
	b.mu.Lock()
	p := b.tenants[t]
	b.mu.Unlock()
	p.room.Release(size)
	b.leave(t, size)
}

func (b *budget) enter(t carrel.TenantID, size int64) *part {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.tenants[t]
	if !ok {
		p = &part{room: semaphore.NewWeighted(b.most)}
		b.tenants[t] = p
	}
	p.wanted += size
	return p
}

func (b *budget) leave(t carrel.TenantID, size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.tenants[t]
	if p.wanted -= size; p.wanted == 0 {
		delete(b.tenants, t)
	}
}
