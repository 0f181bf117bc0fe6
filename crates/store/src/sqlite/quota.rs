//! Byte quotas of accounts: above a quota, the oldest records are evicted in the commit that adds new ones.
//!
//! The schema's triggers count the bytes. An eviction frees a little more than necessary, so that an account at its
//! quota does not evict at each write.

use std::collections::BTreeSet;

use rules::{QuotaTable, StoredQuotas};
use rusqlite::{Connection, OptionalExtension, params};

use super::error::SqliteResult;
use super::rows;
use crate::StoredBytes;
use crate::events::{POSTED_KINDS, POSTED_ROW_BYTES};

/// Rows per statement, and statements per commit. The next commit evicts the rest.
const ROWS_PER_STATEMENT: i64 = 200;
const MAX_STATEMENTS: u32 = 20;
/// The fraction of a quota that an eviction frees additionally.
const SLACK_DIVISOR: u64 = 64;

const IDEMPOTENCY: &str = "idempotency";
const EVENTS: &str = "events";

/// Evicts idempotency records of an account, except the one that was just written.
pub(super) fn evict_idempotency_records(
    connection: &Connection,
    account: &str,
    quotas: &StoredQuotas,
) -> SqliteResult<()> {
    let Some(quota) = quotas.idempotency_bytes else { return Ok(()) };
    // Rows are numbered in the order of their writes, which breaks ties.
    let oldest = "SELECT row, 512 + length(content) FROM remembered INDEXED BY remembered_of_an_account
                  WHERE account = ?1 AND row <> (SELECT max(row) FROM remembered)
                  ORDER BY created_at, row LIMIT ?2";
    evict(connection, account, quota, IDEMPOTENCY, oldest, "DELETE FROM remembered WHERE row = ?1")
}

/// Evicts the oldest events of these accounts beyond their quotas.
pub(super) fn evict_events_of(
    connection: &Connection,
    accounts: &BTreeSet<String>,
    quotas: &QuotaTable,
) -> SqliteResult<()> {
    accounts.iter().try_for_each(|account| evict_events(connection, account, &quotas.of(account).stored))
}

/// Evicts events of the service.
fn evict_events(connection: &Connection, account: &str, quotas: &StoredQuotas) -> SqliteResult<()> {
    let Some(quota) = quotas.event_bytes else { return Ok(()) };
    if bytes(connection, account, EVENTS)? <= quota {
        return Ok(());
    }
    let walks: Vec<String> = api::EventKind::ALL
        .iter()
        .map(|kind| kind.as_str())
        .filter(|kind| !POSTED_KINDS.contains(kind))
        .map(|kind| {
            format!(
                "SELECT sequence FROM (SELECT sequence FROM events INDEXED BY events_of_a_kind
                     WHERE account = ?1 AND kind = '{kind}' ORDER BY sequence LIMIT ?2)"
            )
        })
        .collect();
    let oldest = format!(
        "SELECT sequence, {POSTED_ROW_BYTES} + length(CAST(data AS BLOB)) FROM events
         WHERE sequence IN ({} ORDER BY sequence LIMIT ?2) ORDER BY sequence",
        walks.join(" UNION ALL ")
    );
    evict(connection, account, quota, EVENTS, &oldest, "DELETE FROM events WHERE sequence = ?1")
}

fn evict(
    connection: &Connection,
    account: &str,
    quota: u64,
    kind: &str,
    oldest: &str,
    delete: &str,
) -> SqliteResult<()> {
    let used = bytes(connection, account, kind)?;
    if used <= quota {
        return Ok(());
    }
    let mut over = used - (quota - quota / SLACK_DIVISOR);
    for _ in 0..MAX_STATEMENTS {
        let mut oldest = connection.prepare_cached(oldest)?;
        let found =
            oldest.query_map(params![account, ROWS_PER_STATEMENT], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let found: Vec<(i64, i64)> = found.collect::<Result<_, _>>()?;
        let mut delete = connection.prepare_cached(delete)?;
        for (row, bytes) in &found {
            delete.execute([row])?;
            over = over.saturating_sub(rows::unsigned(*bytes)?);
            if over == 0 {
                return Ok(());
            }
        }
        if found.is_empty() {
            return Ok(());
        }
    }
    Ok(())
}

/// What the triggers have counted.
pub(super) fn bytes(connection: &Connection, account: &str, kind: &str) -> SqliteResult<u64> {
    let mut statement =
        connection.prepare_cached("SELECT bytes FROM stored_bytes WHERE account = ?1 AND kind = ?2")?;
    let bytes: Option<i64> = statement.query_row([account, kind], |row| row.get(0)).optional()?;
    rows::unsigned(bytes.unwrap_or(0))
}

pub(super) fn stored_bytes(connection: &mut Connection, account: &str) -> SqliteResult<StoredBytes> {
    let mut posted = connection.prepare_cached("SELECT bytes FROM posted_events WHERE account = ?1")?;
    let posted: Option<i64> = posted.query_row([account], |row| row.get(0)).optional()?;
    Ok(StoredBytes {
        idempotency: bytes(connection, account, IDEMPOTENCY)?,
        events: bytes(connection, account, EVENTS)?,
        posted_events: rows::unsigned(posted.unwrap_or(0))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_excludes_posted_events() {
        let schema = include_str!("../../migrations/0007_stored_bytes_per_account.sql");
        let kinds = POSTED_KINDS.map(|kind| format!("'{kind}'")).join(", ");
        assert_eq!(schema.matches(&format!("kind NOT IN ({kinds})")).count(), 3);
    }
}
