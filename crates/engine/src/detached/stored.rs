//! The executions of a snapshot with processes: those that ran at the moment of the snapshot, with their output up to it. A sandbox
//! with a copy of the processes gets a copy of them and continues them.
//!
//! ```text
//! DIR/SNAPSHOT/EXECUTION/       as below DIR/SANDBOX; its time limit counts from the moment of the snapshot
//! DIR/SANDBOX.next/EXECUTION/   staged: for a sandbox that is about to have the processes
//! ```

mod copies;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};

use api::{SandboxId, SnapshotId};
use base::{IgnorePoison, blocking};
use rules::TimeMs;

use super::events;
use super::execution::Progress;
use super::log::Segment;
use super::log::entry::Entry;
use super::record::Record;
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
        blocking(move || Ok(samples.iter().try_for_each(|sample| copies::store(sample, &dir))?)).await
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
            Ok(names.iter().map(|name| copies::place(&dir, name)).collect::<io::Result<_>>()?)
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
                copies::copy(&from, &staged.join(name), running_ms)?;
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
