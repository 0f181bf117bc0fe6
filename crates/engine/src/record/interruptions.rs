//! Counts the daemons that ended during work, so that work which ends every daemon is given up (`rules::begin_work`).
//!
//! Whoever begins work that the next daemon or a client would begin again calls [`Interruptions::begin`], which commits the count, and
//! [`WorkInProgress::end`] afterwards, whether or not the work succeeded. If the count cannot be committed, the work does not begin. Work
//! that is dropped because the engine stops is ended by [`Interruptions::end_all`]. If an end cannot be committed, work counts once too often.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use api::{EventKind, SandboxId};
use base::IgnorePoison;
use rules::{GaveUp, RepeatableWork, begin_work};
use serde_json::json;
use store::{Batch, BegunWork, MAX_WRITES, NewEvent, StoreError};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::counters::Counters;
use crate::error::EngineError;
use crate::record::stamped_store::StampedStore;

type WorkKey = (RepeatableWork, String);

/// The counts of this engine.
pub struct Interruptions {
    stamped_store: StampedStore,
    counters: Arc<Counters>,
    state: Mutex<State>,
    /// Changes when work ends.
    ended: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    /// Interruptions by earlier daemons.
    found: HashMap<WorkKey, u32>,
    in_progress: HashSet<WorkKey>,
    reported: HashSet<WorkKey>,
}

/// The sandbox whose owner learns that work was given up.
#[derive(Debug, Clone, Copy)]
pub struct Affected<'a> {
    pub account: &'a str,
    pub sandbox: &'a SandboxId,
}

/// Work whose start is counted.
pub struct WorkInProgress {
    interruptions: Arc<Interruptions>,
    key: WorkKey,
}

impl WorkInProgress {
    /// A part is complete that the next daemon does not repeat: what interrupts the rest is not what interrupted that part.
    pub async fn progressed(&self) {
        self.interruptions.begin_again(&self.key).await;
    }

    /// The daemon lives through the work.
    pub async fn end(self) {
        let Self { interruptions, key } = self;
        interruptions.remove(vec![key]).await;
    }
}

impl Interruptions {
    pub fn new(stamped_store: StampedStore, counters: Arc<Counters>) -> Self {
        Self { stamped_store, counters, state: Mutex::default(), ended: watch::Sender::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is complete before anything can panic.
        self.state.lock().ignore_poison()
    }

    /// Reads what earlier daemons have left. Work of a newer version is not touched.
    pub async fn load(&self) -> Result<(), EngineError> {
        let found = self.stamped_store.store().begun_work().await?;
        let known = found.into_iter().filter_map(|BegunWork { kind, subject, starts }| {
            Some(((RepeatableWork::of_name(&kind)?, subject), starts))
        });
        self.state().found.extend(known);
        Ok(())
    }

    /// How many daemons have ended during this work.
    pub fn count(&self, kind: RepeatableWork, subject: &str) -> u32 {
        self.state().found.get(&(kind, subject.to_owned())).copied().unwrap_or(0)
    }

    /// Counts the start of work. Fails if it was interrupted too often.
    pub async fn begin(
        self: &Arc<Self>,
        kind: RepeatableWork,
        subject: &str,
        affected: Option<Affected<'_>>,
    ) -> Result<WorkInProgress, EngineError> {
        let starts = match begin_work(kind, subject, self.count(kind, subject)) {
            Ok(starts) => starts,
            Err(given_up) => {
                self.report(&given_up, affected).await?;
                return Err(given_up.into());
            }
        };
        self.stamped_store.commit(Batch::new().put_begun_work(row(kind, subject, starts))).await?;
        Ok(self.started(kind, subject))
    }

    /// The work that is in progress counts as begun for the first time.
    async fn begin_again(&self, key: &WorkKey) {
        if !self.state().found.contains_key(key) {
            return;
        }
        let (kind, subject) = key;
        match self.stamped_store.commit(Batch::new().put_begun_work(row(*kind, subject, 1))).await {
            Ok(_) => drop(self.state().found.remove(key)),
            Err(error) => {
                tracing::warn!(%error, "could not record the progress of work; earlier interruptions count on");
            }
        }
    }

    /// Counts the start of work that was never interrupted, all in few commits. On a full disk it is not counted: sandboxes must be
    /// taken over then, too.
    pub async fn begin_fresh(
        self: &Arc<Self>,
        kind: RepeatableWork,
        subjects: &[&str],
    ) -> Result<Vec<WorkInProgress>, StoreError> {
        for part in subjects.chunks(MAX_WRITES) {
            let begin = |batch: Batch, subject: &&str| batch.put_begun_work(row(kind, subject, 1));
            match self.stamped_store.commit(part.iter().fold(Batch::new(), begin)).await {
                Err(error) if error.is_disk_full() => {
                    tracing::warn!(%error, %kind, "could not count the start of work; it begins all the same");
                }
                counted => drop(counted?),
            }
        }
        Ok(subjects.iter().map(|subject| self.started(kind, subject)).collect())
    }

    fn started(self: &Arc<Self>, kind: RepeatableWork, subject: &str) -> WorkInProgress {
        let key = (kind, subject.to_owned());
        self.state().in_progress.insert(key.clone());
        WorkInProgress { interruptions: Arc::clone(self), key }
    }

    /// Waits until work has ended, so that the next suspect is the only one in progress; at most until then.
    pub async fn wait_for_end(&self, kind: RepeatableWork, subject: &str, until: Instant) {
        let key = (kind, subject.to_owned());
        let mut ended = self.ended.subscribe();
        let has_ended = ended.wait_for(|()| !self.state().in_progress.contains(&key));
        if tokio::time::timeout_at(until, has_ended).await.is_err() {
            tracing::warn!(%kind, subject, "work that was interrupted before takes long; continuing beside it");
        }
    }

    /// Logs and counts work that was given up, once for each daemon, and records an event, once for all.
    async fn report(&self, given_up: &GaveUp, affected: Option<Affected<'_>>) -> Result<(), EngineError> {
        let GaveUp { kind, subject, .. } = given_up;
        if !self.state().reported.insert((*kind, subject.clone())) {
            return Ok(());
        }
        self.counters.work_given_up.add(1);
        tracing::error!(%kind, subject, "{given_up}");
        let Some(Affected { account, sandbox }) = affected else { return Ok(()) };
        let event = NewEvent {
            sandbox: sandbox.clone(),
            account: account.to_owned(),
            run: String::new(),
            at: self.stamped_store.now(),
            kind: EventKind::SandboxError,
            data: json!({ "message": given_up.to_string() }),
            once: Some(format!("gave up {kind} of {subject}")),
        };
        Ok(self.stamped_store.commit(Batch::new().event(event)).await?)
    }

    /// Forgets interruptions, because the subject is another one now or is gone.
    pub async fn forget(&self, kind: RepeatableWork, subject: &str) {
        let key = (kind, subject.to_owned());
        if self.state().found.contains_key(&key) {
            self.remove(vec![key]).await;
        }
    }

    /// Forgets the interruptions of subjects that do not exist any more.
    pub async fn forget_unless(&self, exists: impl Fn(RepeatableWork, &str) -> bool) {
        let is_gone = |(kind, subject): &&WorkKey| !exists(*kind, subject);
        let gone: Vec<WorkKey> = self.state().found.keys().filter(is_gone).cloned().collect();
        self.remove(gone).await;
    }

    /// The daemon has lived through everything. Call it when no task begins or ends work any more.
    pub async fn end_all(&self) {
        let left: Vec<WorkKey> = self.state().in_progress.iter().cloned().collect();
        self.remove(left).await;
    }

    async fn remove(&self, keys: Vec<WorkKey>) {
        for part in keys.chunks(MAX_WRITES) {
            let remove =
                |batch: Batch, (kind, subject): &WorkKey| batch.delete_begun_work(kind.name(), subject);
            if let Err(error) = self.stamped_store.commit(part.iter().fold(Batch::new(), remove)).await {
                tracing::warn!(%error, "could not record the end of work; the next start counts it as interrupted");
            }
            let mut state = self.state();
            for key in part {
                state.found.remove(key);
                state.in_progress.remove(key);
            }
            drop(state);
            self.ended.send_replace(());
        }
    }
}

fn row(kind: RepeatableWork, subject: &str, starts: u32) -> BegunWork {
    BegunWork { kind: kind.name().to_owned(), subject: subject.to_owned(), starts }
}
