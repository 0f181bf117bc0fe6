//! Removal of expired rows, in parts.

use rules::TimeMs;
use rusqlite::{Connection, params};

use super::apply::{self, Stored};
use super::rows;
use super::trouble::Outcome;

/// Sandboxes, or events, that one part removes: a few milliseconds of the writer.
const SANDBOXES: u64 = 100;
const EVENTS: u64 = 1000;
/// Idempotency records that one part removes, and their bytes: many small ones, or one large one.
const ANSWERS: u64 = 500;
const ANSWER_BYTES: u64 = 8 * 1024 * 1024;

/// What is purged; in parts, so that commits run in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Sandboxes,
    OrphanedEvents,
    /// Expired idempotency records.
    Remembered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Purged {
    pub(super) removed: u64,
    pub(super) more: bool,
}

pub(super) fn some(connection: &Connection, before: TimeMs, target: Target) -> Outcome<Purged> {
    // A time past the range of stored ones removes all.
    let before = i64::try_from(before.0).unwrap_or(i64::MAX);
    match target {
        Target::Sandboxes => sandboxes(connection, before),
        Target::OrphanedEvents => orphaned_events(connection, before),
        Target::Remembered => remembered(connection, before),
    }
}

fn sandboxes(connection: &Connection, before: i64) -> Outcome<Purged> {
    let mut statement = connection.prepare_cached(
        "SELECT row, account, created_at, config, id FROM sandboxes INDEXED BY sandboxes_to_purge
         WHERE state = 'terminated' AND terminated_at < ?1 ORDER BY terminated_at LIMIT ?2",
    )?;
    let found = statement.query_map(params![before, rows::integer(SANDBOXES)?], |row| {
        let stored =
            Stored { row: row.get(0)?, account: row.get(1)?, created_at: row.get(2)?, config: row.get(3)? };
        Ok((stored, row.get::<_, String>(4)?))
    })?;
    let found: Vec<_> = found.collect::<Result<_, _>>()?;
    let mut events = connection.prepare_cached(
        "DELETE FROM events WHERE sequence IN (
             SELECT sequence FROM events INDEXED BY events_of_a_sandbox WHERE sandbox = ?1 LIMIT ?2)",
    )?;
    let (mut removed, mut room) = (0, EVENTS);
    for (stored, id) in &found {
        let gone = events.execute(params![id, rows::integer(room)?])? as u64;
        room = room.saturating_sub(gone);
        if room == 0 {
            // It may have more events: the sandbox goes with the last of them.
            return Ok(Purged { removed, more: true });
        }
        apply::remove(connection, stored)?;
        removed += 1;
    }
    Ok(Purged { removed, more: removed == SANDBOXES })
}

fn orphaned_events(connection: &Connection, before: i64) -> Outcome<Purged> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM events WHERE sequence IN (
             SELECT sequence FROM events WHERE at < ?1
                AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE sandboxes.id = events.sandbox)
             LIMIT ?2)",
    )?;
    let removed = statement.execute(params![before, rows::integer(EVENTS)?])? as u64;
    Ok(Purged { removed, more: removed == EVENTS })
}

fn remembered(connection: &Connection, now: i64) -> Outcome<Purged> {
    let mut statement = connection.prepare_cached(
        "SELECT row, length(content) FROM remembered INDEXED BY remembered_to_purge
         WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2",
    )?;
    let mut rows = statement.query(params![now, rows::integer(ANSWERS)?])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        found.push(row.get::<_, i64>(0)?);
        bytes += rows::unsigned(row.get(1)?)?;
        if bytes >= ANSWER_BYTES {
            break;
        }
    }
    drop(rows);
    let mut delete = connection.prepare_cached("DELETE FROM remembered WHERE row = ?1")?;
    for row in &found {
        delete.execute([row])?;
    }
    let removed = found.len() as u64;
    Ok(Purged { removed, more: removed == ANSWERS || bytes >= ANSWER_BYTES })
}
