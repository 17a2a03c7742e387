package store

import (
	"context"
	"time"

	"github.com/carrelhost/carrel"
)

// Claim says that a request with an idempotency key is being worked on.
type Claim struct {
	ID          [32]byte // of (tenant, API key, subject, method, idempotency key), hashed by the caller
	Fingerprint [32]byte // of what else the request says, likewise
	Tenant      carrel.TenantID
	Subject     carrel.Subject
	Node        string // the process run that works on it
	// Handler says that guest code runs, whose effects nobody can take back: a
	// claim that was never answered is not given out again.
	Handler bool
	At      time.Time
	// Cutoff: claims made and answers given at or before it count as gone.
	Cutoff time.Time
}

// ClaimState is what became of a claim.
type ClaimState int

// The states that Claim finds.
const (
	ClaimTaken       ClaimState = iota // it is the caller's
	ClaimAnswered                      // it has an answer
	ClaimElsewhere                     // another node works on it
	ClaimInterrupted                   // a handler's, whose run was cut short
)

// Claimed is what Claim finds.
type Claimed struct {
	State   ClaimState
	Sealed  []byte // if answered: Answer.Sealed
	Trimmed int64  // if answered: Committed.Trimmed of the turn
}

// Answer answers a claim.
type Answer struct {
	Claim  [32]byte
	Sealed []byte // encrypted by the caller; the store cannot read it
	At     time.Time
}

// Idempotency keeps the answers of requests that clients may repeat.
type Idempotency interface {
	// Claim takes a claim, or says what became of it. An unanswered one of the
	// same node is taken again if it is no handler's, and else interrupted:
	// callers ask only if nothing in their process works on it. Another
	// fingerprint is idempotency_mismatch, whatever the state. most bounds the
	// claims, answered or not, of one tenant: past it, quota_exceeded with
	// Limit "idempotencyKeys".
	Claim(ctx context.Context, c Claim, most int) (Claimed, error)

	// Answer answers a claim that has none. One that was interrupted, or is
	// not there any more, gets none, which is no error. Chat methods answer in Commit.
	Answer(ctx context.Context, a Answer) error

	// ReleaseClaim removes a claim that has no answer.
	ReleaseClaim(ctx context.Context, id [32]byte) error

	// ReleaseClaims ends what other nodes than the given one left unanswered:
	// a handler's claims become interrupted, others are removed. It returns
	// how many there were.
	ReleaseClaims(ctx context.Context, node string) (int, error)

	// ForgetClaims removes up to limit claims made, and answers given, at or
	// before the given time, but for those that the given node still works
	// on, and returns how many.
	ForgetClaims(ctx context.Context, node string, before time.Time, limit int) (int, error)
}
