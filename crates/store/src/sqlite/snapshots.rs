//! Rows of snapshots.

use api::{Isolation, Resources, SnapshotId};
use rusqlite::{Connection, Row, params};

use super::error::{SqliteError, SqliteResult};
use super::{read, rows};
use crate::{SnapshotRecord, SnapshotVisibility};

/// `build_key` has the origin key of an internal snapshot. The first such snapshots were those of builds.
const COLUMNS: &str = "id, account, sandbox, name, image, image_digest, image_env, isolation, layers, cpu, memory_mb, disk_mb, bytes, metadata, created_at, memory, build_key, workdir";

pub(super) fn put(connection: &Connection, record: &SnapshotRecord) -> SqliteResult<()> {
    let sql = format!(
        "INSERT OR REPLACE INTO snapshots ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)"
    );
    let metadata = serde_json::to_string(&record.metadata)
        .map_err(|error| SqliteError::content("metadata of a snapshot", error))?;
    connection.prepare_cached(&sql)?.execute(params![
        record.id.as_str(),
        record.account,
        record.sandbox.as_str(),
        record.name,
        record.image,
        record.image_digest,
        rows::texts_column(&record.image_env)?,
        record.isolation.name(),
        rows::texts_column(&record.layers)?,
        record.resources.cpu,
        record.resources.memory_mb,
        record.resources.disk_mb,
        rows::integer(record.bytes)?,
        metadata,
        rows::integer(record.created_at.0)?,
        record.memory,
        record.origin_key(),
        record.workdir,
    ])?;
    Ok(())
}

pub(super) fn delete(connection: &Connection, id: &SnapshotId) -> SqliteResult<()> {
    connection.prepare_cached("DELETE FROM snapshots WHERE id = ?1")?.execute([id.as_str()])?;
    Ok(())
}

pub(super) fn all(connection: &mut Connection) -> SqliteResult<Vec<SnapshotRecord>> {
    let sql = format!("SELECT {COLUMNS} FROM snapshots ORDER BY created_at, id");
    read::all(connection, &sql, [], record)
}

fn record(row: &Row<'_>) -> SqliteResult<SnapshotRecord> {
    let text = |column: usize| row.get::<_, String>(column);
    let metadata = text(13)?;
    Ok(SnapshotRecord {
        id: text(0)?.parse().map_err(|error| SqliteError::content("id of a snapshot", error))?,
        account: text(1)?,
        sandbox: text(2)?.parse().map_err(|error| SqliteError::content("sandbox of a snapshot", error))?,
        name: row.get(3)?,
        image: text(4)?,
        image_digest: text(5)?,
        image_env: rows::texts(&text(6)?)?,
        workdir: row.get(17)?,
        isolation: isolation(&text(7)?)?,
        layers: rows::texts(&text(8)?)?,
        resources: Resources { cpu: row.get(9)?, memory_mb: row.get(10)?, disk_mb: row.get(11)? },
        memory: row.get(15)?,
        bytes: rows::unsigned(row.get(12)?)?,
        metadata: serde_json::from_str(&metadata)
            .map_err(|error| SqliteError::content("metadata of a snapshot", error))?,
        created_at: rows::time(row, 14)?,
        visibility: match row.get(16)? {
            Some(origin_key) => SnapshotVisibility::Internal { origin_key },
            None => SnapshotVisibility::Account,
        },
    })
}

fn isolation(name: &str) -> SqliteResult<Isolation> {
    let known = Isolation::ALL.into_iter().find(|isolation| isolation.name() == name);
    known.ok_or_else(|| SqliteError::content("isolation of a snapshot", name))
}
