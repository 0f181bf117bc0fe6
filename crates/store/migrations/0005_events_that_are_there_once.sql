-- A text that no two events have, of those that more than one daemon may tell of: how an execution that outlived its daemon began and
-- ended. Only an addition: an older daemon may have the file open, and tells of none.

ALTER TABLE events ADD COLUMN once TEXT;

CREATE UNIQUE INDEX events_once ON events (once) WHERE once IS NOT NULL;
