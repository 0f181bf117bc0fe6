//! Copies of the files of executions.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use api::bounds::READER_TIMEOUT_MS;

use super::ExecutionSample;
use crate::detached::log;
use crate::detached::record::{Record, copy_stdin_text};

/// The path of a stored file. The name comes from the object store.
pub fn place(dir: &Path, name: &str) -> io::Result<PathBuf> {
    let is_plain = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.'))
            && !part.starts_with('.')
    };
    match name.split_once('/') {
        Some((execution, file)) if is_plain(execution) && is_plain(file) => {
            fs::create_dir_all(dir.join(execution))?;
            Ok(dir.join(execution).join(file))
        }
        _ => Err(io::Error::other(format!("'{name}' is no file of an execution"))),
    }
}

/// Copies a stored execution.
pub fn copy(from: &Path, to: &Path, running_ms: u64) -> io::Result<()> {
    let Some(mut record) = Record::read(from) else { return Ok(()) };
    record.ends_at_running_ms = record.ends_at_running_ms.map(|at| at.saturating_add(running_ms));
    // The client that asked for more time reads the original.
    record.reader_timeout_ms = record.reader_timeout_ms.min(READER_TIMEOUT_MS.default);
    fs::create_dir_all(to)?;
    let numbers = log::numbers(from)?;
    for number in &numbers {
        let is_last = Some(number) == numbers.last();
        copy_segment(from, to, *number, is_last.then_some(u64::MAX))?;
    }
    log::copy_mark(from, to)?;
    copy_stdin_text(from, to)?;
    record.write_durably(to)
}

/// Stores an execution with a snapshot.
pub fn store(sample: &ExecutionSample, above: &Path) -> io::Result<()> {
    let to = above.join(sample.record.id.as_str());
    fs::create_dir_all(&to)?;
    let (last, length) = sample.end;
    for segment in sample.segments.iter() {
        let is_last = segment.number == last;
        match copy_segment(&sample.dir, &to, segment.number, is_last.then_some(length)) {
            // The log was full and has dropped its oldest output since.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_last => {}
            copied => copied?,
        }
    }
    log::copy_mark(&sample.dir, &to)?;
    copy_stdin_text(&sample.dir, &to)?;
    // The last file: without it the execution does not exist.
    sample.record.write_durably(&to)
}

/// Copies a segment of a log up to a length. Complete ones, which do not change, are shared.
fn copy_segment(from: &Path, to: &Path, number: u64, length: Option<u64>) -> io::Result<()> {
    let (from, to) = (log::path(from, number), log::path(to, number));
    let Some(length) = length else {
        fs::hard_link(&from, to)?;
        return File::open(from)?.sync_all();
    };
    let mut source = io::Read::take(File::open(from)?, length);
    let mut target = File::create(to)?;
    io::copy(&mut source, &mut target)?;
    target.sync_all()
}
