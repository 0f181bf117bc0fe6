//! The log of a build: a file with one event per line, which readers follow while it grows.
//!
//! The id of an event is the position behind it in the file, so a reader can continue after any event, also with the next daemon.
//! Output beyond a limit is dropped, other events are not. The file is not synced: a power loss may cost its last lines. The logs of
//! an account have a limit together, for which `trim_logs` removes the oldest ones.

mod reader;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use api::{BuildEvent, BuildStep};
use base::{IgnorePoison, unix_ms};
use rules::TimeMs;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

pub use reader::LogReader;

/// Most bytes of output in a log, without what each line has beside its text.
const MAX_OUTPUT_BYTES: u64 = 16 << 20;
/// A file that has as many bytes gets no more output: lines may be empty, and some characters become six.
const MAX_FILE_BYTES: u64 = 2 * MAX_OUTPUT_BYTES;
const OWNER_ONLY: u32 = 0o600;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LogLine<'a> {
    e: BuildEvent,
    /// Milliseconds since 1970.
    t: u64,
    #[serde(borrow)]
    d: std::borrow::Cow<'a, str>,
}

/// An event of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEvent {
    pub kind: BuildEvent,
    pub at: TimeMs,
    /// Text for output and notes, a JSON document for steps.
    pub data: String,
    /// Continues a reader behind this event.
    pub id: u64,
}

/// The log of a build.
#[derive(Debug)]
pub struct BuildLog {
    path: PathBuf,
    writer: Mutex<Writer>,
    state: watch::Sender<LogState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct LogState {
    bytes: u64,
    is_complete: bool,
}

#[derive(Debug)]
struct Writer {
    file: Option<File>,
    output_bytes: u64,
    drops: bool,
}

impl BuildLog {
    /// Opens the log of a build that is not over. A last line without its end is removed. Blocks.
    pub fn open(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(OWNER_ONLY).open(path)?;
        let bytes = whole_lines(&mut file)?;
        file.set_len(bytes)?;
        let writer = Writer { file: Some(file), output_bytes: bytes, drops: false };
        Ok(Self::new(path, writer, LogState { bytes, is_complete: false }))
    }

    /// The log of a build that is over. Without its file it is empty.
    pub fn of_finished(path: &Path) -> Self {
        let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let writer = Writer { file: None, output_bytes: 0, drops: false };
        Self::new(path, writer, LogState { bytes, is_complete: true })
    }

    fn new(path: &Path, writer: Writer, state: LogState) -> Self {
        Self { path: path.to_owned(), writer: Mutex::new(writer), state: watch::Sender::new(state) }
    }

    /// The beginning of a step.
    pub fn step(&self, step: &BuildStep) {
        // A struct of text and numbers can always be written.
        self.append(BuildEvent::Step, &serde_json::to_string(step).unwrap_or_default());
    }

    /// A remark of the builder.
    pub fn note(&self, text: &str) {
        self.append(BuildEvent::Note, text);
    }

    /// A line of output.
    pub fn output(&self, kind: BuildEvent, line: &str) {
        let is_over = {
            let mut writer = self.writer.lock().ignore_poison();
            writer.output_bytes = writer.output_bytes.saturating_add(line.len() as u64);
            let is_over = writer.output_bytes > MAX_OUTPUT_BYTES || self.file_bytes() > MAX_FILE_BYTES;
            if is_over && std::mem::replace(&mut writer.drops, true) {
                return;
            }
            is_over
        };
        if is_over {
            return self.note("the log is full: 16 MiB of output, or 32 MiB as it is stored; the rest of the output is dropped");
        }
        self.append(kind, line);
    }

    /// The size of the file, by which the logs of an account are bounded.
    pub fn file_bytes(&self) -> u64 {
        self.state.borrow().bytes
    }

    /// Removes the events of a build that is over. Its readers end. Blocks.
    pub fn remove(&self) -> io::Result<()> {
        // First, so that no reader expects what is not there.
        self.state.send_modify(|state| state.bytes = 0);
        base::allow_missing(std::fs::remove_file(&self.path))
    }

    /// No event follows.
    pub fn complete(&self) {
        self.writer.lock().ignore_poison().file = None;
        self.state.send_modify(|state| state.is_complete = true);
    }

    fn append(&self, kind: BuildEvent, data: &str) {
        let mut writer = self.writer.lock().ignore_poison();
        let Some(file) = &mut writer.file else { return };
        let mut line =
            serde_json::to_vec(&LogLine { e: kind, t: unix_ms(), d: data.into() }).unwrap_or_default();
        line.push(b'\n');
        match file.write_all(&line) {
            Ok(()) => self.state.send_modify(|state| state.bytes += line.len() as u64),
            Err(error) => tracing::error!(%error, "cannot write the log of a build"),
        }
    }

    /// A reader of the events behind a position. `None` if the position is not the end of an event.
    pub fn read_from(&self, position: u64) -> io::Result<Option<LogReader>> {
        let state = self.state.subscribe();
        let bytes = state.borrow().bytes;
        let file = match File::open(&self.path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let is_end_of_line = |file: &File| {
            let mut byte = [0];
            file.read_exact_at(&mut byte, position - 1).map(|()| byte == *b"\n")
        };
        let is_valid = match &file {
            _ if position == 0 => true,
            Some(file) if position <= bytes => is_end_of_line(file)?,
            _ => false,
        };
        Ok(is_valid.then_some(LogReader::new(file, position, state)))
    }
}

/// The length of a file up to the end of its last line.
fn whole_lines(file: &mut File) -> io::Result<u64> {
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut piece = vec![0; 4096];
    while end > 0 {
        let start = end.saturating_sub(piece.len() as u64);
        let n = usize::try_from(end - start).unwrap_or(0);
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut piece[..n])?;
        if let Some(at) = piece[..n].iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests;
