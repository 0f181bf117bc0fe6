//! Blocks of the WAL that exist before frames are written to them. A commit that makes the file longer waits for the journal of the
//! file system; one that overwrites blocks waits for its own pages only.
//!
//! SQLite ends the log at the first frame without the salt of its header, so zeros behind the last frame are none.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// Frames after which the writer starts at the beginning again: 16 MiB.
pub(super) const FRAMES: i64 = 4096;
/// Frames of a transaction that is written when the log is nearly full.
const SLACK: i64 = 512;
const HEADER_BYTES: i64 = 32;
const FRAME_BYTES: i64 = 24 + 4096;
/// SQLite cuts a longer log to this length.
pub(super) const MOST_BYTES: i64 = HEADER_BYTES + (FRAMES + SLACK) * FRAME_BYTES;
/// Written at a time. The writer waits meanwhile.
const PIECE: u64 = 512 << 10;
const PIECES: usize = 8;

/// Makes the log of a database longer by a few pieces, up to its full length.
pub(super) fn reserve(connection: &Connection) -> io::Result<()> {
    let Some(database) = connection.path() else { return Ok(()) };
    let log = OpenOptions::new().write(true).open(format!("{database}-wal"))?;
    for _ in 0..PIECES {
        if log.metadata()?.len() >= MOST_BYTES.unsigned_abs() {
            break;
        }
        add_piece(connection, &log)?;
        log.sync_data()?;
    }
    Ok(())
}

fn add_piece(connection: &Connection, log: &File) -> io::Result<()> {
    // Nobody else writes to the log until it is dropped.
    let _writing =
        Transaction::new_unchecked(connection, TransactionBehavior::Immediate).map_err(io::Error::other)?;
    let length = log.metadata()?.len();
    let missing = MOST_BYTES.unsigned_abs().saturating_sub(length).min(PIECE);
    let zeros = vec![0; usize::try_from(missing).map_err(io::Error::other)?];
    log.write_all_at(&zeros, length)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::file;
    use super::*;

    fn count(connection: &Connection) -> i64 {
        connection.query_row("SELECT count(*) FROM numbers", [], |row| row.get(0)).unwrap()
    }

    fn log_length(directory: &Path) -> u64 {
        fs::metadata(directory.join("s.db-wal")).unwrap().len()
    }

    #[test]
    fn a_crash_at_any_length_loses_no_commit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.db");
        let writer = file::open(&path).unwrap();
        let other = file::open_checkpointer(&path).unwrap();
        writer.execute_batch("CREATE TABLE numbers (number)").unwrap();
        let mut lengths = Vec::new();
        for written in 0..8 {
            // What a crash of the process leaves.
            let copy = tempfile::tempdir().unwrap();
            for name in ["s.db", "s.db-wal"] {
                fs::copy(directory.path().join(name), copy.path().join(name)).unwrap();
            }
            let reopened = file::open(&copy.path().join("s.db")).unwrap();
            assert_eq!(count(&reopened), written);
            let valid: String = reopened.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(valid, "ok");
            reserve(&other).unwrap();
            writer.execute_batch("INSERT INTO numbers VALUES (1)").unwrap();
            lengths.push(log_length(directory.path()));
        }
        assert!(lengths[0] > PIECE && lengths[7] == MOST_BYTES.unsigned_abs(), "{lengths:?}");
    }

    #[test]
    fn frames_are_written_over_the_zeros() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.db");
        let writer = file::open(&path).unwrap();
        reserve(&file::open_checkpointer(&path).unwrap()).unwrap();
        let length = log_length(directory.path());
        writer.execute_batch("CREATE TABLE numbers (number); INSERT INTO numbers VALUES (1)").unwrap();
        assert_eq!(log_length(directory.path()), length);
        assert_eq!(count(&file::open_reader(&path).unwrap()), 1);
    }
}
