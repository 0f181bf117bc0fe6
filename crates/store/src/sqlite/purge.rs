//! Removal of expired rows, in parts.

use rules::TimeMs;
use rusqlite::{Connection, params};

use super::apply::{self, Stored};
use super::error::Outcome;
use super::rows;

/// Sandboxes or events per part, which takes the writer a few milliseconds.
const SANDBOXES_PER_PART: u64 = 100;
const EVENTS_PER_PART: u64 = 1000;
/// Idempotency records per part, and their bytes: many small ones, or one large one.
const RECORDS_PER_PART: u64 = 500;
const RECORD_BYTES_PER_PART: u64 = 8 * 1024 * 1024;

/// The rows to purge; in parts, so that commits run in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
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

pub(super) fn purge_part(connection: &Connection, before: TimeMs, target: Target) -> Outcome<Purged> {
    // A time above the range of stored ones removes all.
    let before = i64::try_from(before.0).unwrap_or(i64::MAX);
    match target {
        Target::Sandboxes => sandboxes(connection, before),
        Target::OrphanedEvents => orphaned_events(connection, before),
        Target::IdempotencyRecords => idempotency_records(connection, before),
    }
}

fn sandboxes(connection: &Connection, before: i64) -> Outcome<Purged> {
    let mut statement = connection.prepare_cached(
        "SELECT row, account, created_at, config, id FROM sandboxes INDEXED BY sandboxes_to_purge
         WHERE state = 'terminated' AND terminated_at < ?1 ORDER BY terminated_at LIMIT ?2",
    )?;
    let found = statement.query_map(params![before, rows::integer(SANDBOXES_PER_PART)?], |row| {
        let stored =
            Stored { row: row.get(0)?, account: row.get(1)?, created_at: row.get(2)?, config: row.get(3)? };
        Ok((stored, row.get::<_, String>(4)?))
    })?;
    let found: Vec<_> = found.collect::<Result<_, _>>()?;
    let mut events = connection.prepare_cached(
        "DELETE FROM events WHERE sequence IN (
             SELECT sequence FROM events INDEXED BY events_of_a_sandbox WHERE sandbox = ?1 LIMIT ?2)",
    )?;
    let (mut removed, mut events_left) = (0, EVENTS_PER_PART);
    for (stored, id) in &found {
        let removed_events = events.execute(params![id, rows::integer(events_left)?])? as u64;
        events_left = events_left.saturating_sub(removed_events);
        if events_left == 0 {
            // The sandbox may have more events: it is removed with the last of them.
            return Ok(Purged { removed, more: true });
        }
        apply::remove(connection, stored)?;
        removed += 1;
    }
    Ok(Purged { removed, more: removed == SANDBOXES_PER_PART })
}

fn orphaned_events(connection: &Connection, before: i64) -> Outcome<Purged> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM events WHERE sequence IN (
             SELECT sequence FROM events WHERE at < ?1
                AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE sandboxes.id = events.sandbox)
             LIMIT ?2)",
    )?;
    let removed = statement.execute(params![before, rows::integer(EVENTS_PER_PART)?])? as u64;
    Ok(Purged { removed, more: removed == EVENTS_PER_PART })
}

fn idempotency_records(connection: &Connection, now: i64) -> Outcome<Purged> {
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
