//! The quota of posted events: above it the oldest are evicted, in the commit that adds new ones.
//!
//! The schema's triggers count the bytes. The oldest are found by scans along the index of each kind, merged.

use rusqlite::{Connection, OptionalExtension, params};

use super::error::SqliteResult;
use super::rows;
use crate::events::{POSTED_KINDS, POSTED_ROW_BYTES};

/// Rows per statement, and statements per commit. The next commit evicts the rest.
const ROWS_PER_STATEMENT: i64 = 200;
const MAX_STATEMENTS: u32 = 5;

pub(super) fn evict(connection: &Connection, account: &str, most_bytes: u64) -> SqliteResult<()> {
    for _ in 0..MAX_STATEMENTS {
        let over = bytes(connection, account)?.saturating_sub(most_bytes);
        if over == 0 || !remove_oldest(connection, account, over)? {
            return Ok(());
        }
    }
    Ok(())
}

fn bytes(connection: &Connection, account: &str) -> SqliteResult<u64> {
    let mut statement = connection.prepare_cached("SELECT bytes FROM posted_events WHERE account = ?1")?;
    let bytes: Option<i64> = statement.query_row([account], |row| row.get(0)).optional()?;
    rows::unsigned(bytes.unwrap_or(0))
}

/// Removes the oldest events of one statement as needed. False if there are none.
fn remove_oldest(connection: &Connection, account: &str, over: u64) -> SqliteResult<bool> {
    let walks = POSTED_KINDS.map(|kind| {
        format!(
            "SELECT sequence FROM (SELECT sequence FROM events INDEXED BY events_of_a_kind
                 WHERE account = ?1 AND kind = '{kind}' ORDER BY sequence LIMIT ?2)"
        )
    });
    let mut oldest = connection.prepare_cached(&format!(
        "SELECT sequence, {POSTED_ROW_BYTES} + length(CAST(data AS BLOB)) FROM events
         WHERE sequence IN ({} ORDER BY sequence LIMIT ?2) ORDER BY sequence",
        walks.join(" UNION ALL ")
    ))?;
    let mut delete = connection.prepare_cached("DELETE FROM events WHERE sequence = ?1")?;
    let found = oldest
        .query_map(params![account, ROWS_PER_STATEMENT], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))?;
    let found: Vec<(i64, i64)> = found.collect::<Result<_, _>>()?;
    let mut freed = 0;
    for (sequence, bytes) in &found {
        if freed >= over {
            break;
        }
        delete.execute([sequence])?;
        freed += rows::unsigned(*bytes)?;
    }
    Ok(!found.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_counts_posted_events() {
        let schema = include_str!("../../migrations/0006_posted_events_are_bounded.sql");
        let kinds = POSTED_KINDS.map(|kind| format!("'{kind}'")).join(", ");
        assert_eq!(schema.matches(&format!("kind IN ({kinds})")).count(), 3);
        assert_eq!(schema.matches(&format!("{POSTED_ROW_BYTES} + length(CAST(")).count(), 2);
        assert_eq!(schema.matches(&format!("- {POSTED_ROW_BYTES} - length(CAST(")).count(), 1);
    }
}
