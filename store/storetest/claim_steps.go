package storetest

import (
	"context"
	"time"

	"pgregory.net/rapid"

	"github.com/carrelhost/carrel/store"
)

// The steps of Differential with claims.

func (p *pair) claim(rt *rapid.T) {
	p.rt = rt
	n := byte(p.number("claim", 1, 4))
	c := store.Claim{
		ID:          [32]byte{n},
		Fingerprint: [32]byte{byte(pick(p, "fingerprint", []int{1, 1, 1, 2}))},
		Tenant:      pairTenants[n%2],
		Subject:     pairSubjects[1+n/3],
		Node:        pick(p, "node", pairNodes),
		Handler:     n%2 == 0,
		At:          p.claimedAt(),
		Cutoff:      p.cutoff(),
	}
	most := store.ClaimLimits{Claims: p.number("most", 1, 3), Bytes: int64(p.number("most bytes", 1, 12))}
	same(p, "Claim", func(s store.Store) (store.Claimed, error) { return s.Claim(context.Background(), c, most) })
}

// claimedAt is one of few times, for a release must meet the claim.
func (p *pair) claimedAt() time.Time {
	return noon.Add(time.Duration(p.number("claimed at", 0, 2)) * 20 * time.Minute)
}

func (p *pair) answer(rt *rapid.T) {
	p.rt = rt
	a := p.newAnswer()
	sameError(p, "Answer", func(s store.Store) error { return s.Answer(context.Background(), a) })
}

func (p *pair) releaseClaim(rt *rapid.T) {
	p.rt = rt
	c := store.Claim{ID: [32]byte{byte(p.number("claim", 1, 4))}, Node: pick(p, "node", pairNodes), At: p.claimedAt()}
	sameError(p, "ReleaseClaim", func(s store.Store) error { return s.ReleaseClaim(context.Background(), c) })
}

func (p *pair) releaseClaims(rt *rapid.T) {
	p.rt = rt
	run := pick(p, "node", pairNodes)
	same(p, "ReleaseClaims", func(s store.Store) (int, error) { return s.ReleaseClaims(context.Background(), run) })
}

func (p *pair) newAnswer() store.Answer {
	return store.Answer{
		Claim: [32]byte{byte(p.number("claim", 1, 4))}, Sealed: []byte(pick(p, "sealed", []string{"", "x", "yyyy"})), At: p.time("answered at"),
	}
}
