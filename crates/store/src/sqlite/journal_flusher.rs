//! The thread that flushes the event journal shortly after an append, so that many lines share one commit.
//!
//! Each transaction of the writer moves pending lines first; lines that cannot be moved stay in the journal and are
//! retried.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::journal::Journal;
use crate::{NewEvent, StoreError};

/// How long the flusher waits for further lines.
const GATHER_TIME: Duration = Duration::from_millis(20);
/// Delay after a failed commit.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Whether the lines became events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    All,
    Pending,
    /// The writer has ended.
    WriterEnded,
}

/// The owner of the thread.
#[derive(Debug)]
pub(super) struct JournalFlusher {
    journal: Arc<Journal>,
    /// `None` only while it is dropped.
    signal: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl JournalFlusher {
    /// `move_lines` makes the writer move the pending lines and returns the result.
    pub(super) fn start(
        journal: Arc<Journal>,
        move_lines: impl Fn() -> Moved + Send + 'static,
    ) -> Result<Self, StoreError> {
        let (signal, signals) = sync_channel(1);
        if !journal.is_empty() {
            // The last process left lines.
            let _ = signal.try_send(());
        }
        let thread =
            Builder::new()
                .name("store-notes".to_owned())
                .spawn(move || run(&signals, move_lines))
                .map_err(|error| StoreError::failed("cannot start the thread of the event journal", error))?;
        Ok(Self { journal, signal: Some(signal), thread: Some(thread) })
    }

    pub(super) fn append(&self, event: &NewEvent) -> Result<(), StoreError> {
        self.journal.append(event)?;
        if let Some(signal) = &self.signal {
            // A pending signal covers this one.
            let _ = signal.try_send(());
        }
        Ok(())
    }
}

impl Drop for JournalFlusher {
    fn drop(&mut self) {
        self.signal = None;
        if let Some(thread) = self.thread.take() {
            // After a panic of the thread the writer still moves lines.
            let _ = thread.join();
        }
    }
}

fn run(signals: &Receiver<()>, move_lines: impl Fn() -> Moved) {
    let mut failed = false;
    loop {
        let nudged =
            if failed { signals.recv_timeout(RETRY_DELAY) } else { signals.recv().map_err(Into::into) };
        if matches!(nudged, Err(RecvTimeoutError::Disconnected)) {
            return;
        }
        std::thread::sleep(GATHER_TIME);
        failed = match move_lines() {
            Moved::All => false,
            Moved::Pending => true,
            Moved::WriterEnded => return,
        };
    }
}
