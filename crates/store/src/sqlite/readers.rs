//! The pool of read-only connections. A read uses one of them on a blocking thread of the runtime and returns it. Accounts get them in
//! turn, so that one with many reads that take long does not delay those of others.
//!
//! A read whose future is dropped still completes and returns its connection. A read that panics loses its connection; the next read
//! opens another.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use base::IgnorePoison;
use permits::TurnPermits;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::error::SqliteResult;
use super::file;
use crate::StoreError;

/// Limit of concurrent reads. Most reads take microseconds and are bound by the CPU, so more connections do not help.
const READERS: u32 = 4;
/// Stands for the account of reads of the service itself.
pub(super) const SERVICE: &str = "";

#[derive(Debug)]
pub(super) struct Readers {
    path: Arc<PathBuf>,
    /// Decides whose read is next.
    turns: TurnPermits,
    /// As many as `turns` has. Only so that the pool can wait for all reads when it is closed, and refuse later ones.
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(super) fn new(path: Arc<PathBuf>) -> Self {
        let (turns, permits) = (TurnPermits::new(READERS as usize), Semaphore::new(READERS as usize));
        Self { path, turns, permits: Arc::new(permits), idle: Arc::default() }
    }

    /// Reads for an account.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        account: &str,
        step: &'static str,
        work: impl FnOnce(&mut Connection) -> SqliteResult<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let turn = self.turns.acquire(account).await;
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (idle, path) = (Arc::clone(&self.idle), Arc::clone(&self.path));
        let task = tokio::task::spawn_blocking(move || {
            let found = idle.lock().ignore_poison().pop();
            let result = found.map_or_else(|| file::open_reader(&path), Ok).and_then(|mut connection| {
                let result = work(&mut connection);
                idle.lock().ignore_poison().push(connection);
                result
            });
            drop((permit, turn));
            result.map_err(|error| error.into_store_error(&path, step))
        });
        task.await.map_err(|error| StoreError::failed(step, error))?
    }

    /// Waits for active reads and closes their connections.
    pub(super) async fn close(&self) {
        // Fails if it is already closed; then there is nothing to wait for.
        if let Ok(all) = self.permits.acquire_many(READERS).await {
            self.permits.close();
            drop(all);
        }
        self.idle.lock().ignore_poison().clear();
    }
}
