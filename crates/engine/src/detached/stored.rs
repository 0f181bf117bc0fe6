//! The executions of a snapshot with processes: those that ran at the moment of the snapshot, with their output up to it. A sandbox
//! with a copy of the processes gets a copy of them and continues them.
//!
//! ```text
//! DIR/SNAPSHOT/EXECUTION/       as below DIR/SANDBOX; its time limit counts from the moment of the snapshot
//! DIR/SANDBOX.next/EXECUTION/   staged: for a sandbox that is about to have the processes
//! ```

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};

use api::bounds::READER_TIMEOUT_MS;
use api::{SandboxId, SnapshotId};
use base::{IgnorePoison, blocking};
use rules::TimeMs;

use super::events;
use super::execution::Progress;
use super::log::entry::Entry;
use super::log::{self, Segment};
use super::record::{Record, copy_stdin_text};
use super::registry::{ExecutionRegistry, RecoveredExecution, STAGED, SandboxExecutions, dirs, remove_tree};
use crate::error::EngineError;
use crate::record::ids::new_execution_id;

/// A running execution at one moment.
pub struct ExecutionSample {
    record: Record,
    dir: PathBuf,
    segments: Arc<[Segment]>,
    /// The number of the last segment, and its length.
    end: (u64, u64),
}

impl SandboxExecutions {
    /// The running executions. While their link is suspended the agent has all output that their logs lack.
    pub fn sample(&self, running_ms: u64) -> Vec<ExecutionSample> {
        let list = self.list();
        let running = list.values().filter(|execution| execution.is_running());
        let sample = running.map(|execution| {
            let progress = execution.progress.borrow();
            let mut record = execution.record.clone();
            record.ends_at_running_ms = record.ends_at_running_ms.map(|at| at.saturating_sub(running_ms));
            let (dir, segments) = (execution.dir.clone(), Arc::clone(&progress.segments));
            ExecutionSample { record, dir, segments, end: progress.end }
        });
        sample.collect()
    }
}

impl ExecutionRegistry {
    /// Stores executions with a snapshot.
    pub async fn store(
        self: &Arc<Self>,
        snapshot: &SnapshotId,
        samples: Vec<ExecutionSample>,
    ) -> Result<(), EngineError> {
        let dir = self.context.settings.dir.join(snapshot.as_str());
        blocking(move || Ok(samples.iter().try_for_each(|sample| store(sample, &dir))?)).await
    }

    /// The files of the executions of a snapshot, with their names below its directory.
    pub async fn stored_files(
        self: &Arc<Self>,
        snapshot: &SnapshotId,
    ) -> Result<Vec<(String, PathBuf)>, EngineError> {
        let dir = self.context.settings.dir.join(snapshot.as_str());
        blocking(move || {
            let mut files = Vec::new();
            for (execution, dir) in dirs(&dir)? {
                for entry in fs::read_dir(dir)? {
                    let entry = entry?;
                    let name = format!("{execution}/{}", entry.file_name().to_string_lossy());
                    files.push((name, entry.path()));
                }
            }
            Ok(files)
        })
        .await
    }

    /// Where to write such files of a snapshot from another host.
    pub async fn receive_stored(
        self: &Arc<Self>,
        snapshot: &SnapshotId,
        names: Vec<String>,
    ) -> Result<Vec<PathBuf>, EngineError> {
        let dir = self.context.settings.dir.join(snapshot.as_str());
        blocking(move || {
            remove_tree(&dir)?;
            Ok(names.iter().map(|name| place(&dir, name)).collect::<io::Result<_>>()?)
        })
        .await
    }

    /// Removes the executions of a snapshot.
    pub async fn remove_stored(self: &Arc<Self>, snapshot: &SnapshotId) -> Result<(), EngineError> {
        let dir = self.context.settings.dir.join(snapshot.as_str());
        blocking(move || Ok(remove_tree(&dir)?)).await
    }

    /// Copies the executions of a snapshot for a sandbox that will have its processes. Time limits count from `running_ms` of the
    /// sandbox's running time.
    pub async fn stage(
        self: &Arc<Self>,
        snapshot: &SnapshotId,
        sandbox: &SandboxId,
        running_ms: u64,
    ) -> Result<(), EngineError> {
        let stored = self.context.settings.dir.join(snapshot.as_str());
        let staged = self.staged_dir(sandbox);
        blocking(move || {
            remove_tree(&staged)?;
            for (name, from) in dirs(&stored)? {
                copy(&from, &staged.join(name), running_ms)?;
            }
            Ok(())
        })
        .await
    }

    /// Removes staged executions that are not wanted any more.
    pub async fn discard_staged(self: &Arc<Self>, sandbox: &SandboxId) -> Result<(), EngineError> {
        let staged = self.staged_dir(sandbox);
        blocking(move || Ok(remove_tree(&staged)?)).await
    }

    /// Removes all executions of a sandbox that has never had a record.
    pub async fn remove_all(self: &Arc<Self>, sandbox: &SandboxId) -> Result<(), EngineError> {
        self.discard_staged(sandbox).await?;
        self.remove(sandbox.clone()).await
    }

    pub fn has_staged(&self, sandbox: &SandboxId) -> bool {
        self.staged_dir(sandbox).exists()
    }

    /// Makes the staged executions those of the sandbox, whose others have ended: the agent has their operation numbers. The sandbox's
    /// actor adopts them. Returns the numbers.
    pub async fn adopt_staged(self: &Arc<Self>, sandbox: &SandboxId) -> Result<Vec<u64>, EngineError> {
        let staged = self.staged_dir(sandbox);
        let executions = self.of(sandbox);
        blocking(move || Ok(executions.adopt_staged(&staged)?)).await
    }

    fn staged_dir(&self, sandbox: &SandboxId) -> PathBuf {
        self.context.settings.dir.join(format!("{sandbox}{STAGED}"))
    }
}

impl SandboxExecutions {
    /// A crash in between leaves the rest to the next call.
    pub(super) fn adopt_staged(&self, staged: &Path) -> io::Result<Vec<u64>> {
        let mut ops = Vec::new();
        for (_, from) in dirs(staged)? {
            let Some(mut record) = Record::read(&from) else { continue };
            // The sandbox may have had an execution with its id.
            if self.find(&record.id).is_ok() || self.dir.join(record.id.as_str()).exists() {
                record.id = new_execution_id();
                record.write_durably(&from)?;
            }
            let to = self.dir.join(record.id.as_str());
            fs::create_dir_all(&self.dir)?;
            fs::rename(&from, &to)?;
            ops.push(record.op);
            let recovered = self.open(record, to)?;
            self.recovered().push(recovered);
        }
        remove_tree(staged).map(|()| ops)
    }

    /// Records that all executions have ended with their processes. For the recovery, before log writers run.
    pub(super) fn end_recovered(&self, now: TimeMs) -> io::Result<()> {
        for RecoveredExecution { execution, log, .. } in self.recovered().iter_mut() {
            if log.state().end.is_none() {
                log.append(&[Entry::Ended(events::lost(events::PROCESSES_GONE, now))], now.0)?;
                log.sync()?;
                execution.progress.send_replace(Progress::of(log));
            }
        }
        Ok(())
    }

    fn recovered(&self) -> MutexGuard<'_, Vec<RecoveredExecution>> {
        self.recovered.lock().ignore_poison()
    }
}

/// The path of a stored file. The name comes from the object store.
fn place(dir: &Path, name: &str) -> io::Result<PathBuf> {
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
fn copy(from: &Path, to: &Path, running_ms: u64) -> io::Result<()> {
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

fn store(sample: &ExecutionSample, above: &Path) -> io::Result<()> {
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
