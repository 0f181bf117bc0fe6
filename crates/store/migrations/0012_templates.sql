-- Templates, and the snapshots of the steps of their builds. An older daemon that has the file open shows these snapshots like others.

ALTER TABLE snapshots ADD COLUMN build_key TEXT;

CREATE TABLE templates (
    id TEXT PRIMARY KEY NOT NULL,
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    state TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    finished_at INTEGER,
    snapshots TEXT NOT NULL,
    content TEXT NOT NULL
) STRICT;
