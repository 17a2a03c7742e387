-- +goose Up

-- Scope instances that have closed with more histories than one transaction
-- deletes. Their kind in scopes is 'closed', so that they are none any more,
-- and row and touches stay until the histories are gone.
CREATE TABLE closings (
	n       INTEGER NOT NULL PRIMARY KEY, -- rising: what two of them touched ended with the first
	scope   TEXT    NOT NULL UNIQUE REFERENCES scopes ON DELETE CASCADE,
	tenant  TEXT    NOT NULL,
	upto    INTEGER NOT NULL, -- the last generation that had been given
	emptied INTEGER NOT NULL, -- up to this generation nothing is left
	session INTEGER NOT NULL CHECK (session IN (0, 1)) -- 1 if the HTTP session of this id closed with it
) STRICT;

-- Histories that ended with a closing and made room for a new one under their
-- key before they were reported.
CREATE TABLE replaced (
	closing    INTEGER NOT NULL REFERENCES closings ON DELETE CASCADE,
	generation INTEGER NOT NULL,
	namespace  TEXT    NOT NULL,
	kind       TEXT    NOT NULL,
	owner      TEXT    NOT NULL,
	memory     TEXT    NOT NULL,
	handle     BLOB    NOT NULL CHECK (length(handle) = 16),
	plugin     TEXT    NOT NULL,
	messages   INTEGER NOT NULL,
	bytes      INTEGER NOT NULL,
	PRIMARY KEY (closing, generation)
) STRICT, WITHOUT ROWID;

-- Histories that have not ended. Whatever answers about histories reads this.
-- There are hardly ever closings, and CROSS has SQLite look for one first.
CREATE VIEW live AS SELECT h.* FROM histories h WHERE NOT EXISTS (
	SELECT 1 FROM closings c CROSS JOIN touches t ON t.scope = c.scope AND t.handle = h.handle
	WHERE c.tenant = h.tenant AND c.upto >= h.generation);
