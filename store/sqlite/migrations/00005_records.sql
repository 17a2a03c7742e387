-- Times are microseconds since 1970 in UTC.

-- +goose Up

-- What remains of histories that ended, the newest of each tenant.
CREATE TABLE evictions (
	tenant   TEXT    NOT NULL,
	n        INTEGER NOT NULL, -- rising within the tenant, never used again
	handle   BLOB    NOT NULL CHECK (length(handle) = 16),
	plugin   TEXT    NOT NULL,
	memory   TEXT    NOT NULL, -- '' if the reason is erased
	scope    TEXT    NOT NULL, -- kind of the scope instance that closed; '' if none did
	instance TEXT    NOT NULL, -- its id, likewise
	reason   TEXT    NOT NULL,
	messages INTEGER NOT NULL,
	bytes    INTEGER NOT NULL,
	at       INTEGER NOT NULL,
	PRIMARY KEY (tenant, n)
) STRICT, WITHOUT ROWID;

CREATE INDEX evictions_at ON evictions (at);

CREATE TABLE eviction_numbers (
	tenant TEXT    NOT NULL PRIMARY KEY,
	last   INTEGER NOT NULL -- the highest n ever given
) STRICT, WITHOUT ROWID;

-- A closing's histories are recorded as they are deleted.
-- Their kind is '' if no scope instance closed: then the scope is one that
-- only holds what ended.
ALTER TABLE closings ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE closings ADD COLUMN reason TEXT NOT NULL DEFAULT 'scope_closed';
ALTER TABLE closings ADD COLUMN at INTEGER NOT NULL DEFAULT 0;
UPDATE closings SET at = CAST(unixepoch('subsec') * 1000000 AS INTEGER);
UPDATE closings SET kind = 'session', reason = s.reason, at = s.closed_at
	FROM sessions s WHERE s.id = closings.scope AND closings.session = 1 AND s.closed_at IS NOT NULL;

-- What is done on nobody's behalf is nobody's to erase.
CREATE INDEX touchers_subject ON touchers (subject, generation) WHERE subject <> '';
CREATE INDEX sessions_subject ON sessions (tenant, subject) WHERE subject <> '';

-- Requests with an idempotency key, and their answers.
CREATE TABLE claims (
	id          BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 32),
	fingerprint BLOB    NOT NULL CHECK (length(fingerprint) = 32),
	tenant      TEXT    NOT NULL,
	subject     TEXT    NOT NULL,
	node        TEXT    NOT NULL,
	handler     INTEGER NOT NULL CHECK (handler IN (0, 1)),
	interrupted INTEGER NOT NULL DEFAULT 0 CHECK (interrupted IN (0, 1)),
	at          INTEGER NOT NULL, -- of the claim, then of the answer
	sealed      BLOB, -- the answer, encrypted; NULL is none yet
	trimmed     INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE INDEX claims_tenant ON claims (tenant, at);
CREATE INDEX claims_subject ON claims (tenant, subject) WHERE subject <> '';
CREATE INDEX claims_open ON claims (node) WHERE sealed IS NULL AND interrupted = 0;
CREATE INDEX claims_at ON claims (at);

-- The last scrub, and whether anything was deleted since.
ALTER TABLE meta ADD COLUMN scrubbed_at INTEGER; -- NULL is never
ALTER TABLE meta ADD COLUMN scrub_took INTEGER NOT NULL DEFAULT 0; -- microseconds
ALTER TABLE meta ADD COLUMN scrub_due INTEGER NOT NULL DEFAULT 0 CHECK (scrub_due IN (0, 1));
UPDATE meta SET scrub_due = 1; -- of a database that was used before anybody kept account

