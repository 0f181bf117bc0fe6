//! API keys and idempotency records as SQL: writes run inside the writer's savepoint, reads on any connection.

use rules::{KeyLimits, TimeMs};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::encoding;
use super::error::{SqliteError, SqliteResult};
use super::read::all;
use super::rows::{integer, nullable_time, optional_time, time, unsigned};
use crate::{IdempotencyRecord, KeyRecord, StoreError};

pub(super) fn put(connection: &Connection, key: &KeyRecord) -> SqliteResult<()> {
    let exists = connection
        .prepare_cached("SELECT 1 FROM keys WHERE id = ?1 OR hash = ?2")?
        .exists(params![key.id, key.hash])?;
    if exists {
        return Err(SqliteError::Refused(StoreError::KeyTaken { id: key.id.clone() }));
    }
    let sql = "INSERT INTO keys (id, hash, account, scopes, name, prefix_hint, created_at, revoked_at, expires_at, per_minute)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    connection.prepare_cached(sql)?.execute(params![
        key.id,
        key.hash,
        key.account,
        key.scopes,
        key.name,
        key.prefix_hint,
        integer(key.created_at.0)?,
        optional_time(key.revoked_at)?,
        optional_time(key.expires_at)?,
        key.limits.stored(),
    ])?;
    Ok(())
}

/// A second revocation changes nothing.
pub(super) fn revoke(connection: &Connection, id: &str, at: TimeMs) -> SqliteResult<()> {
    let changed = connection
        .prepare_cached("UPDATE keys SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL")?
        .execute(params![id, integer(at.0)?])?;
    if changed == 0 && !connection.prepare_cached("SELECT 1 FROM keys WHERE id = ?1")?.exists([id])? {
        return Err(SqliteError::Refused(StoreError::NoSuchKey { id: id.to_owned() }));
    }
    Ok(())
}

pub(super) fn keys(connection: &mut Connection) -> SqliteResult<Vec<KeyRecord>> {
    let sql = "SELECT id, hash, account, scopes, name, prefix_hint, created_at, revoked_at, expires_at, per_minute FROM keys
               ORDER BY created_at, id";
    all(connection, sql, [], key)
}

/// The accounts of all keys.
pub(super) fn accounts(connection: &Connection) -> SqliteResult<Vec<String>> {
    let mut statement = connection.prepare("SELECT DISTINCT account FROM keys ORDER BY account")?;
    let accounts = statement.query_map([], |row| row.get(0))?;
    Ok(accounts.collect::<rusqlite::Result<Vec<String>>>()?)
}

fn key(row: &Row<'_>) -> SqliteResult<KeyRecord> {
    Ok(KeyRecord {
        id: row.get(0)?,
        hash: row.get(1)?,
        account: row.get(2)?,
        scopes: row.get(3)?,
        name: row.get(4)?,
        prefix_hint: row.get(5)?,
        created_at: time(row, 6)?,
        revoked_at: nullable_time(row, 7)?,
        expires_at: nullable_time(row, 8)?,
        limits: KeyLimits::from_stored(row.get(9)?),
    })
}

pub(super) fn version(connection: &mut Connection) -> SqliteResult<u64> {
    let mut statement = connection.prepare_cached("SELECT count FROM key_changes")?;
    unsigned(statement.query_row([], |row| row.get(0))?)
}

/// Replaces an expired record.
pub(super) fn put_idempotency_record(
    connection: &Connection,
    record: &IdempotencyRecord,
    encoding: i64,
) -> SqliteResult<()> {
    let sql = "INSERT INTO remembered (account, endpoint, key, request_hash, status, created_at, expires_at, content, encoding)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
               ON CONFLICT (account, endpoint, key) DO UPDATE SET request_hash = excluded.request_hash,
                   status = excluded.status, created_at = excluded.created_at, expires_at = excluded.expires_at,
                   content = excluded.content, encoding = excluded.encoding
               WHERE remembered.expires_at <= excluded.created_at";
    let inserted = connection.prepare_cached(sql)?.execute(params![
        record.account,
        record.endpoint,
        record.key,
        record.request_hash,
        record.status,
        integer(record.created_at.0)?,
        integer(record.expires_at.0)?,
        record.content,
        encoding,
    ])?;
    if inserted == 0 {
        let (endpoint, key) = (record.endpoint.clone(), record.key.clone());
        return Err(SqliteError::Refused(StoreError::AlreadyRecorded { endpoint, key }));
    }
    Ok(())
}

pub(super) fn idempotency_record(
    connection: &mut Connection,
    account: String,
    endpoint: String,
    key: String,
) -> SqliteResult<Option<IdempotencyRecord>> {
    let sql = "SELECT request_hash, status, created_at, expires_at, encoding, content FROM remembered
               WHERE account = ?1 AND endpoint = ?2 AND key = ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement
        .query_row([&account, &endpoint, &key], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
        })
        .optional()?;
    let Some((request_hash, status, created_at, expires_at, encoding, content)) = found else {
        return Ok(None);
    };
    let time = |ms| Ok::<_, SqliteError>(TimeMs(unsigned(ms)?));
    let (created_at, expires_at) = (time(created_at)?, time(expires_at)?);
    let content = encoding::decode(content, encoding)?;
    Ok(Some(IdempotencyRecord {
        account,
        endpoint,
        key,
        request_hash,
        status,
        content,
        created_at,
        expires_at,
    }))
}
