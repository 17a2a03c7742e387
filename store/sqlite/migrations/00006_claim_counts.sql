-- +goose Up

-- What each tenant has of claims: a new one is counted without looking at the
-- others. The triggers change it together with the claims, whoever deletes
-- these, and by whichever of their indexes.
CREATE TABLE claim_counts (
	tenant TEXT    NOT NULL PRIMARY KEY,
	claims INTEGER NOT NULL CHECK (claims >= 0), -- answered or not
	bytes  INTEGER NOT NULL CHECK (bytes >= 0)   -- of sealed answers
) STRICT, WITHOUT ROWID;

INSERT INTO claim_counts (tenant, claims, bytes)
	SELECT tenant, count(*), coalesce(sum(length(sealed)), 0) FROM claims GROUP BY tenant;

-- +goose StatementBegin
CREATE TRIGGER claims_made AFTER INSERT ON claims BEGIN
	INSERT INTO claim_counts (tenant, claims, bytes) VALUES (NEW.tenant, 1, coalesce(length(NEW.sealed), 0))
		ON CONFLICT (tenant) DO UPDATE SET claims = claims + 1, bytes = bytes + excluded.bytes;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER claims_answered AFTER UPDATE OF sealed ON claims BEGIN
	UPDATE claim_counts SET bytes = bytes + coalesce(length(NEW.sealed), 0) - coalesce(length(OLD.sealed), 0)
		WHERE tenant = NEW.tenant;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER claims_removed AFTER DELETE ON claims BEGIN
	UPDATE claim_counts SET claims = claims - 1, bytes = bytes - coalesce(length(OLD.sealed), 0)
		WHERE tenant = OLD.tenant;
END;
-- +goose StatementEnd
