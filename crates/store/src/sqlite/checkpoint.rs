//! The thread that moves the WAL into the database file, beside the writer, so that no commit waits for it.
//!
//! A failed checkpoint is harmless: the WAL stays, and the next signal tries again; a broken disk also fails the writer's commits, whose
//! callers get the error.

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
    nudge: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    batches: usize,
}

impl Checkpointer {
    pub(super) fn start(path: &Path) -> Result<Self, StoreError> {
        let connection = file::open_checkpointer(path)
            .map_err(|trouble| trouble.explain(path, "cannot open the database for checkpoints"))?;
        let (nudge, nudges) = sync_channel(1);
        let thread = Builder::new()
            .name("store-checkpoint".to_owned())
            .spawn(move || run(&connection, &nudges))
            .map_err(|error| StoreError::failed("cannot start the store's checkpoint thread", error))?;
        Ok(Self { nudge: Some(nudge), thread: Some(thread), batches: 0 })
    }

    /// Counts batches that were written to the WAL.
    pub(super) fn written(&mut self, batches: usize) {
        self.batches += batches;
        if self.batches >= BATCHES {
            self.batches = 0;
            if let Some(nudge) = &self.nudge {
                // A pending signal covers this one.
                let _ = nudge.try_send(());
            }
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.nudge = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread only cost checkpoints.
            let _ = thread.join();
        }
    }
}

fn run(connection: &Connection, nudges: &Receiver<()>) {
    while nudges.recv().is_ok() {
        // A failure is harmless; see the module documentation.
        let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    }
}
