-- Running time at which a sandbox's timeout ends. NULL in rows of earlier daemons: their timeout never changed, so it is
-- the `timeoutMs` of the configuration. Only additions: an older daemon that has the file open writes rows without it.

ALTER TABLE sandboxes ADD COLUMN lifetime_ms INTEGER;
