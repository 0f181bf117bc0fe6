-- Events as their readers want them: by account, sandbox, run and kind, in the order of their numbers, with totals that are
-- kept and not counted. Only additions: an older daemon may have the file open, and its events come through the triggers too.

ALTER TABLE events ADD COLUMN run TEXT NOT NULL DEFAULT '';

-- The time stands last in each, so that a walk that leaves out times need not look at the rows.
CREATE INDEX events_of_an_account          ON events (account, sequence, at);
CREATE INDEX events_of_a_kind              ON events (account, kind, sequence, at);
CREATE INDEX events_of_a_kind_of_a_sandbox ON events (sandbox, kind, sequence, at);
CREATE INDEX events_of_a_run               ON events (account, run, sequence, at) WHERE run <> '';

-- How many there are of each kind and hour in a scope: 'a' and an account, 's' and a sandbox, 'r' and a run, a space, its
-- account. No event of the hour has a number below `first` or above `last`.
CREATE TABLE event_totals (
    scope TEXT    NOT NULL,
    kind  TEXT    NOT NULL,
    hour  INTEGER NOT NULL,
    count INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last  INTEGER NOT NULL,
    PRIMARY KEY (scope, kind, hour)
) STRICT, WITHOUT ROWID;

INSERT INTO event_totals SELECT 'a' || account, kind, at / 3600000, count(*), min(sequence), max(sequence) FROM events GROUP BY 1, 2, 3;
INSERT INTO event_totals SELECT 's' || sandbox, kind, at / 3600000, count(*), min(sequence), max(sequence) FROM events GROUP BY 1, 2, 3;

CREATE TRIGGER event_totals_inserted AFTER INSERT ON events BEGIN
    INSERT INTO event_totals VALUES ('a' || new.account, new.kind, new.at / 3600000, 1, new.sequence, new.sequence)
        ON CONFLICT DO UPDATE SET count = count + 1, first = min(first, excluded.first), last = max(last, excluded.last);
    INSERT INTO event_totals VALUES ('s' || new.sandbox, new.kind, new.at / 3600000, 1, new.sequence, new.sequence)
        ON CONFLICT DO UPDATE SET count = count + 1, first = min(first, excluded.first), last = max(last, excluded.last);
END;

CREATE TRIGGER event_totals_inserted_of_a_run AFTER INSERT ON events WHEN new.run <> '' BEGIN
    INSERT INTO event_totals VALUES ('r' || new.run || ' ' || new.account, new.kind, new.at / 3600000, 1, new.sequence, new.sequence)
        ON CONFLICT DO UPDATE SET count = count + 1, first = min(first, excluded.first), last = max(last, excluded.last);
END;

CREATE TRIGGER event_totals_deleted AFTER DELETE ON events BEGIN
    UPDATE event_totals SET count = count - 1 WHERE scope = 'a' || old.account AND kind = old.kind AND hour = old.at / 3600000;
    UPDATE event_totals SET count = count - 1 WHERE scope = 's' || old.sandbox AND kind = old.kind AND hour = old.at / 3600000;
    DELETE FROM event_totals WHERE scope = 'a' || old.account AND kind = old.kind AND hour = old.at / 3600000 AND count = 0;
    DELETE FROM event_totals WHERE scope = 's' || old.sandbox AND kind = old.kind AND hour = old.at / 3600000 AND count = 0;
END;

CREATE TRIGGER event_totals_deleted_of_a_run AFTER DELETE ON events WHEN old.run <> '' BEGIN
    UPDATE event_totals SET count = count - 1
        WHERE scope = 'r' || old.run || ' ' || old.account AND kind = old.kind AND hour = old.at / 3600000;
    DELETE FROM event_totals
        WHERE scope = 'r' || old.run || ' ' || old.account AND kind = old.kind AND hour = old.at / 3600000 AND count = 0;
END;

-- The number of the last line of the journal of notes that became an event.
CREATE TABLE event_notes (
    only    INTEGER PRIMARY KEY CHECK (only = 1),
    applied INTEGER NOT NULL
) STRICT;
INSERT INTO event_notes VALUES (1, 0);
