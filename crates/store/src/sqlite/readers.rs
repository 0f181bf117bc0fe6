//! The pool of read-only connections. A read uses one of them on a blocking thread of the runtime and returns it.
//!
//! A read whose future is dropped still completes and returns its connection. A read that panics loses its connection; the next read
//! opens another.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::error::Outcome;
use super::file;
use crate::StoreError;

/// Limit of concurrent reads. Most reads take microseconds and are bound by the CPU, so more connections do not help.
const READERS: u32 = 4;

#[derive(Debug)]
pub(super) struct Readers {
    path: Arc<PathBuf>,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(super) fn new(path: Arc<PathBuf>) -> Self {
        Self { path, permits: Arc::new(Semaphore::new(READERS as usize)), idle: Arc::default() }
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        step: &'static str,
        work: impl FnOnce(&mut Connection) -> Outcome<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (idle, path) = (Arc::clone(&self.idle), Arc::clone(&self.path));
        let task = tokio::task::spawn_blocking(move || {
            let found = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let result = found.map_or_else(|| file::open_reader(&path), Ok).and_then(|mut connection| {
                let result = work(&mut connection);
                idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
                result
            });
            drop(permit);
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
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
