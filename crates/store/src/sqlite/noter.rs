//! The thread that has the writer move notes a moment after they came, so that many share one commit.
//!
//! It owns nothing that matters: notes also move at the head of every other transaction, and where they cannot be moved they
//! stay in the journal and are tried again.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::journal::Journal;
use crate::{NewEvent, StoreError};

/// How long notes wait for more.
const GATHER: Duration = Duration::from_millis(20);
/// After a commit that failed.
const AGAIN: Duration = Duration::from_secs(1);

/// Whether notes became events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    All,
    NotYet,
    /// The writer is gone.
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
    /// `moved` has the writer move what waits, and answers whether it could.
    pub(super) fn start(
        journal: Arc<Journal>,
        moved: impl Fn() -> Moved + Send + 'static,
    ) -> Result<Self, StoreError> {
        let (nudge, nudges) = sync_channel(1);
        if !journal.is_empty() {
            // What the last process left.
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
            // A nudge that waits already stands for this one too.
            let _ = nudge.try_send(());
        }
        Ok(())
    }
}

impl Drop for Noter {
    fn drop(&mut self) {
        self.nudge = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread cost nothing but time.
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
