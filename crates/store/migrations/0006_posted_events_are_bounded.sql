-- How much each account has of the events that clients posted, so that the oldest can go when it is too much: bytes of their data, and
-- 512 for each event's row and its places in indexes. Only additions: an older daemon's events come through the triggers too.

CREATE TABLE posted_events (
    account TEXT    NOT NULL PRIMARY KEY,
    bytes   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO posted_events SELECT account, sum(512 + length(CAST(data AS BLOB))) FROM events
    WHERE kind IN ('agent.thinking', 'agent.tool_call', 'agent.tool_result', 'agent.error', 'cost.llm') GROUP BY account;

CREATE TRIGGER posted_events_inserted AFTER INSERT ON events
WHEN new.kind IN ('agent.thinking', 'agent.tool_call', 'agent.tool_result', 'agent.error', 'cost.llm') BEGIN
    INSERT INTO posted_events VALUES (new.account, 512 + length(CAST(new.data AS BLOB)))
        ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER posted_events_deleted AFTER DELETE ON events
WHEN old.kind IN ('agent.thinking', 'agent.tool_call', 'agent.tool_result', 'agent.error', 'cost.llm') BEGIN
    UPDATE posted_events SET bytes = bytes - 512 - length(CAST(old.data AS BLOB)) WHERE account = old.account;
    DELETE FROM posted_events WHERE account = old.account AND bytes <= 0;
END;
