-- Bytes that each account has of idempotency records and of the service's own events, so that the oldest can be evicted: bytes of the
-- content, and 512 for each row and its index entries. Only additions: an older daemon's rows come through the triggers too.

-- 0: content as it was answered. 1: compressed with DEFLATE.
ALTER TABLE remembered ADD COLUMN encoding INTEGER NOT NULL DEFAULT 0;

CREATE INDEX remembered_of_an_account ON remembered (account, created_at);

CREATE TABLE stored_bytes (
    account TEXT    NOT NULL,
    kind    TEXT    NOT NULL,
    bytes   INTEGER NOT NULL,
    PRIMARY KEY (account, kind)
) STRICT, WITHOUT ROWID;

INSERT INTO stored_bytes SELECT account, 'idempotency', sum(512 + length(content)) FROM remembered GROUP BY account;
INSERT INTO stored_bytes SELECT account, 'events', sum(512 + length(CAST(data AS BLOB))) FROM events
    WHERE kind NOT IN ('agent.thinking', 'agent.tool_call', 'agent.tool_result', 'agent.error', 'cost.llm') GROUP BY account;

CREATE TRIGGER stored_bytes_of_a_new_record AFTER INSERT ON remembered BEGIN
    INSERT INTO stored_bytes VALUES (new.account, 'idempotency', 512 + length(new.content))
        ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER stored_bytes_of_a_replaced_record AFTER UPDATE OF content ON remembered BEGIN
    UPDATE stored_bytes SET bytes = bytes + length(new.content) - length(old.content)
        WHERE account = new.account AND kind = 'idempotency';
END;

CREATE TRIGGER stored_bytes_of_a_deleted_record AFTER DELETE ON remembered BEGIN
    UPDATE stored_bytes SET bytes = bytes - 512 - length(old.content) WHERE account = old.account AND kind = 'idempotency';
    DELETE FROM stored_bytes WHERE account = old.account AND kind = 'idempotency' AND bytes <= 0;
END;

CREATE TRIGGER stored_bytes_of_a_new_event AFTER INSERT ON events
WHEN new.kind NOT IN ('agent.thinking', 'agent.tool_call', 'agent.tool_result', 'agent.error', 'cost.llm') BEGIN
    INSERT INTO stored_bytes VALUES (new.account, 'events', 512 + length(CAST(new.data AS BLOB)))
        ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER stored_bytes_of_a_deleted_event AFTER DELETE ON events
WHEN old.kind NOT IN ('agent.thinking', 'agent.tool_call', 'agent.tool_result', 'agent.error', 'cost.llm') BEGIN
    UPDATE stored_bytes SET bytes = bytes - 512 - length(CAST(old.data AS BLOB)) WHERE account = old.account AND kind = 'events';
    DELETE FROM stored_bytes WHERE account = old.account AND kind = 'events' AND bytes <= 0;
END;
