-- When a paused sandbox was hibernated. Only an addition, which an older daemon that has the file open ignores.

ALTER TABLE sandboxes ADD COLUMN hibernated_at INTEGER;
