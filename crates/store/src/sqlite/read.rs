//! Reads single sandboxes, all living sandboxes, and events.

use api::SandboxId;
use rusqlite::{Connection, Params, Row, params};

use super::error::SqliteResult;
use super::rows;
use crate::{Event, MAX_PAGE, SandboxRecord};

pub(super) fn get(connection: &mut Connection, id: &SandboxId) -> SqliteResult<Option<SandboxRecord>> {
    let sql = format!("SELECT {} FROM sandboxes WHERE id = ?1", rows::COLUMNS);
    Ok(all(connection, &sql, [id.as_str()], rows::record)?.pop())
}

pub(super) fn living(connection: &mut Connection) -> SqliteResult<Vec<SandboxRecord>> {
    let sql = format!(
        "SELECT {} FROM sandboxes INDEXED BY sandboxes_living WHERE state <> 'terminated' ORDER BY id",
        rows::COLUMNS
    );
    all(connection, &sql, [], rows::record)
}

pub(super) fn events(
    connection: &mut Connection,
    sandbox: &SandboxId,
    after: u64,
    limit: u32,
) -> SqliteResult<Vec<Event>> {
    let Ok(after) = i64::try_from(after) else { return Ok(Vec::new()) };
    let sql =
        "SELECT sequence, sandbox, account, at, kind, data, run FROM events INDEXED BY events_of_a_sandbox
               WHERE sandbox = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3";
    all(connection, sql, params![sandbox.as_str(), after, limit.min(MAX_PAGE)], rows::event)
}

pub(super) fn all<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    make: impl Fn(&Row<'_>) -> SqliteResult<T>,
) -> SqliteResult<Vec<T>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut items = Vec::new();
    while let Some(row) = rows.next()? {
        items.push(make(row)?);
    }
    Ok(items)
}
