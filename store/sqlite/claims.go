package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// "sealed IS NULL AND interrupted = 0" is written out in every query of open
// claims: it is what lets SQLite use the index that holds no others.
const (
	selectClaim = "SELECT fingerprint, node, handler, interrupted, at, sealed IS NOT NULL, sealed, trimmed FROM claims WHERE id = ?"
	// Triggers keep the counts.
	countClaims  = "SELECT claims, bytes FROM claim_counts WHERE tenant = ?"
	goneClaims   = "SELECT coalesce(length(sealed), 0) FROM claims WHERE tenant = ? AND at <= ? ORDER BY at"
	releaseClaim = `DELETE FROM claims
		WHERE id = ? AND node = ? AND at = ? AND sealed IS NULL AND interrupted = 0`
	interruptClaims = `UPDATE claims SET interrupted = 1
		WHERE sealed IS NULL AND interrupted = 0 AND node <> ?1 AND handler = 1`
	releaseClaims = `DELETE FROM claims
		WHERE sealed IS NULL AND interrupted = 0 AND node <> ?1 AND handler = 0`
	forgetClaims = `DELETE FROM claims WHERE id IN (SELECT id FROM claims
		WHERE at <= ?1 AND NOT (node = ?2 AND sealed IS NULL AND interrupted = 0) ORDER BY at LIMIT ?3)`
)

// oldClaim is a claim that is there.
type oldClaim struct {
	fingerprint          [32]byte
	node                 string
	handler, interrupted bool
	at                   int64
	answered             bool
	sealed               []byte
	trimmed              int64
}

// Claim implements store.Idempotency.
func (s *Store) Claim(ctx context.Context, c store.Claim, most store.ClaimLimits) (store.Claimed, error) {
	const op = "sqlite.Claim"
	return write(ctx, s, op, func(ctx context.Context, q *session) (store.Claimed, error) {
		var old oldClaim
		err := q.one(ctx, selectClaim, []any{c.ID[:]}, fixed(old.fingerprint[:]), &old.node, &old.handler,
			&old.interrupted, &old.at, &old.answered, &old.sealed, &old.trimmed)
		gone := err == nil && old.at <= expiry(c.Cutoff)
		switch {
		case gone:
			if err := removeClaim(ctx, q, c.ID); err != nil {
				return store.Claimed{}, err
			}
		case err == nil:
			return again(ctx, q, op, c, old)
		case !errors.Is(err, sql.ErrNoRows):
			return store.Claimed{}, err
		}
		return store.Claimed{State: store.ClaimTaken}, takeClaim(ctx, q, op, c, most)
	})
}

func takeClaim(ctx context.Context, q *session, op string, c store.Claim, most store.ClaimLimits) error {
	var claims int
	var size int64
	err := q.one(ctx, countClaims, []any{c.Tenant}, &claims, &size)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	full := most.Check(op, claims, size)
	if full != nil {
		// What counts as gone, and nobody has forgotten yet, is not much, and
		// no more of it is looked at than makes room.
		err = each(ctx, q, func(row scanner) (bool, error) {
			var answer int64
			if err := row.Scan(&answer); err != nil {
				return false, err
			}
			claims, size = claims-1, size-answer
			full = most.Check(op, claims, size)
			return full != nil, nil
		}, goneClaims, c.Tenant, expiry(c.Cutoff))
		if err == nil {
			err = full
		}
		if err != nil {
			return err
		}
	}
	_, err = q.exec(ctx, "INSERT INTO claims (id, fingerprint, tenant, subject, node, handler, at) VALUES (?, ?, ?, ?, ?, ?, ?)",
		c.ID[:], c.Fingerprint[:], c.Tenant, c.Subject, c.Node, c.Handler, c.At.UnixMicro())
	return err
}

// again says what became of a claim that was made before.
func again(ctx context.Context, q *session, op string, c store.Claim, old oldClaim) (store.Claimed, error) {
	switch {
	case old.fingerprint != c.Fingerprint:
		return store.Claimed{}, carrel.Fail(op, abi.IdempotencyMismatch,
			"this idempotency key was used for another request; use a new one")
	case old.answered:
		return store.Claimed{State: store.ClaimAnswered, Sealed: old.sealed, Trimmed: old.trimmed}, nil
	case old.interrupted:
		return store.Claimed{State: store.ClaimInterrupted}, nil
	case old.node != c.Node:
		return store.Claimed{State: store.ClaimElsewhere}, nil
	case old.handler: // nobody works on it, and so it may be forgotten
		_, err := q.exec(ctx, "UPDATE claims SET interrupted = 1 WHERE id = ?", c.ID[:])
		return store.Claimed{State: store.ClaimInterrupted}, err
	}
	_, err := q.exec(ctx, "UPDATE claims SET handler = ?, at = ? WHERE id = ?", c.Handler, c.At.UnixMicro(), c.ID[:])
	return store.Claimed{State: store.ClaimTaken}, err
}

func removeClaim(ctx context.Context, q *session, id [32]byte) error {
	n, err := q.exec(ctx, "DELETE FROM claims WHERE id = ?", id[:])
	if err == nil && n > 0 {
		err = markDeleted(ctx, q)
	}
	return err
}

// Answer implements store.Idempotency.
func (s *Store) Answer(ctx context.Context, a store.Answer) error {
	// A copy, because the write may outlast a caller whose context ends.
	a.Sealed = bytes.Clone(a.Sealed)
	return change(ctx, s, "sqlite.Answer", func(ctx context.Context, q *session) error {
		return answer(ctx, q, a, 0)
	})
}

// ReleaseClaim implements store.Idempotency.
func (s *Store) ReleaseClaim(ctx context.Context, c store.Claim) error {
	return change(ctx, s, "sqlite.ReleaseClaim", func(ctx context.Context, q *session) error {
		n, err := q.exec(ctx, releaseClaim, c.ID[:], c.Node, c.At.UnixMicro())
		if err == nil && n > 0 {
			err = markDeleted(ctx, q) // it named a subject
		}
		return err
	})
}

// ReleaseClaims implements store.Idempotency.
func (s *Store) ReleaseClaims(ctx context.Context, node string) (int, error) {
	return write(ctx, s, "sqlite.ReleaseClaims", func(ctx context.Context, q *session) (int, error) {
		interrupted, err := q.exec(ctx, interruptClaims, node)
		if err != nil {
			return 0, err
		}
		released, err := q.exec(ctx, releaseClaims, node)
		if err == nil && released > 0 {
			err = markDeleted(ctx, q)
		}
		return int(interrupted + released), err
	})
}

// ForgetClaims implements store.Idempotency. The oldest go first.
func (s *Store) ForgetClaims(ctx context.Context, node string, before time.Time, limit int) (int, error) {
	return write(ctx, s, "sqlite.ForgetClaims", func(ctx context.Context, q *session) (int, error) {
		n, err := q.exec(ctx, forgetClaims, expiry(before), node, atMost(limit))
		if err == nil && n > 0 {
			err = markDeleted(ctx, q)
		}
		return int(n), err
	})
}
