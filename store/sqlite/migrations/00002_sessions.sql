-- Times and durations are microseconds, times since 1970 in UTC.

-- +goose Up

-- HTTP sessions. An open one has a scope instance with its id; a closed one is
-- kept until forget_at, so that whoever closes it again has the same answer.
CREATE TABLE sessions (
	id           TEXT    NOT NULL PRIMARY KEY,
	tenant       TEXT    NOT NULL REFERENCES tenants ON DELETE CASCADE,
	key_id       TEXT    NOT NULL,
	subject      TEXT    NOT NULL,
	idle_ttl     INTEGER NOT NULL,
	max_ttl      INTEGER NOT NULL,
	keep_closed  INTEGER NOT NULL,
	metadata     BLOB, -- JSON, NULL is none
	created_at   INTEGER NOT NULL,
	last_used_at INTEGER NOT NULL,
	closed_at    INTEGER, -- NULL while it is open
	reason       TEXT,
	expires_at   INTEGER NOT NULL AS (min(last_used_at + idle_ttl, created_at + max_ttl)) VIRTUAL,
	forget_at    INTEGER AS (closed_at + keep_closed) VIRTUAL,
	CHECK ((closed_at IS NULL) = (reason IS NULL))
) STRICT, WITHOUT ROWID;

-- closed_at ends the first so that counting needs nothing but the index.
CREATE INDEX sessions_tenant ON sessions (tenant, id, closed_at) WHERE closed_at IS NULL;
CREATE INDEX sessions_owner ON sessions (tenant, key_id, subject, id) WHERE closed_at IS NULL;
CREATE INDEX sessions_expiry ON sessions (expires_at, id) WHERE closed_at IS NULL;
CREATE INDEX sessions_kept ON sessions (forget_at) WHERE closed_at IS NOT NULL;

-- The histories that ended with a closed session, in the order of n. Tenant,
-- reason and time are the session's.
CREATE TABLE session_evictions (
	session   TEXT    NOT NULL REFERENCES sessions ON DELETE CASCADE,
	n         INTEGER NOT NULL,
	namespace TEXT    NOT NULL,
	kind      TEXT    NOT NULL,
	owner     TEXT    NOT NULL,
	memory    TEXT    NOT NULL,
	handle    BLOB    NOT NULL CHECK (length(handle) = 16),
	plugin    TEXT    NOT NULL,
	messages  INTEGER NOT NULL,
	bytes     INTEGER NOT NULL,
	PRIMARY KEY (session, n)
) STRICT, WITHOUT ROWID;

-- The scope instances of WebSockets alone: HTTP sessions have no node, and
-- there may be many. With kind in front it is preferred to scopes_kind.
CREATE INDEX scopes_socket ON scopes (kind, node) WHERE kind = 'session' AND node <> '';

-- What owners allow plugins, by name: the plugin need not be there.
CREATE TABLE grants (
	tenant    TEXT NOT NULL REFERENCES tenants ON DELETE CASCADE,
	plugin    TEXT NOT NULL,
	namespace TEXT NOT NULL, -- '' is the plugin's own
	PRIMARY KEY (tenant, plugin)
) STRICT, WITHOUT ROWID;

CREATE TABLE granted_calls (
	tenant  TEXT    NOT NULL,
	plugin  TEXT    NOT NULL,
	n       INTEGER NOT NULL,
	pattern TEXT    NOT NULL,
	PRIMARY KEY (tenant, plugin, n),
	FOREIGN KEY (tenant, plugin) REFERENCES grants ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
