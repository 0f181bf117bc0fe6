//! Applies writes as SQL in the writer's savepoint. Triggers of the schema maintain totals; this module maintains
//! metadata rows.

use std::collections::BTreeSet;

use api::{SandboxConfig, SandboxId};
use rules::QuotaTable;
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};

use super::encoding::Encoded;
use super::error::{SqliteError, SqliteResult};
use super::rows::EventRow;
use super::{begun_work, keys, posted, quota, rows, snapshots, templates};
use crate::followers::VisibleEvent;
use crate::{Committed, SandboxRecord, StoreError, Write};

pub(super) fn batch(connection: &Connection, batch: Encoded, quotas: &QuotaTable) -> SqliteResult<Committed> {
    let mut committed = Committed::default();
    let mut accounts = BTreeSet::new();
    let encoding = batch.encoding();
    for write in batch.batch.into_writes() {
        match write {
            Write::PutSandbox(record) => put(connection, &record)?,
            Write::DeleteSandbox(id) => delete(connection, &id)?,
            Write::AppendEvent(event) => {
                let event = EventRow::from(event);
                let sequence = match existing_event(connection, &event)? {
                    Some(sequence) => sequence,
                    None => append(connection, &event)?,
                };
                committed.event_sequences.push(sequence);
                accounts.insert(event.account);
            }
            Write::PutSnapshot(record) => snapshots::put(connection, &record)?,
            Write::DeleteSnapshot(id) => snapshots::delete(connection, &id)?,
            Write::PutTemplate(record) => templates::put(connection, &record)?,
            Write::DeleteTemplate(id) => templates::delete(connection, &id)?,
            Write::PutBegunWork(work) => begun_work::put(connection, &work)?,
            Write::DeleteBegunWork { kind, subject } => begun_work::delete(connection, &kind, &subject)?,
            Write::KeepPosted { account, most_bytes } => posted::evict(connection, &account, most_bytes)?,
            Write::PutKey(key) => keys::put(connection, &key)?,
            Write::RevokeKey { id, at } => keys::revoke(connection, &id, at)?,
            Write::PutIdempotencyRecord(record) => {
                keys::put_idempotency_record(connection, &record, encoding)?;
                let stored = &quotas.of(&record.account).stored;
                quota::evict_idempotency_records(connection, &record.account, stored)?;
            }
        }
    }
    quota::evict_events_of(connection, &accounts, quotas)?;
    Ok(committed)
}

/// The columns of a stored sandbox that side tables repeat.
pub(super) struct Stored {
    pub(super) row: i64,
    pub(super) account: String,
    pub(super) created_at: i64,
    pub(super) config: String,
}

fn put(connection: &Connection, record: &SandboxRecord) -> SqliteResult<()> {
    let config = rows::config_text(&record.config)?;
    let Some((stored, revision)) = find(connection, &record.id)? else {
        insert(connection, record, &config)?;
        return add_metadata(connection, connection.last_insert_rowid(), record);
    };
    if revision >= record.revision {
        let (id, offered) = (record.id.clone(), record.revision);
        return Err(SqliteError::Refused(StoreError::Stale { id, stored: revision, offered }));
    }
    update(connection, record, &config)?;
    let same = stored.config == config
        && stored.account == record.account
        && stored.created_at == rows::integer(record.created_at.0)?;
    if !same {
        remove_metadata(connection, &stored)?;
        add_metadata(connection, stored.row, record)?;
    }
    Ok(())
}

fn find(connection: &Connection, id: &SandboxId) -> SqliteResult<Option<(Stored, u64)>> {
    let mut statement = connection
        .prepare_cached("SELECT row, account, created_at, config, revision FROM sandboxes WHERE id = ?1")?;
    let found = statement
        .query_row([id.as_str()], |row| {
            let stored = Stored {
                row: row.get(0)?,
                account: row.get(1)?,
                created_at: row.get(2)?,
                config: row.get(3)?,
            };
            Ok((stored, row.get::<_, i64>(4)?))
        })
        .optional()?;
    found.map(|(stored, revision)| Ok((stored, rows::unsigned(revision)?))).transpose()
}

fn insert(connection: &Connection, record: &SandboxRecord, config: &str) -> SqliteResult<()> {
    let (columns, placeholders) = (rows::COLUMNS, rows::PLACEHOLDERS);
    let (unused, values) = (rows::UNUSED_COLUMNS, rows::UNUSED_VALUES);
    let sql = format!("INSERT INTO sandboxes ({columns}, {unused}) VALUES ({placeholders}, {values})");
    write_row(connection, &sql, record, config)
}

fn update(connection: &Connection, record: &SandboxRecord, config: &str) -> SqliteResult<()> {
    let sql = format!("UPDATE sandboxes SET ({}) = ({}) WHERE id = ?1", rows::COLUMNS, rows::PLACEHOLDERS);
    write_row(connection, &sql, record, config)
}

fn write_row(connection: &Connection, sql: &str, record: &SandboxRecord, config: &str) -> SqliteResult<()> {
    let (resources, lifecycle) = (record.config.resources, &record.lifecycle);
    let time = rows::optional_time;
    let values = params![
        record.id.as_str(),
        record.account,
        record.state().to_string(),
        record.config.image,
        resources.cpu,
        resources.memory_mb,
        resources.disk_mb,
        record.slot,
        rows::integer(record.created_at.0)?,
        time(lifecycle.started_at())?,
        time(lifecycle.paused_at())?,
        time(lifecycle.end().map(|(at, _)| at))?,
        rows::integer(record.revision)?,
        record.image_digest,
        rows::texts_column(&record.layers)?,
        rows::texts_column(&record.image_env)?,
        config,
        rows::ports_column(&record.ports),
        rows::integer(record.lifetime_ms)?,
        rows::lifecycle_text(lifecycle)?,
    ];
    match connection.prepare_cached(sql)?.execute(values) {
        Ok(_) => Ok(()),
        // The id was checked before, so only the slot can violate uniqueness.
        Err(error) if is_unique_violation(&error) => {
            Err(SqliteError::Refused(StoreError::SlotTaken { id: record.id.clone(), slot: record.slot }))
        }
        Err(error) => Err(error.into()),
    }
}

fn is_unique_violation(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| {
        error.code == ErrorCode::ConstraintViolation
            && error.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE
    })
}

fn add_metadata(connection: &Connection, row: i64, record: &SandboxRecord) -> SqliteResult<()> {
    let mut statement = connection.prepare_cached("INSERT INTO metadata VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let created_at = rows::integer(record.created_at.0)?;
    for (key, value) in &record.config.metadata {
        statement.execute(params![record.account, key, value, created_at, row])?;
    }
    Ok(())
}

fn remove_metadata(connection: &Connection, stored: &Stored) -> SqliteResult<()> {
    let config: SandboxConfig = rows::parse_config(&stored.config)?;
    let mut statement = connection.prepare_cached(
        "DELETE FROM metadata WHERE account = ?1 AND key = ?2 AND value = ?3 AND created_at = ?4 AND row = ?5",
    )?;
    for (key, value) in &config.metadata {
        statement.execute(params![stored.account, key, value, stored.created_at, stored.row])?;
    }
    Ok(())
}

fn delete(connection: &Connection, id: &SandboxId) -> SqliteResult<()> {
    match find(connection, id)? {
        Some((stored, _)) => remove(connection, &stored),
        None => Ok(()),
    }
}

/// Removes a sandbox and its rows in side tables, but not its events.
pub(super) fn remove(connection: &Connection, stored: &Stored) -> SqliteResult<()> {
    remove_metadata(connection, stored)?;
    connection.prepare_cached("DELETE FROM sandboxes WHERE row = ?1")?.execute([stored.row])?;
    Ok(())
}

fn append(connection: &Connection, event: &EventRow) -> SqliteResult<u64> {
    let sql = "INSERT INTO events (sandbox, account, at, kind, data, run, once) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let (at, data) = (rows::integer(event.at.0)?, event.data.to_string());
    let values = params![event.sandbox.as_str(), event.account, at, event.kind, data, event.run, event.once];
    let sequence = connection.prepare_cached(sql)?.insert(values)?;
    rows::unsigned(sequence)
}

/// The number of an existing event with the same `once`.
fn existing_event(connection: &Connection, event: &EventRow) -> SqliteResult<Option<u64>> {
    let Some(once) = &event.once else { return Ok(None) };
    let mut statement = connection.prepare_cached("SELECT sequence FROM events WHERE once = ?1")?;
    statement.query_row([once], |row| row.get(0)).optional()?.map(rows::unsigned).transpose()
}

/// Appends lines of the journal as events. Skips lines that became events before, by their numbers.
pub(super) fn journal_lines(
    connection: &Connection,
    journal_lines: &[(u64, EventRow)],
    quotas: &QuotaTable,
) -> SqliteResult<Vec<VisibleEvent>> {
    let last_applied_line = last_applied_line(connection)?;
    let mut visible = Vec::with_capacity(journal_lines.len());
    for (_, event) in journal_lines.iter().filter(|(number, _)| *number > last_applied_line) {
        if existing_event(connection, event)?.is_some() {
            continue;
        }
        let sequence = append(connection, event)?;
        visible.push(VisibleEvent {
            account: event.account.clone(),
            sandbox: event.sandbox.clone(),
            sequence,
        });
    }
    let accounts = visible.iter().map(|visible| visible.account.clone()).collect();
    quota::evict_events_of(connection, &accounts, quotas)?;
    if let Some((last, _)) = journal_lines.last() {
        let sql = "UPDATE event_notes SET applied = max(applied, ?1)";
        connection.prepare_cached(sql)?.execute([rows::integer(*last)?])?;
    }
    Ok(visible)
}

/// The number of the last line of the journal that became an event.
pub(super) fn last_applied_line(connection: &Connection) -> SqliteResult<u64> {
    let mut statement = connection.prepare_cached("SELECT applied FROM event_notes")?;
    rows::unsigned(statement.query_row([], |row| row.get(0))?)
}
