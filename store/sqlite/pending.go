package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

var errPending = errors.New("pending")

func (s *Store) ListEvictions(context.Context, store.EvictionFilter) ([]store.EvictionRecord, error) {
	return nil, errPending
}
func (s *Store) ForgetEvictions(context.Context, time.Time, int) (int, error) { return 0, nil }
func (s *Store) EraseSubject(context.Context, carrel.TenantID, carrel.Subject, time.Time) ([]carrel.Eviction, error) {
	return nil, errPending
}
func (s *Store) Claim(context.Context, store.Claim, int) (store.Claimed, error) {
	return store.Claimed{}, errPending
}
func (s *Store) Answer(context.Context, store.Answer) error                        { return errPending }
func (s *Store) ReleaseClaim(context.Context, [32]byte) error                      { return errPending }
func (s *Store) ReleaseClaims(context.Context, string) (int, error)                { return 0, nil }
func (s *Store) ForgetClaims(context.Context, string, time.Time, int) (int, error) { return 0, nil }
func (s *Store) Scrub(context.Context, time.Time) (store.Scrub, error)             { return store.Scrub{}, nil }
func (s *Store) LastScrub(context.Context) (store.Scrub, error)                    { return store.Scrub{}, nil }
