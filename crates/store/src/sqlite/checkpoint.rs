//! The thread that moves the WAL into the database file concurrently with the writer, so that no commit waits for it. Until the
//! WAL has its full length, it also makes it longer ahead of the writer.
//!
//! A failure of either is harmless: the WAL stays, and the next signal retries. A disk error also fails the writer's
//! commits, whose callers get the error.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use rusqlite::Connection;

use super::{file, wal};
use crate::StoreError;

/// Batches between two signals: about ten pages each.
const BATCHES_PER_SIGNAL: usize = 32;
/// Batches between two checkpoints.
const BATCHES: usize = 128;

#[derive(Debug)]
pub(super) struct Checkpointer {
    /// `None` only while it is dropped.
    signal: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    /// All that were written.
    batches: Arc<AtomicUsize>,
}

impl Checkpointer {
    pub(super) fn start(path: &Path) -> Result<Self, StoreError> {
        let connection = file::open_checkpointer(path)
            .map_err(|error| error.into_store_error(path, "cannot open the database for checkpoints"))?;
        let (signal, signals) = sync_channel(1);
        let batches = Arc::<AtomicUsize>::default();
        let written = Arc::clone(&batches);
        let thread = Builder::new()
            .name("store-checkpoint".to_owned())
            .spawn(move || run(&connection, &signals, &written))
            .map_err(|error| StoreError::failed("cannot start the store's checkpoint thread", error))?;
        Ok(Self { signal: Some(signal), thread: Some(thread), batches })
    }

    /// Counts batches that were written to the WAL.
    pub(super) fn written(&self, batches: usize) {
        let before = self.batches.fetch_add(batches, Ordering::Relaxed);
        let is_due = (before + batches) / BATCHES_PER_SIGNAL > before / BATCHES_PER_SIGNAL;
        if let Some(signal) = self.signal.as_ref().filter(|_| is_due) {
            // A pending signal covers this one.
            let _ = signal.try_send(());
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.signal = None;
        if let Some(thread) = self.thread.take() {
            // After a panic of the thread only checkpoints are missing.
            let _ = thread.join();
        }
    }
}

fn run(connection: &Connection, signals: &Receiver<()>, written: &AtomicUsize) {
    let mut moved = 0;
    while signals.recv().is_ok() {
        // Failures are harmless; see the module documentation.
        let _ = wal::reserve(connection);
        let batches = written.load(Ordering::Relaxed);
        if batches - moved >= BATCHES {
            moved = batches;
            let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        }
    }
}
