-- Only additions: a command line of this version may bring the file here while a daemon of the version before has it open.

-- API keys. The text of a key is nowhere, only its hash.
CREATE TABLE keys (
    id          TEXT    NOT NULL PRIMARY KEY,
    hash        BLOB    NOT NULL UNIQUE CHECK (length(hash) = 32),
    account     TEXT    NOT NULL,
    scopes      TEXT    NOT NULL,
    name        TEXT,
    prefix_hint TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    revoked_at  INTEGER
) STRICT, WITHOUT ROWID;

-- One row, counted up by every change of a key by any process, so that a daemon sees with one look whether it has to read
-- the keys again.
CREATE TABLE key_changes (
    only  INTEGER PRIMARY KEY CHECK (only = 1),
    count INTEGER NOT NULL
) STRICT;
INSERT INTO key_changes VALUES (1, 0);

CREATE TRIGGER keys_inserted AFTER INSERT ON keys BEGIN UPDATE key_changes SET count = count + 1; END;
CREATE TRIGGER keys_updated  AFTER UPDATE ON keys BEGIN UPDATE key_changes SET count = count + 1; END;
CREATE TRIGGER keys_deleted  AFTER DELETE ON keys BEGIN UPDATE key_changes SET count = count + 1; END;

-- Answers kept under an idempotency key.
CREATE TABLE remembered (
    row          INTEGER PRIMARY KEY,
    account      TEXT    NOT NULL,
    endpoint     TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    request_hash BLOB    NOT NULL CHECK (length(request_hash) = 32),
    status       INTEGER NOT NULL CHECK (status BETWEEN 100 AND 599),
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    -- Last, because it may be large: what stands before it is read without it.
    content      BLOB    NOT NULL,
    UNIQUE (account, endpoint, key)
) STRICT;

CREATE INDEX remembered_to_purge ON remembered (expires_at);
