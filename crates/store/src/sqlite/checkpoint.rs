//! The thread that moves the WAL into the database file concurrently with the writer, so that no commit waits for it.
//!
//! A failed checkpoint is harmless: the WAL stays, and the next signal retries. A disk error also fails the writer's
//! commits, whose callers get the error.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use rusqlite::Connection;

use super::file;
use crate::StoreError;

/// Batches between two checkpoints: about ten pages each.
const BATCHES: usize = 128;

#[derive(Debug)]
pub(super) struct Checkpointer {
    /// `None` only while it is dropped.
    signal: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    batches: usize,
}

impl Checkpointer {
    pub(super) fn start(path: &Path) -> Result<Self, StoreError> {
        let connection = file::open_checkpointer(path)
            .map_err(|error| error.into_store_error(path, "cannot open the database for checkpoints"))?;
        let (signal, signals) = sync_channel(1);
        let thread = Builder::new()
            .name("store-checkpoint".to_owned())
            .spawn(move || run(&connection, &signals))
            .map_err(|error| StoreError::failed("cannot start the store's checkpoint thread", error))?;
        Ok(Self { signal: Some(signal), thread: Some(thread), batches: 0 })
    }

    /// Counts batches that were written to the WAL.
    pub(super) fn written(&mut self, batches: usize) {
        self.batches += batches;
        if self.batches >= BATCHES {
            self.batches = 0;
            if let Some(signal) = &self.signal {
                // A pending signal covers this one.
                let _ = signal.try_send(());
            }
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

fn run(connection: &Connection, signals: &Receiver<()>) {
    while signals.recv().is_ok() {
        // A failure is harmless; see the module documentation.
        let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    }
}
