-- +goose Up

-- Turns can be deleted singly, so that the number of the last is no count any
-- more. Numbers are never used again.
DROP VIEW live;
ALTER TABLE histories RENAME COLUMN turns TO last_turn;

-- Tokens per 1,000 bytes in the last model call; 0 is not known.
ALTER TABLE histories ADD COLUMN token_rate INTEGER NOT NULL DEFAULT 0;

-- 1 if an application scope has touched it: then it expires when nobody uses
-- it for long.
ALTER TABLE histories ADD COLUMN application INTEGER NOT NULL DEFAULT 0 CHECK (application IN (0, 1));
UPDATE histories SET application = 1 WHERE EXISTS (
	SELECT 1 FROM touches t CROSS JOIN scopes s ON s.id = t.scope
	WHERE t.handle = histories.handle AND s.tenant = histories.tenant AND s.kind = 'application');
CREATE INDEX histories_idle ON histories (last_used_at) WHERE application = 1;

-- Ids of a request's or session's own that nothing short-lived ends.
CREATE INDEX histories_leaking ON histories (kind, tenant, handle)
	WHERE application = 1 AND kind IN ('request', 'session');

-- The generation is the row id, which every index ends with.
CREATE INDEX histories_namespace ON histories (tenant, namespace);

-- Where its turn comes from; '' is a model.
ALTER TABLE messages ADD COLUMN origin TEXT NOT NULL DEFAULT '';

-- Whatever answers about histories reads this: those that have not ended.
-- There are hardly ever closings, and CROSS has SQLite look for one first.
CREATE VIEW live AS SELECT h.* FROM histories h WHERE NOT EXISTS (
	SELECT 1 FROM closings c CROSS JOIN touches t ON t.scope = c.scope AND t.handle = h.handle
	WHERE c.tenant = h.tenant AND c.upto >= h.generation);
