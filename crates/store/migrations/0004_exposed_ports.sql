-- The ports of a sandbox that are reached from outside, as JSON. Only an addition, with a default: an older daemon may have the
-- file open, and knows of none.

ALTER TABLE sandboxes ADD COLUMN ports TEXT NOT NULL DEFAULT '[]';
