-- Bytes that each account has of records of terminated sandboxes, so that the oldest can be removed: the texts that callers choose the
-- length of, and 2,048 for the rest of the row, its index entries and its rows of metadata. Only additions: an older daemon's rows
-- come through the triggers too. A create writes a record that is not terminated, and so none of them runs for it.

CREATE INDEX sandboxes_ended ON sandboxes (account, terminated_at) WHERE state = 'terminated';

INSERT INTO stored_bytes SELECT account, 'ended_sandboxes',
    sum(2048 + length(CAST(config AS BLOB)) + length(CAST(layers AS BLOB)) + length(CAST(image_env AS BLOB)) + length(CAST(ports AS BLOB)))
    FROM sandboxes WHERE state = 'terminated' GROUP BY account;

-- The texts of a terminated sandbox do not change. Without the texts of the old row, which SQLite would read for every update.
CREATE TRIGGER stored_bytes_of_an_ended_sandbox AFTER UPDATE ON sandboxes
WHEN new.state = 'terminated' AND old.state <> 'terminated' BEGIN
    INSERT INTO stored_bytes VALUES (new.account, 'ended_sandboxes', 2048 + length(CAST(new.config AS BLOB))
            + length(CAST(new.layers AS BLOB)) + length(CAST(new.image_env AS BLOB)) + length(CAST(new.ports AS BLOB)))
        ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER stored_bytes_of_a_new_ended_sandbox AFTER INSERT ON sandboxes WHEN new.state = 'terminated' BEGIN
    INSERT INTO stored_bytes VALUES (new.account, 'ended_sandboxes', 2048 + length(CAST(new.config AS BLOB))
            + length(CAST(new.layers AS BLOB)) + length(CAST(new.image_env AS BLOB)) + length(CAST(new.ports AS BLOB)))
        ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER stored_bytes_of_a_removed_sandbox AFTER DELETE ON sandboxes WHEN old.state = 'terminated' BEGIN
    UPDATE stored_bytes SET bytes = bytes - 2048 - length(CAST(old.config AS BLOB)) - length(CAST(old.layers AS BLOB))
            - length(CAST(old.image_env AS BLOB)) - length(CAST(old.ports AS BLOB))
        WHERE account = old.account AND kind = 'ended_sandboxes';
    DELETE FROM stored_bytes WHERE account = old.account AND kind = 'ended_sandboxes' AND bytes <= 0;
END;
