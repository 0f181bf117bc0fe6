//! The database file: creation, identification, settings, migrations.
//!
//! Several processes may have it open: a daemon, and the command line that creates keys.
//!
//! Each migration is one transaction together with its version, so that a crash leaves the previous version.

use std::ffi::OsString;
use std::fs::{self, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::error::{SqliteError, SqliteResult};
use super::wal;
use crate::{StoreCause, StoreError};

/// In order; the number of a migration is its index. Released migrations must not change. A migration only adds,
/// because a newer command line may migrate the file while an older daemon has it open.
const MIGRATIONS: [&str; 17] = [
    include_str!("../../migrations/0001_sandboxes_and_events.sql"),
    include_str!("../../migrations/0002_keys_and_remembered_answers.sql"),
    include_str!("../../migrations/0003_events_for_readers.sql"),
    include_str!("../../migrations/0004_exposed_ports.sql"),
    include_str!("../../migrations/0005_events_that_are_there_once.sql"),
    include_str!("../../migrations/0006_posted_events_are_bounded.sql"),
    include_str!("../../migrations/0007_stored_bytes_per_account.sql"),
    include_str!("../../migrations/0008_timeouts_that_change.sql"),
    include_str!("../../migrations/0009_snapshots.sql"),
    include_str!("../../migrations/0010_hibernation.sql"),
    include_str!("../../migrations/0011_snapshots_with_processes.sql"),
    include_str!("../../migrations/0012_templates.sql"),
    include_str!("../../migrations/0013_begun_work.sql"),
    include_str!("../../migrations/0014_bytes_of_ended_sandboxes.sql"),
    include_str!("../../migrations/0015_keys_with_an_end.sql"),
    include_str!("../../migrations/0016_lifecycle.sql"),
    include_str!("../../migrations/0017_working_directories_of_snapshots.sql"),
];

/// "sbxd", in the header of the file.
const APPLICATION_ID: i64 = 0x7362_7864;
/// Interval of polls for the lock. Short, because with a busy daemon the lock is free only briefly. After
/// [`MAX_POLLS`], about ten seconds, opening fails.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const MAX_POLLS: i32 = 8000;
/// The thread must not keep a daemon from ending.
const CHECKPOINTER_WAIT: Duration = Duration::from_millis(50);
const CACHED_STATEMENTS: usize = 64;
const OWNER_ONLY: u32 = 0o600;

#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", .path.display())]
struct CannotCreate {
    path: PathBuf,
    source: std::io::Error,
}

/// The connection that writes.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    create(path).map_err(|source| {
        StoreError::failed("cannot open the database", CannotCreate { path: path.to_owned(), source })
    })?;
    let convert = |error: SqliteError| error.into_store_error(path, "cannot open the database");
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(convert)?;
    identify(&connection, path)?;
    set_up(&connection).map_err(convert)?;
    migrate(&mut connection, path, &MIGRATIONS)?;
    Ok(connection)
}

/// A read-only connection. The writing connection must be open.
pub(super) fn open_reader(path: &Path) -> SqliteResult<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// A connection that leaves no file beside the database. Without a WAL nobody has it open, and SQLite would make an index of a WAL.
pub(super) fn open_unchanged(path: &Path) -> SqliteResult<Connection> {
    let mut wal = OsString::from(path);
    wal.push("-wal");
    if Path::new(&wal).exists() {
        return open_reader(path);
    }
    connect(&immutable(path), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)
}

/// The URI of a file that nobody changes.
fn immutable(path: &Path) -> PathBuf {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    uri.into()
}

/// A connection for checkpoints.
pub(super) fn open_checkpointer(path: &Path) -> SqliteResult<Connection> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.busy_timeout(CHECKPOINTER_WAIT)?;
    Ok(connection)
}

/// Creates the file for its owner only, because environments and metadata are private. SQLite creates the WAL with
/// the same mode.
fn create(path: &Path) -> std::io::Result<()> {
    match OpenOptions::new().read(true).write(true).create_new(true).mode(OWNER_ONLY).open(path) {
        Ok(file) => {
            file.sync_all()?;
            base::sync_parent(path)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            fs::set_permissions(path, Permissions::from_mode(OWNER_ONLY))
        }
        Err(error) => Err(error),
    }
}

fn connect(path: &Path, mode: OpenFlags) -> SqliteResult<Connection> {
    let connection = Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_handler(Some(wait_for_lock))?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    Ok(connection)
}

fn wait_for_lock(polls: i32) -> bool {
    std::thread::sleep(POLL_INTERVAL);
    polls < MAX_POLLS
}

fn identify(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let convert =
        |error: rusqlite::Error| SqliteError::from(error).into_store_error(path, "cannot open the database");
    let foreign =
        |reason: String| Err(StoreError::Foreign { path: path.to_owned(), source: StoreCause::new(reason) });
    let id = pragma(connection, "application_id").map_err(convert)?;
    let objects = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))
        .map_err(convert)?;
    match (id, objects) {
        (APPLICATION_ID, _) | (0, 0) => Ok(()),
        (0, tables) => foreign(format!("it holds {tables} tables or indexes of another program")),
        (other, _) => foreign(format!("its application id is {other:#x}, expected is {APPLICATION_ID:#x}")),
    }
}

fn set_up(connection: &Connection) -> SqliteResult<()> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        let reason =
            format!("the file system supports only journal mode '{mode}'; the database requires 'wal'");
        return Err(SqliteError::Refused(StoreError::failed("cannot open the database", reason)));
    }
    // FULL: an acknowledged commit is on disk, not only in the page cache.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // The checkpoint thread moves most of the WAL, but the WAL restarts only while nobody writes, so the writer moves
    // the rest.
    connection.pragma_update(None, "wal_autocheckpoint", wal::FRAMES)?;
    connection.pragma_update(None, "journal_size_limit", wal::MOST_BYTES)?;
    Ok(())
}

fn migrate(connection: &mut Connection, path: &Path, migrations: &[&str]) -> Result<(), StoreError> {
    let convert = |error: rusqlite::Error| {
        SqliteError::from(error)
            .into_store_error(path, "cannot migrate the database to the version of this program")
    };
    // A current database needs no lock, which a daemon may hold.
    if pragma(connection, "user_version").map_err(convert)? == migrations.len() as i64 {
        return Ok(());
    }
    loop {
        let step = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(convert)?;
        let found = pragma(&step, "user_version").map_err(convert)?;
        let known = migrations.len() as i64;
        if found > known {
            return Err(StoreError::TooNew { path: path.to_owned(), found, known });
        }
        let next = usize::try_from(found).ok().and_then(|found| migrations.get(found));
        let Some(migration) = next else { return Ok(()) };
        step.execute_batch(migration).map_err(convert)?;
        step.pragma_update(None, "application_id", APPLICATION_ID).map_err(convert)?;
        step.pragma_update(None, "user_version", found + 1).map_err(convert)?;
        step.commit().map_err(convert)?;
    }
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

#[cfg(test)]
mod tests;
