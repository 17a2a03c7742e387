package sqlite

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/carrelhost/carrel/store"
)

// Config says where a store is and how it works. Zero values of all but Path
// mean the defaults.
type Config struct {
	// Path is the database file. It is created if missing, and only the user
	// that the host runs as can read it. SQLite keeps two more files beside it.
	Path string
	// Queue bounds the writes that wait, 1024 by default. Past it callers wait
	// for room until their contexts end.
	Queue int
	// BatchMax bounds the writes that are made durable together, 256 by default.
	BatchMax int
	// Readers bounds the reads that run at once, 8 by default; others wait.
	Readers int
	// EvictionRecords bounds the records of histories that ended, of each
	// tenant, store.DefaultEvictionRecords by default. Where one more comes the
	// oldest goes.
	EvictionRecords int
	// Now is the clock by which a scrub is timed, time.Now by default.
	Now func() time.Time
	// Rand is where the host secret of a new store comes from, crypto/rand by
	// default.
	Rand io.Reader
}

func (c Config) withDefaults() Config {
	if c.Queue == 0 {
		c.Queue = 1024
	}
	if c.BatchMax == 0 {
		c.BatchMax = 256
	}
	if c.Readers == 0 {
		c.Readers = 8
	}
	if c.EvictionRecords == 0 {
		c.EvictionRecords = store.DefaultEvictionRecords
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Path == "" {
		errs = append(errs, errors.New("the database's Path is empty"))
	}
	for name, n := range map[string]int{"Queue": c.Queue, "BatchMax": c.BatchMax, "Readers": c.Readers, "EvictionRecords": c.EvictionRecords} {
		if n < 1 {
			errs = append(errs, fmt.Errorf("%s %d must be positive", name, n))
		}
	}
	return errors.Join(errs...)
}
