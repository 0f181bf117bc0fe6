//! The files of an execution beside its log: the record, written before the start, and the initial stdin.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use api::bounds::READER_TIMEOUT_MS;
use api::{EndReason, RunId};
use guest_proto::TerminalSize;
use serde::{Deserialize, Serialize};

use crate::detached::status::ExecutionId;

/// The immutable description of an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub id: ExecutionId,
    /// The agent's operation number.
    pub op: u64,
    pub command: String,
    pub cwd: Option<String>,
    pub run_id: Option<RunId>,
    /// The initial size.
    pub terminal: Option<TerminalSize>,
    pub timeout_ms: Option<u64>,
    /// The running time of the sandbox at which the execution is killed.
    pub ends_at_running_ms: Option<u64>,
    /// Whether it accepts input after the initial stdin.
    pub open_stdin: bool,
    /// Whether it has a stdin.
    pub has_stdin: bool,
    pub started_at_ms: u64,
    /// How long the command waits for a reader while its log is full of unread output. Missing in records of earlier versions.
    #[serde(default = "default_reader_timeout_ms")]
    pub reader_timeout_ms: u64,
    /// `None` for root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Of a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessRecord>,
}

/// What only processes have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessRecord {
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub tag: Option<String>,
}

/// The outcome of an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    pub is_lost: bool,
    /// It was killed at its timeout.
    #[serde(default)]
    pub is_timed_out: bool,
    pub exit_code: Option<i32>,
    pub signal: Option<String>,
    /// Why it was killed. Missing in logs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<EndReason>,
    pub message: Option<String>,
    pub duration_ms: u64,
    pub at_ms: u64,
}

fn default_reader_timeout_ms() -> u64 {
    READER_TIMEOUT_MS.default
}

const RECORD: &str = "record.json";
const STDIN: &str = "stdin";
/// The size of the pieces in which the stdin is read.
const PIECE: u64 = 64 * 1024;

impl Record {
    /// Creates the directory of an execution. The record is written last; recovery removes directories without one.
    pub fn write(&self, dir: &Path, stdin: Option<&str>) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        if self.process.is_some() {
            // The process does not survive a power loss, and then its record need not either. Recovery removes a directory
            // without a complete record.
            let new = dir.join(format!("{RECORD}.new"));
            let written = fs::write(&new, &text).and_then(|()| fs::rename(&new, dir.join(RECORD)));
            return written.inspect_err(|_| remove_draft(&new));
        }
        if let Some(text) = stdin {
            sync_into(dir, STDIN, text.as_bytes())?;
        }
        self.write_durably(dir)
    }

    /// Writes the record, so that it survives a power loss with everything that is synced in its directory.
    pub fn write_durably(&self, dir: &Path) -> io::Result<()> {
        sync_into(dir, RECORD, &serde_json::to_vec(self).map_err(io::Error::other)?)?;
        // The directory entries have to be durable as well, up to the engine's own directory.
        for dir in dir.ancestors().take(3) {
            base::sync_dir(dir)?;
        }
        Ok(())
    }

    /// The size of its texts, which are kept on disk and in memory.
    pub fn bytes(&self) -> u64 {
        let process = self.process.as_ref().map_or(0, |process| {
            let env: usize = process.env.iter().map(|(name, value)| name.len() + value.len()).sum();
            process.argv.iter().map(String::len).sum::<usize>() + env
        });
        (self.command.len() + self.cwd.as_ref().map_or(0, String::len) + process) as u64
    }

    /// `None` if there is no valid record.
    pub fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(dir.join(RECORD)).ok()?).ok()
    }
}

/// The initial stdin, until all of it is sent.
pub struct StdinText {
    file: File,
    pub bytes: u64,
}

impl StdinText {
    /// `None` if there is none.
    pub fn open(dir: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(dir.join(STDIN)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let bytes = file.metadata()?.len();
        Ok(Some(Self { file, bytes }))
    }

    /// The piece at position `from`. Not empty before the end.
    pub fn read(&self, from: u64) -> io::Result<Vec<u8>> {
        let mut piece = vec![0; PIECE.min(self.bytes.saturating_sub(from)) as usize];
        self.file.read_exact_at(&mut piece, from)?;
        Ok(piece)
    }
}

pub fn remove_stdin_text(dir: &Path) {
    // If this fails, the text is found again and is complete already, which has the same result.
    let _ = fs::remove_file(dir.join(STDIN));
}

/// Copies the stdin that has not been sent, if there is any.
pub fn copy_stdin_text(from: &Path, to: &Path) -> io::Result<()> {
    match fs::read(from.join(STDIN)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        text => sync_into(to, STDIN, &text?),
    }
}

fn sync_into(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let (new, path): (PathBuf, PathBuf) = (dir.join(format!("{name}.new")), dir.join(name));
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().inspect_err(|_| remove_draft(&new))
}

/// Removes what a failed write has left, which takes space of a disk that may be full.
fn remove_draft(new: &Path) {
    let _ = fs::remove_file(new);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_by_pieces() {
        let dir = tempfile::tempdir().unwrap();
        assert!(StdinText::open(dir.path()).unwrap().is_none());
        for length in [0, 1, PIECE as usize, PIECE as usize * 2 + 1] {
            let written: Vec<u8> = (0..length).map(|at| at as u8).collect();
            sync_into(dir.path(), STDIN, &written).unwrap();
            let text = StdinText::open(dir.path()).unwrap().unwrap();
            assert_eq!(text.bytes, length as u64);
            let mut read = Vec::new();
            while (read.len() as u64) < text.bytes {
                let piece = text.read(read.len() as u64).unwrap();
                assert!(!piece.is_empty() && piece.len() as u64 <= PIECE);
                read.extend(piece);
            }
            assert_eq!(read, written);
        }
    }
}
