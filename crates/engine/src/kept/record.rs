//! What is written down of an execution before it starts, and of its end.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use api::RunId;
use guest_proto::TerminalSize;
use serde::{Deserialize, Serialize};

use crate::executions::ExecutionId;

/// Never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub id: ExecutionId,
    /// The agent's number for it.
    pub op: u64,
    pub command: String,
    pub cwd: Option<String>,
    pub run_id: Option<RunId>,
    /// The size it began with.
    pub terminal: Option<TerminalSize>,
    pub timeout_ms: Option<u64>,
    /// Running time of its sandbox at which its time is over.
    pub ends_at_running_ms: Option<u64>,
    /// It takes input beyond what it began with.
    pub open_stdin: bool,
    /// It has a stdin at all.
    pub has_stdin: bool,
    pub started_at_ms: u64,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    pub is_lost: bool,
    pub exit_code: Option<i32>,
    pub signal: Option<String>,
    pub message: Option<String>,
    pub duration_ms: u64,
    pub at_ms: u64,
}

const RECORD: &str = "record.json";
const STDIN: &str = "stdin";

impl Record {
    /// Lays out the directory of an execution. What is half made has no record, and is removed by the next recovery.
    pub fn write(&self, dir: &Path, stdin: Option<&str>) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        if let Some(text) = stdin {
            sync_into(dir, STDIN, text.as_bytes())?;
        }
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        sync_into(dir, RECORD, &text)?;
        // The names count as well, up to the engine's own directory.
        for dir in dir.ancestors().take(3) {
            File::open(dir)?.sync_all()?;
        }
        Ok(())
    }

    /// `None` where there is none that can be read.
    pub fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(dir.join(RECORD)).ok()?).ok()
    }
}

/// What it is fed first, where some of it may be left to feed.
pub fn stdin_text(dir: &Path) -> Option<Vec<u8>> {
    fs::read(dir.join(STDIN)).ok()
}

pub fn remove_stdin_text(dir: &Path) {
    // Without it there is nothing to feed, and with it all of it was fed: both are the same.
    let _ = fs::remove_file(dir.join(STDIN));
}

fn sync_into(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let (new, path): (PathBuf, PathBuf) = (dir.join(format!("{name}.new")), dir.join(name));
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(new, path)
}
