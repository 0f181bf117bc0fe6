-- Snapshots, and whether a sandbox is about to get another disk. Only additions, with defaults: an older daemon may have the file open,
-- and knows of none.

CREATE TABLE snapshots (
    id TEXT PRIMARY KEY NOT NULL,
    account TEXT NOT NULL,
    sandbox TEXT NOT NULL,
    name TEXT,
    image TEXT NOT NULL,
    image_digest TEXT NOT NULL,
    image_env TEXT NOT NULL,
    isolation TEXT NOT NULL,
    layers TEXT NOT NULL,
    cpu INTEGER NOT NULL,
    memory_mb INTEGER NOT NULL,
    disk_mb INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

ALTER TABLE sandboxes ADD COLUMN has_prepared_disk INTEGER NOT NULL DEFAULT 0;
