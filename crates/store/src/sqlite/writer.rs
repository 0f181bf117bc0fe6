//! The one thread that writes. All jobs that wait become one transaction, so that many callers share one fsync. Notes come
//! first in each: events have their numbers in the order in which they were noted and committed.
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
use super::journal::{Journal, Part};
use super::noter::{Moved, Noter};
use super::purge::{Purged, Target};
use super::trouble::{Outcome, Trouble};
use super::{apply, purge};
use crate::followers::{Followers, Told};
use crate::{Batch, Committed, NewEvent, StoreError, Write};

/// Jobs that may wait; more callers wait to be let in.
const QUEUE: usize = 1024;
/// Jobs that share a transaction.
const GROUP: usize = 256;

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

pub(super) enum Job {
    Commit {
        batch: Batch,
        reply: Reply<Committed>,
    },
    Purge {
        before: TimeMs,
        target: Target,
        reply: Reply<Purged>,
    },
    /// Nothing but what comes first in every transaction.
    Notes {
        reply: Reply<()>,
    },
}

/// The owner of the thread.
#[derive(Debug)]
pub(super) struct Writer {
    /// `None` only while it is dropped.
    queue: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// `None` beside a daemon, whose journal it is; and while it is dropped.
    noter: Option<Noter>,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        path: Arc<PathBuf>,
        followers: Arc<Followers>,
        journal: Option<Arc<Journal>>,
    ) -> Result<Self, StoreError> {
        let checkpointer = Checkpointer::start(&path)?;
        let (queue, jobs) = mpsc::channel(QUEUE);
        let noted = journal.clone();
        let (told, unmoved) = (Vec::new(), None);
        let writing = Thread { connection, path, checkpointer, followers, journal, told, unmoved };
        let thread = Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writing.run(jobs))
            .map_err(|error| StoreError::failed("cannot start the store's writer thread", error))?;
        let asked = queue.clone();
        let noter = noted.map(|journal| Noter::start(journal, move || move_notes(&asked))).transpose()?;
        Ok(Self { queue: Some(queue), thread: Some(thread), noter })
    }

    pub(super) fn note(&self, event: &NewEvent) -> Result<(), StoreError> {
        let reason = "the journal belongs to the daemon that has the database open";
        let noter = self.noter.as_ref().ok_or_else(|| StoreError::failed("cannot note an event", reason))?;
        noter.note(event)
    }

    pub(super) fn queue(&self) -> mpsc::Sender<Job> {
        #[expect(clippy::expect_used, reason = "only drop takes it")]
        self.queue.clone().expect("the queue is there until drop")
    }
}

impl Drop for Writer {
    /// Ends when all that was sent is done.
    fn drop(&mut self) {
        // It holds a sender of the queue.
        self.noter = None;
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
    followers: Arc<Followers>,
    journal: Option<Arc<Journal>>,
    /// Events of the transaction that is under way.
    told: Vec<Told>,
    /// Why notes of this transaction did not become events.
    unmoved: Option<StoreError>,
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
        if self.journal.as_ref().is_some_and(|journal| !journal.is_empty()) {
            // What this leaves the next start finds.
            self.write(Vec::new());
        }
    }

    fn write(&mut self, group: Vec<Job>) {
        let count = group.len();
        if let Err(error) = self.connection.execute_batch("BEGIN IMMEDIATE") {
            let error = Trouble::from(error).explain(&self.path, "cannot begin to write");
            group.into_iter().for_each(|job| job.refuse(error.clone()));
            return;
        }
        self.told.clear();
        let moved = self.move_notes();
        let answers: Vec<Answer> = group.into_iter().map(|job| self.one(job)).collect();
        let failure = self.connection.execute_batch("COMMIT").err().map(|error| {
            // If SQLite has rolled back already, this says so and changes nothing.
            let _ = self.connection.execute_batch("ROLLBACK");
            Trouble::from(error).explain(&self.path, "cannot commit")
        });
        if failure.is_none() {
            if let (Some(journal), Some(part)) = (&self.journal, &moved) {
                journal.moved(part);
            }
            self.followers.tell(&self.told);
        }
        answers.into_iter().for_each(|answer| answer(failure.as_ref()));
        self.checkpointer.written(count);
    }

    /// Makes events of the notes that wait.
    fn move_notes(&mut self) -> Option<Part> {
        self.unmoved = None;
        let journal = self.journal.clone()?;
        let mut told = Vec::new();
        let moved = match journal.part() {
            Ok(None) => return None,
            Ok(Some(part)) => self
                .in_savepoint(|connection| {
                    told = apply::notes(connection, &part.notes)?;
                    Ok(())
                })
                .map(|()| part),
            Err(error) => Err(StoreError::failed("cannot read the journal of events", error)),
        };
        match moved {
            Ok(part) => {
                self.told.extend(told);
                Some(part)
            }
            Err(error) => {
                self.unmoved = Some(error);
                None
            }
        }
    }

    fn one(&mut self, job: Job) -> Answer {
        match job {
            Job::Commit { batch, reply } => {
                let events = events_of(&batch);
                let result = self.in_savepoint(|connection| apply::batch(connection, batch));
                if let Ok(committed) = &result {
                    let numbered = events.into_iter().zip(&committed.event_sequences);
                    self.told.extend(numbered.map(|((account, sandbox), sequence)| Told {
                        account,
                        sandbox,
                        sequence: *sequence,
                    }));
                }
                answer(result, reply)
            }
            Job::Notes { reply } => answer(self.unmoved.clone().map_or(Ok(()), Err), reply),
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
            Self::Notes { reply } => drop(reply.send(Err(error))),
        }
    }
}

/// Asks the writer to move notes, from a thread of its own.
fn move_notes(queue: &mpsc::Sender<Job>) -> Moved {
    let (reply, answer) = oneshot::channel();
    if queue.blocking_send(Job::Notes { reply }).is_err() {
        return Moved::NeverMore;
    }
    match answer.blocking_recv() {
        Ok(Ok(())) => Moved::All,
        Ok(Err(_)) => Moved::NotYet,
        Err(_) => Moved::NeverMore,
    }
}

/// Whose events a batch has, in its order.
fn events_of(batch: &Batch) -> Vec<(String, api::SandboxId)> {
    let event = |write: &Write| match write {
        Write::AppendEvent(event) => Some((event.account.clone(), event.sandbox.clone())),
        _ => None,
    };
    batch.writes().iter().filter_map(event).collect()
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
