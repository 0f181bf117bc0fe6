-- Whether a snapshot has the processes of its sandbox. An older daemon that has the file open has no such snapshots.

ALTER TABLE snapshots ADD COLUMN memory INTEGER NOT NULL DEFAULT 0;
