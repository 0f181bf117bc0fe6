-- The lifecycle of a sandbox as one value, which replaces ran_ms, phase, phase_since, reason, note, has_prepared_disk and hibernated_at:
-- only earlier versions write these. Lists use state, started_at, paused_at and terminated_at, which are written from the value.
-- Only additions: rows that an older daemon, which has the file open, writes without the value get it by the triggers.

ALTER TABLE sandboxes ADD COLUMN lifecycle TEXT;

-- A paused sandbox without stored processes has frozen ones, unless its note says why they ended.
CREATE VIEW lifecycle_of_earlier_versions AS SELECT row,
    CASE state
    WHEN 'running' THEN json_object(
        'state', state,
        'since', coalesce(phase_since, started_at, created_at),
        'runs', json_object('startedAt', coalesce(started_at, created_at), 'finishedMs', ran_ms))
    WHEN 'paused' THEN json_object(
        'state', state,
        'since', coalesce(phase_since, paused_at, created_at),
        'runs', json_object('startedAt', coalesce(started_at, created_at), 'finishedMs', ran_ms),
        'processes', json(CASE
            WHEN hibernated_at IS NOT NULL THEN json_object('stored', json_object('at', hibernated_at, 'note', note))
            WHEN note IS NOT NULL THEN json_object('ended', json_object('note', note))
            ELSE '"frozen"' END),
        'nextDisk', CASE WHEN has_prepared_disk THEN 'prepared' ELSE 'own' END)
    WHEN 'terminated' THEN json_object(
        'state', state,
        'at', terminated_at,
        'reason', coalesce(reason, ''),
        'pausedSince', paused_at,
        'runs', json(CASE WHEN started_at IS NOT NULL
            THEN json_object('startedAt', started_at, 'finishedMs', ran_ms) ELSE 'null' END))
    ELSE json_object('state', state) END AS lifecycle
FROM sandboxes;

UPDATE sandboxes SET lifecycle =
    (SELECT earlier.lifecycle FROM lifecycle_of_earlier_versions AS earlier WHERE earlier.row = sandboxes.row);

CREATE TRIGGER lifecycle_inserted_by_earlier_versions AFTER INSERT ON sandboxes WHEN new.lifecycle IS NULL BEGIN
    UPDATE sandboxes SET lifecycle =
        (SELECT earlier.lifecycle FROM lifecycle_of_earlier_versions AS earlier WHERE earlier.row = new.row)
        WHERE row = new.row;
END;

CREATE TRIGGER lifecycle_updated_by_earlier_versions
AFTER UPDATE OF ran_ms, phase, phase_since, reason, note, has_prepared_disk, hibernated_at ON sandboxes BEGIN
    UPDATE sandboxes SET lifecycle =
        (SELECT earlier.lifecycle FROM lifecycle_of_earlier_versions AS earlier WHERE earlier.row = new.row)
        WHERE row = new.row;
END;
