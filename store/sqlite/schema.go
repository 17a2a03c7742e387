package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/pressly/goose/v3"
)

// An applied migration is never edited; what it did is undone by a later one.
//
//go:embed migrations/*.sql
var migrations embed.FS

// oldest is the first SQLite that resets a write-ahead log safely while
// another connection uses it.
var oldest = [3]int{3, 51, 3}

// inspect refuses an SQLite that is too old, and a file system on which it
// cannot work as durably as this store promises: SQLite falls back silently.
func inspect(ctx context.Context, db *sql.DB) error {
	var version, journal string
	var synchronous int
	for query, dest := range map[string]any{
		"SELECT sqlite_version()": &version,
		"PRAGMA journal_mode":     &journal,
		"PRAGMA synchronous":      &synchronous,
	} {
		if err := db.QueryRowContext(ctx, query).Scan(dest); err != nil {
			return err
		}
	}
	if err := recent(version); err != nil {
		return err
	}
	const full = 2
	if !strings.EqualFold(journal, "wal") || synchronous != full {
		return fmt.Errorf("journal mode is %s and synchronous is %d, not WAL and %d: is this a network file system?",
			journal, synchronous, full)
	}
	return nil
}

func recent(version string) error {
	var v [3]int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2]); err != nil {
		return fmt.Errorf("SQLite has version %q: %w", version, err)
	}
	for i := range v {
		if v[i] > oldest[i] {
			return nil
		}
		if v[i] < oldest[i] {
			return fmt.Errorf("SQLite %s is too old: at least %d.%d.%d is needed", version, oldest[0], oldest[1], oldest[2])
		}
	}
	return nil
}

// migrate brings the schema up to date, each step in a transaction.
func migrate(ctx context.Context, db *sql.DB) error {
	steps, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, steps,
		goose.WithDisableGlobalRegistry(true),
		goose.WithSlog(slog.New(slog.DiscardHandler)))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	// The provider is not closed: that would close db.
	has, knows, err := provider.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	if has > knows {
		return fmt.Errorf("its schema has version %d, and this host knows versions up to %d: it was written by a newer host, so run that one, or restore a backup",
			has, knows)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate schema: %w", err)
	}
	return nil
}
