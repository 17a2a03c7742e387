package store

import (
	"context"
	"fmt"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
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
	// At differs between the claims of a node, by a microsecond at least:
	// ReleaseClaim tells them apart by it.
	At time.Time
	// Cutoff: claims made and answers given at or before it count as gone.
	Cutoff time.Time
}

// ClaimLimits bound the claims of one tenant.
type ClaimLimits struct {
	Claims int   // answered or not
	Bytes  int64 // of sealed answers
}

// Check returns quota_exceeded, with Limit "idempotencyKeys" or
// "idempotencyBytes", if a tenant that has so many claims, and so many bytes
// of sealed answers, may make no other.
func (l ClaimLimits) Check(op string, claims int, bytes int64) error {
	switch {
	case claims >= l.Claims:
		return carrel.FailLimit(op, abi.QuotaExceeded, "idempotencyKeys",
			fmt.Sprintf("this tenant has its %d idempotency keys; wait until some are forgotten, or let the operator raise the limit", l.Claims))
	case bytes >= l.Bytes:
		return carrel.FailLimit(op, abi.QuotaExceeded, "idempotencyBytes",
			fmt.Sprintf("this tenant has its %d bytes of answers to idempotency keys; wait until some are forgotten, or let the operator raise the limit", l.Bytes))
	default:
		return nil
	}
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
	// fingerprint is idempotency_mismatch, whatever the state. A new claim of
	// a tenant that has as much as most says is quota_exceeded, as most.Check
	// says it; what counts as gone does not count. It does not grow dearer
	// with the number of claims.
	Claim(ctx context.Context, c Claim, most ClaimLimits) (Claimed, error)

	// Answer answers a claim that has none, whatever the limits. One that was
	// interrupted, or is not there any more, gets none, which is no error.
	// Chat methods answer in Commit.
	Answer(ctx context.Context, a Answer) error

	// ReleaseClaim removes a claim that was taken as c says, by c.Node at
	// c.At, and is neither answered nor interrupted. If there is none it does
	// nothing, which is no error: it is safe although nobody knows whether c
	// was ever taken, and never removes what was claimed before or since.
	ReleaseClaim(ctx context.Context, c Claim) error

	// ReleaseClaims ends what other nodes than the given one left unanswered:
	// a handler's claims become interrupted, others are removed. It returns
	// how many there were.
	ReleaseClaims(ctx context.Context, node string) (int, error)

	// ForgetClaims removes up to limit claims made, and answers given, at or
	// before the given time, but for those that the given node still works
	// on, and returns how many.
	ForgetClaims(ctx context.Context, node string, before time.Time, limit int) (int, error)
}
