//! The writer thread. All queued jobs become one transaction, so that many callers share one fsync. Lines of the event journal come
//! first in each: events are numbered in the order in which they were appended and committed.
//!
//! Each job has its own savepoint: a refused job is rolled back without affecting the others. If the transaction
//! cannot be committed, all its jobs fail and none of its writes is visible.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use permits::AccountPermit;
use rules::{QuotaTable, TimeMs};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::checkpoint::Checkpointer;
use super::encoding::Encoded;
use super::error::{SqliteError, SqliteResult};
use super::journal::{Journal, PendingLines};
use super::journal_flusher::{JournalFlusher, Moved};
use super::purge::{PurgeTarget, Purged};
use super::{apply, purge};
use crate::followers::{Followers, VisibleEvent};
use crate::{Batch, Committed, NewEvent, StoreError, Write};

/// Capacity of the queue; further callers wait.
const QUEUE: usize = 1024;
/// Jobs that share a transaction.
const GROUP_JOBS: usize = 256;

pub(super) type ReplySender<T> = oneshot::Sender<Result<T, StoreError>>;

pub(super) enum Job {
    Commit {
        batch: Encoded,
        reply: ReplySender<Committed>,
        /// Returned with the reply, also if the caller has stopped waiting.
        permit: AccountPermit,
    },
    Purge {
        before: TimeMs,
        target: PurgeTarget,
        reply: ReplySender<Purged>,
    },
    PurgeBeyond {
        account: String,
        most_bytes: u64,
        reply: ReplySender<Purged>,
    },
    /// Only moves lines of the journal, as each transaction does first.
    MoveLines {
        reply: ReplySender<()>,
    },
}

/// The owner of the thread.
#[derive(Debug)]
pub(super) struct Writer {
    /// `None` only while it is dropped.
    queue: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// `None` while another process owns the journal, and during drop.
    journal_flusher: Option<JournalFlusher>,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        path: Arc<PathBuf>,
        followers: Arc<Followers>,
        quotas: QuotaTable,
        journal: Option<Arc<Journal>>,
    ) -> Result<Self, StoreError> {
        let checkpointer = Checkpointer::start(&path)?;
        let (queue, jobs) = mpsc::channel(QUEUE);
        let events_journal = journal.clone();
        let (new_events, move_error) = (Vec::new(), None);
        let writing =
            Thread { connection, path, checkpointer, followers, quotas, journal, new_events, move_error };
        let thread = Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writing.run(jobs))
            .map_err(|error| StoreError::failed("cannot start the store's writer thread", error))?;
        let jobs_queue = queue.clone();
        let journal_flusher = events_journal
            .map(|journal| JournalFlusher::start(journal, move || move_journal_lines(&jobs_queue)))
            .transpose()?;
        Ok(Self { queue: Some(queue), thread: Some(thread), journal_flusher })
    }

    pub(super) fn append(&self, event: &NewEvent) -> Result<(), StoreError> {
        let reason = "the journal belongs to the daemon that has the database open";
        let journal_flusher = self
            .journal_flusher
            .as_ref()
            .ok_or_else(|| StoreError::failed("cannot append an event", reason))?;
        journal_flusher.append(event)
    }

    pub(super) fn queue(&self) -> mpsc::Sender<Job> {
        #[expect(clippy::expect_used, reason = "only drop takes it")]
        self.queue.clone().expect("the queue exists until drop")
    }
}

impl Drop for Writer {
    /// Returns when all queued jobs are done.
    fn drop(&mut self) {
        // It owns a sender of the queue.
        self.journal_flusher = None;
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // After a panic of the thread its callers get an error, because their replies are dropped.
            let _ = thread.join();
        }
    }
}

struct Thread {
    connection: Connection,
    path: Arc<PathBuf>,
    checkpointer: Checkpointer,
    followers: Arc<Followers>,
    quotas: QuotaTable,
    journal: Option<Arc<Journal>>,
    /// Events of the current transaction.
    new_events: Vec<VisibleEvent>,
    /// Why lines did not become events in this transaction.
    move_error: Option<StoreError>,
}

/// A job that is applied but not yet durable. Calling it replies, with an error if the commit failed.
type PendingReply = Box<dyn FnOnce(Option<&StoreError>)>;

impl Thread {
    fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(first) = jobs.blocking_recv() {
            let mut group = vec![first];
            while group.len() < GROUP_JOBS {
                let Ok(job) = jobs.try_recv() else { break };
                group.push(job);
            }
            self.write(group);
        }
        if self.journal.as_ref().is_some_and(|journal| !journal.is_empty()) {
            // The next start moves the remaining lines.
            self.write(Vec::new());
        }
    }

    fn write(&mut self, group: Vec<Job>) {
        let count = group.len();
        if let Err(error) = self.connection.execute_batch("BEGIN IMMEDIATE") {
            let error = SqliteError::from(error).into_store_error(&self.path, "cannot begin to write");
            group.into_iter().for_each(|job| job.refuse(error.clone()));
            return;
        }
        self.new_events.clear();
        let moved = self.move_journal_lines();
        let replies: Vec<PendingReply> = group.into_iter().map(|job| self.apply_job(job)).collect();
        let failure = self.connection.execute_batch("COMMIT").err().map(|error| {
            // If SQLite has already rolled back, this fails and changes nothing.
            let _ = self.connection.execute_batch("ROLLBACK");
            SqliteError::from(error).into_store_error(&self.path, "cannot commit")
        });
        if failure.is_none() {
            if let (Some(journal), Some(part)) = (&self.journal, &moved) {
                journal.moved(part);
            }
            self.followers.wake(&self.new_events);
        }
        replies.into_iter().for_each(|reply| reply(failure.as_ref()));
        self.checkpointer.written(count);
    }

    /// Turns pending lines of the journal into events.
    fn move_journal_lines(&mut self) -> Option<PendingLines> {
        self.move_error = None;
        let journal = self.journal.clone()?;
        let mut new_events = Vec::new();
        let moved = match journal.part() {
            Ok(None) => return None,
            Ok(Some(part)) => self
                .in_savepoint(|connection| {
                    new_events = apply::journal_lines(connection, &part.lines, &self.quotas)?;
                    Ok(())
                })
                .map(|()| part),
            Err(error) => Err(StoreError::failed("cannot read the event journal", error)),
        };
        match moved {
            Ok(part) => {
                self.new_events.extend(new_events);
                Some(part)
            }
            Err(error) => {
                self.move_error = Some(error);
                None
            }
        }
    }

    fn apply_job(&mut self, job: Job) -> PendingReply {
        match job {
            Job::Commit { batch, reply, permit } => {
                let events = events_of(&batch.batch);
                let result = self.in_savepoint(|connection| apply::batch(connection, batch, &self.quotas));
                if let Ok(committed) = &result {
                    let numbered = events.into_iter().zip(&committed.event_sequences);
                    self.new_events.extend(numbered.map(|((account, sandbox), sequence)| VisibleEvent {
                        account,
                        sandbox,
                        sequence: *sequence,
                    }));
                }
                let reply = reply_later(result, reply);
                Box::new(move |failure| {
                    reply(failure);
                    drop(permit);
                })
            }
            Job::MoveLines { reply } => reply_later(self.move_error.clone().map_or(Ok(()), Err), reply),
            Job::Purge { before, target, reply } => reply_later(
                self.in_savepoint(|connection| purge::purge_part(connection, before, target)),
                reply,
            ),
            Job::PurgeBeyond { account, most_bytes, reply } => reply_later(
                self.in_savepoint(|connection| purge::purge_part_beyond(connection, &account, most_bytes)),
                reply,
            ),
        }
    }

    /// After some errors (such as a full disk) SQLite rolls back the whole transaction. Then there is no savepoint to
    /// roll back to, and all jobs of the group fail.
    fn in_savepoint<T>(&self, work: impl FnOnce(&Connection) -> SqliteResult<T>) -> Result<T, StoreError> {
        let convert = |error: SqliteError| error.into_store_error(&self.path, "cannot write");
        if self.connection.is_autocommit() {
            return Err(StoreError::failed("cannot write", "the transaction it was part of was rolled back"));
        }
        self.connection.execute_batch("SAVEPOINT job").map_err(|error| convert(error.into()))?;
        let result = work(&self.connection).map_err(convert);
        let end = if result.is_ok() { "RELEASE job" } else { "ROLLBACK TO job; RELEASE job" };
        match self.connection.execute_batch(end) {
            Err(error) if result.is_ok() => Err(convert(error.into())),
            _ => result,
        }
    }
}

impl Job {
    fn refuse(self, error: StoreError) {
        // The caller may have stopped waiting.
        match self {
            Self::Commit { reply, .. } => drop(reply.send(Err(error))),
            Self::Purge { reply, .. } | Self::PurgeBeyond { reply, .. } => drop(reply.send(Err(error))),
            Self::MoveLines { reply } => drop(reply.send(Err(error))),
        }
    }
}

/// Asks the writer to move lines; called from the flushing thread.
fn move_journal_lines(queue: &mpsc::Sender<Job>) -> Moved {
    let (reply, response) = oneshot::channel();
    if queue.blocking_send(Job::MoveLines { reply }).is_err() {
        return Moved::WriterEnded;
    }
    match response.blocking_recv() {
        Ok(Ok(())) => Moved::All,
        Ok(Err(_)) => Moved::Pending,
        Err(_) => Moved::WriterEnded,
    }
}

/// Account and sandbox of each event of a batch, in order.
fn events_of(batch: &Batch) -> Vec<(String, api::SandboxId)> {
    let event = |write: &Write| match write {
        Write::AppendEvent(event) => Some((event.account.clone(), event.sandbox.clone())),
        _ => None,
    };
    batch.writes().iter().filter_map(event).collect()
}

fn reply_later<T: 'static>(result: Result<T, StoreError>, reply: ReplySender<T>) -> PendingReply {
    Box::new(move |failure| {
        let result = match (result, failure) {
            (Ok(_), Some(failure)) => Err(failure.clone()),
            (result, _) => result,
        };
        // The caller may have stopped waiting.
        let _ = reply.send(result);
    })
}
