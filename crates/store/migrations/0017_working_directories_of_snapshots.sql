-- The working directory of a snapshot's sandbox, which is the default one of sandboxes above it. NULL for snapshots of earlier daemons
-- and of those that have the file open.

ALTER TABLE snapshots ADD COLUMN workdir TEXT;
