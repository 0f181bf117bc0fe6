//! The thread that flushes the event journal shortly after an append, so that many lines share one commit.
//!
//! Lines also move at the start of every other transaction; if they cannot be moved they stay in the journal and are retried.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::journal::Journal;
use crate::{NewEvent, StoreError};

/// How long lines wait for more.
const GATHER: Duration = Duration::from_millis(20);
/// After a commit that failed.
const AGAIN: Duration = Duration::from_secs(1);

/// Whether the lines became events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    All,
    NotYet,
    /// The writer has ended.
    NeverMore,
}

/// The owner of the thread.
#[derive(Debug)]
pub(super) struct Noter {
    journal: Arc<Journal>,
    /// `None` only while it is dropped.
    nudge: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Noter {
    /// `moved` has the writer move the pending lines and returns whether it could.
    pub(super) fn start(
        journal: Arc<Journal>,
        moved: impl Fn() -> Moved + Send + 'static,
    ) -> Result<Self, StoreError> {
        let (nudge, nudges) = sync_channel(1);
        if !journal.is_empty() {
            // Lines that the last process left.
            let _ = nudge.try_send(());
        }
        let thread = Builder::new()
            .name("store-notes".to_owned())
            .spawn(move || run(&nudges, moved))
            .map_err(|error| StoreError::failed("cannot start the store's thread for notes", error))?;
        Ok(Self { journal, nudge: Some(nudge), thread: Some(thread) })
    }

    pub(super) fn note(&self, event: &NewEvent) -> Result<(), StoreError> {
        self.journal.append(event)?;
        if let Some(nudge) = &self.nudge {
            // A pending signal covers this one.
            let _ = nudge.try_send(());
        }
        Ok(())
    }
}

impl Drop for Noter {
    fn drop(&mut self) {
        self.nudge = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread only cost time.
            let _ = thread.join();
        }
    }
}

fn run(nudges: &Receiver<()>, moved: impl Fn() -> Moved) {
    let mut failed = false;
    loop {
        let nudged = if failed { nudges.recv_timeout(AGAIN) } else { nudges.recv().map_err(Into::into) };
        if matches!(nudged, Err(RecvTimeoutError::Disconnected)) {
            return;
        }
        std::thread::sleep(GATHER);
        failed = match moved() {
            Moved::All => false,
            Moved::NotYet => true,
            Moved::NeverMore => return,
        };
    }
}
