//! Rows of begun work.

use rusqlite::{Connection, Row};

use super::error::SqliteResult;
use super::read;
use crate::BegunWork;

pub(super) fn put(connection: &Connection, work: &BegunWork) -> SqliteResult<()> {
    let sql = "INSERT OR REPLACE INTO begun_work (kind, subject, starts) VALUES (?1, ?2, ?3)";
    connection.prepare_cached(sql)?.execute((&work.kind, &work.subject, work.starts))?;
    Ok(())
}

pub(super) fn delete(connection: &Connection, kind: &str, subject: &str) -> SqliteResult<()> {
    let sql = "DELETE FROM begun_work WHERE kind = ?1 AND subject = ?2";
    connection.prepare_cached(sql)?.execute((kind, subject))?;
    Ok(())
}

pub(super) fn all(connection: &mut Connection) -> SqliteResult<Vec<BegunWork>> {
    let sql = "SELECT kind, subject, starts FROM begun_work ORDER BY kind, subject";
    read::all(connection, sql, [], |row: &Row<'_>| {
        Ok(BegunWork { kind: row.get(0)?, subject: row.get(1)?, starts: row.get(2)? })
    })
}
