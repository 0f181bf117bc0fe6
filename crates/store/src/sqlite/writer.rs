//! The one thread that writes. All jobs that wait become one transaction, so that many callers share one fsync.
//!
//! Each job has a savepoint of its own: one that is refused leaves no trace and does not disturb the others. If the
//! transaction as a whole cannot be committed, every job in it is told so and nothing of it can be seen.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use rules::TimeMs;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::checkpoint::Checkpointer;
use super::purge::{Purged, Target};
use super::trouble::{Outcome, Trouble};
use super::{apply, purge};
use crate::{Batch, Committed, StoreError};

/// Jobs that may wait; more callers wait to be let in.
const QUEUE: usize = 1024;
/// Jobs that share a transaction.
const GROUP: usize = 256;

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

pub(super) enum Job {
    Commit { batch: Batch, reply: Reply<Committed> },
    Purge { before: TimeMs, target: Target, reply: Reply<Purged> },
}

/// The owner of the thread.
#[derive(Debug)]
pub(super) struct Writer {
    /// `None` only while it is dropped.
    queue: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(connection: Connection, path: Arc<PathBuf>) -> Result<Self, StoreError> {
        let checkpointer = Checkpointer::start(&path)?;
        let (queue, jobs) = mpsc::channel(QUEUE);
        let thread = Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || Thread { connection, path, checkpointer }.run(jobs))
            .map_err(|error| StoreError::failed("cannot start the store's writer thread", error))?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    pub(super) fn queue(&self) -> mpsc::Sender<Job> {
        #[expect(clippy::expect_used, reason = "only drop takes it")]
        self.queue.clone().expect("the queue is there until drop")
    }
}

impl Drop for Writer {
    /// Ends when all that was sent is done.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was told to its callers: their replies were dropped.
            let _ = thread.join();
        }
    }
}

struct Thread {
    connection: Connection,
    path: Arc<PathBuf>,
    checkpointer: Checkpointer,
}

/// A job that is done but not yet durable. Calling it answers; with an error if the commit failed.
type Answer = Box<dyn FnOnce(Option<&StoreError>)>;

impl Thread {
    fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(first) = jobs.blocking_recv() {
            let mut group = vec![first];
            while group.len() < GROUP {
                let Ok(job) = jobs.try_recv() else { break };
                group.push(job);
            }
            self.write(group);
        }
    }

    fn write(&mut self, group: Vec<Job>) {
        let count = group.len();
        if let Err(error) = self.connection.execute_batch("BEGIN IMMEDIATE") {
            let error = Trouble::from(error).explain(&self.path, "cannot begin to write");
            group.into_iter().for_each(|job| job.refuse(error.clone()));
            return;
        }
        let answers: Vec<Answer> = group.into_iter().map(|job| self.one(job)).collect();
        let failure = self.connection.execute_batch("COMMIT").err().map(|error| {
            // If SQLite has rolled back already, this says so and changes nothing.
            let _ = self.connection.execute_batch("ROLLBACK");
            Trouble::from(error).explain(&self.path, "cannot commit")
        });
        answers.into_iter().for_each(|answer| answer(failure.as_ref()));
        self.checkpointer.written(count);
    }

    fn one(&self, job: Job) -> Answer {
        match job {
            Job::Commit { batch, reply } => {
                answer(self.in_savepoint(|connection| apply::batch(connection, batch)), reply)
            }
            Job::Purge { before, target, reply } => {
                answer(self.in_savepoint(|connection| purge::some(connection, before, target)), reply)
            }
        }
    }

    /// After some errors (a full disk, say) SQLite rolls back the whole transaction. Then there is no savepoint to go
    /// back to, each further job fails at its own, the commit fails too, and with it every job of the group.
    fn in_savepoint<T>(&self, work: impl FnOnce(&Connection) -> Outcome<T>) -> Result<T, StoreError> {
        let explain = |trouble: Trouble| trouble.explain(&self.path, "cannot write");
        if self.connection.is_autocommit() {
            return Err(StoreError::failed("cannot write", "the transaction it was part of was rolled back"));
        }
        self.connection.execute_batch("SAVEPOINT job").map_err(|error| explain(error.into()))?;
        let result = work(&self.connection).map_err(explain);
        let end = if result.is_ok() { "RELEASE job" } else { "ROLLBACK TO job; RELEASE job" };
        match self.connection.execute_batch(end) {
            Err(error) if result.is_ok() => Err(explain(error.into())),
            _ => result,
        }
    }
}

impl Job {
    fn refuse(self, error: StoreError) {
        // A caller that went away does not want to know.
        match self {
            Self::Commit { reply, .. } => drop(reply.send(Err(error))),
            Self::Purge { reply, .. } => drop(reply.send(Err(error))),
        }
    }
}

fn answer<T: 'static>(result: Result<T, StoreError>, reply: Reply<T>) -> Answer {
    Box::new(move |failure| {
        let result = match (result, failure) {
            (Ok(_), Some(failure)) => Err(failure.clone()),
            (result, _) => result,
        };
        // A caller that went away does not want to know.
        let _ = reply.send(result);
    })
}
