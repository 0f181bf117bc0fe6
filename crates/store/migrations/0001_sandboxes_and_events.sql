-- Sandboxes, shaped so that a page of a list and its exact total cost the same with a thousand rows and with a million:
-- every filter has an index in the order of the list, and totals are kept, not counted.

CREATE TABLE sandboxes (
    row           INTEGER PRIMARY KEY,
    id            TEXT    NOT NULL UNIQUE,
    account       TEXT    NOT NULL,
    state         TEXT    NOT NULL CHECK (state IN ('creating', 'running', 'paused', 'terminated')),
    image         TEXT    NOT NULL,
    cpu           INTEGER NOT NULL,
    memory_mb     INTEGER NOT NULL,
    disk_mb       INTEGER NOT NULL,
    slot          INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    started_at    INTEGER,
    paused_at     INTEGER,
    terminated_at INTEGER,
    revision      INTEGER NOT NULL,
    ran_ms        INTEGER NOT NULL,
    phase         TEXT    NOT NULL CHECK (phase IN ('not_started', 'running', 'paused', 'ended')),
    phase_since   INTEGER,
    reason        TEXT,
    note          TEXT,
    image_digest  TEXT    NOT NULL,
    layers        TEXT    NOT NULL,
    image_env     TEXT    NOT NULL,
    -- Last, because it may be large: what stands before it is read without it.
    config        TEXT    NOT NULL,
    CHECK ((state = 'terminated') = (terminated_at IS NOT NULL))
) STRICT;

CREATE INDEX sandboxes_newest             ON sandboxes (account, created_at);
CREATE INDEX sandboxes_by_state           ON sandboxes (account, state, created_at);
CREATE INDEX sandboxes_by_image           ON sandboxes (account, image, created_at);
CREATE INDEX sandboxes_by_state_and_image ON sandboxes (account, state, image, created_at);
CREATE INDEX sandboxes_to_purge           ON sandboxes (terminated_at) WHERE state = 'terminated';
-- The living, and that each has a range of user ids of its own.
CREATE UNIQUE INDEX sandboxes_living      ON sandboxes (slot) WHERE state <> 'terminated';

-- One row for each pair of a sandbox's metadata. It repeats account and time so that a filter is one range of the key.
CREATE TABLE metadata (
    account    TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    value      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    row        INTEGER NOT NULL,
    PRIMARY KEY (account, key, value, created_at, row)
) STRICT, WITHOUT ROWID;

-- How many sandboxes there are of each kind that a list can ask for.
CREATE TABLE totals (
    account TEXT    NOT NULL,
    state   TEXT    NOT NULL,
    image   TEXT    NOT NULL,
    count   INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (account, state, image)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER totals_inserted AFTER INSERT ON sandboxes BEGIN
    INSERT INTO totals VALUES (new.account, new.state, new.image, 1)
        ON CONFLICT DO UPDATE SET count = count + 1;
END;

CREATE TRIGGER totals_deleted AFTER DELETE ON sandboxes BEGIN
    DELETE FROM totals WHERE account = old.account AND state = old.state AND image = old.image AND count = 1;
    UPDATE totals SET count = count - 1 WHERE account = old.account AND state = old.state AND image = old.image AND count > 1;
END;

CREATE TRIGGER totals_updated AFTER UPDATE OF account, state, image ON sandboxes
WHEN old.account <> new.account OR old.state <> new.state OR old.image <> new.image BEGIN
    DELETE FROM totals WHERE account = old.account AND state = old.state AND image = old.image AND count = 1;
    UPDATE totals SET count = count - 1 WHERE account = old.account AND state = old.state AND image = old.image AND count > 1;
    INSERT INTO totals VALUES (new.account, new.state, new.image, 1)
        ON CONFLICT DO UPDATE SET count = count + 1;
END;

-- AUTOINCREMENT: a number is never given twice, also after the events with the highest ones were purged.
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    sandbox  TEXT    NOT NULL,
    account  TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    kind     TEXT    NOT NULL,
    data     TEXT    NOT NULL
) STRICT;

CREATE INDEX events_of_a_sandbox ON events (sandbox);
CREATE INDEX events_by_time      ON events (at);
