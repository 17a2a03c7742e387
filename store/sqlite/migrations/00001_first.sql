-- Times are microseconds since 1970 in UTC. Text is compared byte for byte.

-- +goose Up

-- One row. last_generation only rises, so that no generation is used twice.
CREATE TABLE meta (
	id              INTEGER PRIMARY KEY CHECK (id = 1),
	host_secret     BLOB    NOT NULL CHECK (length(host_secret) = 32),
	last_generation INTEGER NOT NULL,
	checks          INTEGER NOT NULL
) STRICT;

CREATE TABLE tenants (
	id         TEXT    NOT NULL PRIMARY KEY,
	created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE api_keys (
	id             TEXT    NOT NULL PRIMARY KEY,
	tenant         TEXT    NOT NULL REFERENCES tenants ON DELETE CASCADE,
	role           TEXT    NOT NULL,
	name           TEXT    NOT NULL,
	subject        TEXT    NOT NULL,
	assert_subject INTEGER NOT NULL CHECK (assert_subject IN (0, 1)),
	hash           BLOB    NOT NULL UNIQUE CHECK (length(hash) = 32),
	created_at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX api_keys_tenant ON api_keys (tenant, role);

CREATE TABLE scopes (
	id        TEXT    NOT NULL PRIMARY KEY,
	tenant    TEXT    NOT NULL,
	kind      TEXT    NOT NULL,
	plugin    TEXT    NOT NULL,
	node      TEXT    NOT NULL,
	opened_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX scopes_kind ON scopes (kind, id);

CREATE TABLE plugins (
	tenant       TEXT    NOT NULL REFERENCES tenants ON DELETE CASCADE,
	name         TEXT    NOT NULL,
	last_version INTEGER NOT NULL, -- the highest number ever given
	active       BLOB,
	previous     BLOB,
	scope        TEXT    UNIQUE REFERENCES scopes ON DELETE SET NULL,
	created_at   INTEGER NOT NULL,
	PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE versions (
	tenant     TEXT    NOT NULL,
	plugin     TEXT    NOT NULL,
	digest     BLOB    NOT NULL CHECK (length(digest) = 32),
	n          INTEGER NOT NULL,
	manifest   BLOB    NOT NULL,
	report     BLOB    NOT NULL,
	bytes      INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	PRIMARY KEY (tenant, plugin, digest),
	UNIQUE (tenant, plugin, n),
	FOREIGN KEY (tenant, plugin) REFERENCES plugins (tenant, name) ON DELETE CASCADE
) STRICT;

-- Apart from versions, so that no listing ever reads a module.
CREATE TABLE modules (
	tenant TEXT NOT NULL,
	plugin TEXT NOT NULL,
	digest BLOB NOT NULL,
	module BLOB NOT NULL,
	PRIMARY KEY (tenant, plugin, digest),
	FOREIGN KEY (tenant, plugin, digest) REFERENCES versions ON DELETE CASCADE
) STRICT;

CREATE TABLE histories (
	generation   INTEGER NOT NULL PRIMARY KEY,
	tenant       TEXT    NOT NULL,
	namespace    TEXT    NOT NULL,
	kind         TEXT    NOT NULL,
	owner        TEXT    NOT NULL,
	memory       TEXT    NOT NULL,
	handle       BLOB    NOT NULL CHECK (length(handle) = 16),
	plugin       TEXT    NOT NULL,
	system       BLOB, -- NULL is none, never empty
	system_at    INTEGER NOT NULL,
	next_seq     INTEGER NOT NULL,
	turns        INTEGER NOT NULL,
	messages     INTEGER NOT NULL, -- the system message counts
	bytes        INTEGER NOT NULL,
	created_at   INTEGER NOT NULL,
	last_used_at INTEGER NOT NULL,
	UNIQUE (tenant, namespace, kind, owner, memory),
	UNIQUE (tenant, handle)
) STRICT;

-- The generation is the row id, which every index ends with.
CREATE INDEX histories_tenant ON histories (tenant);

CREATE TABLE messages (
	generation   INTEGER NOT NULL REFERENCES histories ON DELETE CASCADE,
	seq          INTEGER NOT NULL,
	turn         INTEGER NOT NULL,
	role         TEXT    NOT NULL,
	content      BLOB    NOT NULL, -- a blob, because text may hold any bytes
	tool_calls   BLOB, -- JSON, NULL is none
	tool_call_id BLOB    NOT NULL,
	at           INTEGER NOT NULL,
	PRIMARY KEY (generation, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE touchers (
	generation INTEGER NOT NULL REFERENCES histories ON DELETE CASCADE,
	key_id     TEXT    NOT NULL,
	subject    TEXT    NOT NULL,
	PRIMARY KEY (generation, key_id, subject)
) STRICT, WITHOUT ROWID;

CREATE INDEX touchers_who ON touchers (key_id, subject, generation);

-- Which keys were touched in a scope. By handle and not by memory id, so that
-- no id outlives its history, and not by generation, so that a history made
-- anew dies with the scope as well.
CREATE TABLE touches (
	scope  TEXT NOT NULL REFERENCES scopes ON DELETE CASCADE,
	handle BLOB NOT NULL,
	PRIMARY KEY (scope, handle)
) STRICT, WITHOUT ROWID;

CREATE INDEX touches_handle ON touches (handle);
