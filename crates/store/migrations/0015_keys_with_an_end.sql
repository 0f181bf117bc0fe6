-- When a key expires, and its own rate limits: NULL for never, and for those of its account; 0 for no limits. Only additions: an
-- older daemon that has the file open accepts such a key without an end, with the limits of its account.

ALTER TABLE keys ADD COLUMN expires_at INTEGER;
ALTER TABLE keys ADD COLUMN per_minute INTEGER;
