//! Rows of templates.

use api::{SnapshotId, TemplateId, TemplateState};
use rusqlite::{Connection, Row, params};

use super::error::{SqliteError, SqliteResult};
use super::{read, rows};
use crate::TemplateRecord;

const COLUMNS: &str = "id, account, name, version, state, created_at, finished_at, snapshots, content";

pub(super) fn put(connection: &Connection, record: &TemplateRecord) -> SqliteResult<()> {
    let sql =
        format!("INSERT OR REPLACE INTO templates ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)");
    let snapshots: Vec<String> = record.snapshots.iter().map(ToString::to_string).collect();
    connection.prepare_cached(&sql)?.execute(params![
        record.id.as_str(),
        record.account,
        record.name,
        record.version,
        record.state.name(),
        rows::integer(record.created_at.0)?,
        record.finished_at.map(|time| rows::integer(time.0)).transpose()?,
        rows::texts_column(&snapshots)?,
        record.content,
    ])?;
    Ok(())
}

pub(super) fn delete(connection: &Connection, id: &TemplateId) -> SqliteResult<()> {
    connection.prepare_cached("DELETE FROM templates WHERE id = ?1")?.execute([id.as_str()])?;
    Ok(())
}

pub(super) fn all(connection: &mut Connection) -> SqliteResult<Vec<TemplateRecord>> {
    let sql = format!("SELECT {COLUMNS} FROM templates ORDER BY created_at, id");
    read::all(connection, &sql, [], record)
}

fn record(row: &Row<'_>) -> SqliteResult<TemplateRecord> {
    let text = |column: usize| row.get::<_, String>(column);
    let snapshots = rows::texts(&text(7)?)?;
    let snapshot = |id: String| -> SqliteResult<SnapshotId> {
        id.parse().map_err(|error| SqliteError::content("snapshot of a template", error))
    };
    let state = text(4)?;
    let known = TemplateState::ALL.into_iter().find(|known| known.name() == state);
    Ok(TemplateRecord {
        id: text(0)?.parse().map_err(|error| SqliteError::content("id of a template", error))?,
        account: text(1)?,
        name: text(2)?,
        version: row.get(3)?,
        state: known.ok_or_else(|| SqliteError::content("state of a template", state))?,
        created_at: rows::time(row, 5)?,
        finished_at: rows::nullable_time(row, 6)?,
        snapshots: snapshots.into_iter().map(snapshot).collect::<SqliteResult<_>>()?,
        content: text(8)?,
    })
}
