//! The executions of a snapshot with processes: those that ran at the moment of the snapshot, with their output up to it. A sandbox
//! with a copy of the processes gets a copy of them and continues them.
//!
//! ```text
//! DIR/SNAPSHOT/EXECUTION/   as below DIR/SANDBOX; its time limit counts from the moment of the snapshot
//! ```

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use api::{SandboxId, SnapshotId};

use super::log::{self, Segment};
use super::record::{Record, copy_stdin_text};
use super::registry::{ExecutionRegistry, RecoveredExecution, SandboxExecutions, dirs, remove_tree};
use crate::detached_status::new_execution_id;
use crate::error::EngineError;

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
        let dir = self.stored_dir(snapshot);
        blocking(move || samples.iter().try_for_each(|sample| store(sample, &dir))).await
    }

    /// Removes the executions of a snapshot.
    pub async fn remove_stored(self: &Arc<Self>, snapshot: &SnapshotId) -> Result<(), EngineError> {
        let dir = self.stored_dir(snapshot);
        blocking(move || remove_tree(&dir)).await
    }

    /// Gives a sandbox the executions of a snapshot. Time limits count from `running_ms` of its running time. Returns the operation
    /// numbers. The sandbox's actor adopts them.
    pub async fn copy_stored(
        self: &Arc<Self>,
        snapshot: &SnapshotId,
        sandbox: &SandboxId,
        running_ms: u64,
    ) -> Result<Vec<u64>, EngineError> {
        let stored = self.stored_dir(snapshot);
        let executions = self.of(sandbox);
        blocking(move || {
            let mut ops = Vec::new();
            for (_, from) in dirs(&stored)? {
                if let Some(recovered) = executions.copy(&from, running_ms)? {
                    ops.push(recovered.execution.record.op);
                    executions.recovered().push(recovered);
                }
            }
            Ok(ops)
        })
        .await
    }

    fn stored_dir(&self, snapshot: &SnapshotId) -> PathBuf {
        self.context.settings.dir.join(snapshot.as_str())
    }
}

impl SandboxExecutions {
    /// Copies a stored execution. It gets another id if the sandbox has had one with its id.
    fn copy(&self, from: &Path, running_ms: u64) -> io::Result<Option<RecoveredExecution>> {
        let Some(mut record) = Record::read(from) else { return Ok(None) };
        record.ends_at_running_ms = record.ends_at_running_ms.map(|at| at.saturating_add(running_ms));
        if self.find(&record.id).is_ok() || self.dir.join(record.id.as_str()).exists() {
            record.id = new_execution_id();
        }
        let to = self.dir.join(record.id.as_str());
        fs::create_dir_all(&to)?;
        let numbers = log::numbers(from)?;
        for number in &numbers {
            let is_last = Some(number) == numbers.last();
            copy_segment(from, &to, *number, is_last.then_some(u64::MAX))?;
        }
        copy_stdin_text(from, &to)?;
        record.write(&to, None)?;
        self.open(record, to).map(Some)
    }

    fn recovered(&self) -> std::sync::MutexGuard<'_, Vec<RecoveredExecution>> {
        self.recovered.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    copy_stdin_text(&sample.dir, &to)?;
    // The last file: without it the execution does not exist.
    sample.record.write(&to, None)
}

/// Copies a segment of a log up to a length. Complete ones, which do not change, are shared.
fn copy_segment(from: &Path, to: &Path, number: u64, length: Option<u64>) -> io::Result<()> {
    let (from, to) = (log::path(from, number), log::path(to, number));
    let Some(length) = length else { return fs::hard_link(from, to) };
    let mut source = io::Read::take(File::open(from)?, length);
    let mut target = File::create(to)?;
    io::copy(&mut source, &mut target)?;
    target.sync_all()
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, EngineError> {
    Ok(tokio::task::spawn_blocking(work).await.map_err(|_| EngineError::TaskLost)??)
}
