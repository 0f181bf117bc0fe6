//! Removal of expired rows, and of the oldest ones of accounts that have too many bytes of them, in parts.

use rules::TimeMs;
use rusqlite::{Connection, Row, params};

use super::apply::{self, Stored};
use super::error::SqliteResult;
use super::{quota, rows};

/// Sandboxes or events per part, which takes the writer a few milliseconds.
const SANDBOXES_PER_PART: u64 = 100;
const EVENTS_PER_PART: u64 = 1000;
/// Idempotency records per part, and their bytes or those of terminated sandboxes: many small ones, or one large one.
const RECORDS_PER_PART: u64 = 500;
const RECORD_BYTES_PER_PART: u64 = 8 * 1024 * 1024;

/// What the schema's triggers count for a terminated sandbox beside its texts, and the kind under which they do.
const ENDED_ROW_BYTES: u64 = 2048;
const ENDED_SANDBOXES: &str = "ended_sandboxes";

/// The rows to purge; in parts, so that commits run in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PurgeTarget {
    Sandboxes,
    OrphanedEvents,
    /// Expired idempotency records.
    IdempotencyRecords,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Purged {
    pub(super) removed: u64,
    pub(super) more: bool,
}

pub(super) fn purge_part(
    connection: &Connection,
    before: TimeMs,
    target: PurgeTarget,
) -> SqliteResult<Purged> {
    // A time above the range of stored ones removes all.
    let before = i64::try_from(before.0).unwrap_or(i64::MAX);
    match target {
        PurgeTarget::Sandboxes => sandboxes(connection, before),
        PurgeTarget::OrphanedEvents => orphaned_events(connection, before),
        PurgeTarget::IdempotencyRecords => idempotency_records(connection, before),
    }
}

fn sandboxes(connection: &Connection, before: i64) -> SqliteResult<Purged> {
    let mut statement = connection.prepare_cached(
        "SELECT row, account, created_at, config, id FROM sandboxes INDEXED BY sandboxes_to_purge
         WHERE state = 'terminated' AND terminated_at < ?1 ORDER BY terminated_at LIMIT ?2",
    )?;
    let found = statement.query_map(params![before, rows::integer(SANDBOXES_PER_PART)?], stored)?;
    let found: Vec<_> = found.collect::<Result<_, _>>()?;
    let (removed, has_all) = remove_with_events(connection, &found)?;
    Ok(Purged { removed, more: !has_all || removed == SANDBOXES_PER_PART })
}

/// Removes the oldest terminated sandboxes of an account that has more bytes of them.
pub(super) fn purge_part_beyond(
    connection: &Connection,
    account: &str,
    most_bytes: u64,
) -> SqliteResult<Purged> {
    let mut over = quota::bytes(connection, account, ENDED_SANDBOXES)?.saturating_sub(most_bytes);
    if over == 0 {
        return Ok(Purged { removed: 0, more: false });
    }
    let mut statement = connection.prepare_cached(
        "SELECT row, account, created_at, config, id FROM sandboxes INDEXED BY sandboxes_ended
         WHERE account = ?1 AND state = 'terminated' ORDER BY terminated_at, row LIMIT ?2",
    )?;
    let mut rows = statement.query(params![account, rows::integer(SANDBOXES_PER_PART)?])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    // The texts that are not read here are small: the next part removes what they let stay.
    while let Some(row) = rows.next()?.filter(|_| over > 0 && bytes < RECORD_BYTES_PER_PART) {
        let sandbox = stored(row)?;
        let size = ENDED_ROW_BYTES + sandbox.0.config.len() as u64;
        (over, bytes) = (over.saturating_sub(size), bytes + size);
        found.push(sandbox);
    }
    drop(rows);
    let (removed, _) = remove_with_events(connection, &found)?;
    // Without a row to remove the count is wrong, and another part would not change it.
    Ok(Purged { removed, more: !found.is_empty() })
}

/// The accounts with more bytes of terminated sandboxes.
pub(super) fn accounts_beyond(connection: &mut Connection, most_bytes: u64) -> SqliteResult<Vec<String>> {
    // A limit above the range of stored numbers is exceeded by none.
    let most_bytes = i64::try_from(most_bytes).unwrap_or(i64::MAX);
    let mut statement =
        connection.prepare_cached("SELECT account FROM stored_bytes WHERE kind = ?1 AND bytes > ?2")?;
    let found = statement.query_map(params![ENDED_SANDBOXES, most_bytes], |row| row.get(0))?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// A sandbox and its id.
fn stored(row: &Row<'_>) -> rusqlite::Result<(Stored, String)> {
    let stored =
        Stored { row: row.get(0)?, account: row.get(1)?, created_at: row.get(2)?, config: row.get(3)? };
    Ok((stored, row.get(4)?))
}

/// Removes sandboxes in order, each with all of its events. Returns their number, and whether these are all.
fn remove_with_events(connection: &Connection, found: &[(Stored, String)]) -> SqliteResult<(u64, bool)> {
    let mut events = connection.prepare_cached(
        "DELETE FROM events WHERE sequence IN (
             SELECT sequence FROM events INDEXED BY events_of_a_sandbox WHERE sandbox = ?1 LIMIT ?2)",
    )?;
    let (mut removed, mut events_left) = (0, EVENTS_PER_PART);
    for (stored, id) in found {
        let removed_events = events.execute(params![id, rows::integer(events_left)?])? as u64;
        events_left = events_left.saturating_sub(removed_events);
        if events_left == 0 {
            // The sandbox may have more events: it is removed with the last of them.
            return Ok((removed, false));
        }
        apply::remove(connection, stored)?;
        removed += 1;
    }
    Ok((removed, true))
}

fn orphaned_events(connection: &Connection, before: i64) -> SqliteResult<Purged> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM events WHERE sequence IN (
             SELECT sequence FROM events WHERE at < ?1
                AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE sandboxes.id = events.sandbox)
             LIMIT ?2)",
    )?;
    let removed = statement.execute(params![before, rows::integer(EVENTS_PER_PART)?])? as u64;
    Ok(Purged { removed, more: removed == EVENTS_PER_PART })
}

fn idempotency_records(connection: &Connection, now: i64) -> SqliteResult<Purged> {
    let mut statement = connection.prepare_cached(
        "SELECT row, length(content) FROM remembered INDEXED BY remembered_to_purge
         WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2",
    )?;
    let mut rows = statement.query(params![now, rows::integer(RECORDS_PER_PART)?])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        found.push(row.get::<_, i64>(0)?);
        bytes += rows::unsigned(row.get(1)?)?;
        if bytes >= RECORD_BYTES_PER_PART {
            break;
        }
    }
    drop(rows);
    let mut delete = connection.prepare_cached("DELETE FROM remembered WHERE row = ?1")?;
    for row in &found {
        delete.execute([row])?;
    }
    let removed = found.len() as u64;
    Ok(Purged { removed, more: removed == RECORDS_PER_PART || bytes >= RECORD_BYTES_PER_PART })
}
