package httpapi

import (
	"encoding/json"
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

// amount is a number of buffers and of their bytes.
type amount struct{ count, bytes int64 }

func (a amount) plus(b amount) amount { return amount{a.count + b.count, a.bytes + b.bytes} }

// count notes what a tenant takes, or gives back. s.mu is held.
func (s *buffers) count(t carrel.TenantID, a amount) {
	s.all = s.all.plus(a)
	if now := s.tenants[t].plus(a); now == (amount{}) {
		delete(s.tenants, t)
	} else {
		s.tenants[t] = now
	}
}

// room makes room for what a tenant is about to take. Where all is taken each
// tenant has a right to an equal share: one that would be over it gets room
// from its own finished buffers only, else quota_exceeded; one within it gets
// room from those who are over theirs. s.mu is held.
func (s *buffers) room(t carrel.TenantID, more amount) error {
	tenants := int64(len(s.tenants))
	if _, known := s.tenants[t]; !known {
		tenants++
	}
	for _, of := range []struct {
		limit string
		what  string
		most  int64
		part  func(amount) int64
	}{
		{"eventBuffers", "invocations are streamed or kept", s.most.count, func(a amount) int64 { return a.count }},
		{"eventBytesTotal", "bytes of events are kept", s.most.bytes, func(a amount) int64 { return a.bytes }},
	} {
		need, share := of.part(more), of.most/tenants
		if need == 0 {
			continue
		}
		for of.part(s.all)+need > of.most {
			var victim *buffer
			if of.part(s.tenants[t])+need > share {
				victim = s.oldest(t, finished)
			} else {
				victim = s.victim(share, of.part)
			}
			if victim == nil {
				return carrel.FailLimit("httpapi.events", abi.QuotaExceeded, of.limit, fmt.Sprintf(
					"at most %d %s, and this tenant has its share of them; the host's operator can raise `limits.%s`", of.most, of.what, of.limit))
			}
			s.cut(victim, of.limit)
		}
	}
	return nil
}

// victim returns a buffer of the tenant that is over its share by most: the
// oldest that is finished and that nobody reads, else the oldest that is
// finished, else any. s.mu is held.
func (s *buffers) victim(share int64, part func(amount) int64) *buffer {
	var greediest carrel.TenantID
	most := share
	for t, a := range s.tenants {
		if part(a) > most {
			greediest, most = t, part(a)
		}
	}
	if most == share {
		return nil
	}
	for _, which := range []func(*buffer) bool{
		finished,
		func(b *buffer) bool { return !b.over.IsZero() },
		func(*buffer) bool { return true },
	} {
		if b := s.oldest(greediest, which); b != nil {
			return b
		}
	}
	return nil
}

func finished(b *buffer) bool { return b.readers == 0 && !b.over.IsZero() }

// oldest returns a tenant's buffer that ended first of those that match; of
// those that have not ended the largest. s.mu is held.
func (s *buffers) oldest(t carrel.TenantID, match func(*buffer) bool) *buffer {
	var found *buffer
	for b := range s.held {
		if b.who.Tenant != t || !match(b) {
			continue
		}
		if found == nil || b.over.Before(found.over) || b.over.Equal(found.over) && b.bytes > found.bytes {
			found = b
		}
	}
	return found
}

// cut takes a buffer away from its tenant, which is over its share. Readers
// are told so, and what still runs is cancelled. s.mu is held.
func (s *buffers) cut(b *buffer, limit string) {
	why := carrel.FailLimit("httpapi.events", abi.QuotaExceeded, limit,
		"other tenants needed the room that the events took, and this tenant had more than its share; the host's operator can raise `limits."+limit+"`")
	p := problemOf(why, string(b.run.call.Request))
	e := client.Event{Type: client.EventError, Error: &p}
	data, err := json.Marshal(e)
	if err != nil { // nothing in it can fail
		data = []byte(`{"type":"error","sequence_number":0}`)
	}
	if !b.hidden { // else another's may have the id
		delete(s.byID, b.id)
	}
	b.hidden = true
	b.keep()
	s.drop(b, &event{kind: client.EventError, head: data})
	if b.over.IsZero() {
		b.run.cancel(why)
	}
}
