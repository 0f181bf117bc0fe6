//! The text that a client passes with the start of an execution, as its first input. The text may be long and the command may never
//! read it, so it stays on disk and is read in pieces.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

use super::record::StdinText;
use crate::link::DetachedInput;

/// The delay before a failed read is repeated.
const RETRY: Duration = Duration::from_secs(1);

/// The text, and the lock that keeps other input back until it is sent.
pub struct InitialStdin {
    text: Arc<StdinText>,
    _lock: OwnedMutexGuard<()>,
}

impl InitialStdin {
    /// `None` if there is no text.
    pub async fn open(dir: PathBuf, lock: OwnedMutexGuard<()>) -> Option<Self> {
        let text = retry(move || StdinText::open(&dir)).await?;
        Some(Self { text: Arc::new(text), _lock: lock })
    }

    pub fn is_sent(&self, received: u64) -> bool {
        received >= self.text.bytes
    }

    /// Sends the text behind the first `received` bytes. Does not resolve if the command accepts no more input: the log writer
    /// learns of that from the command's events.
    pub fn send(&self, input: DetachedInput, received: u64) -> impl Future<Output = ()> + use<> {
        let text = Arc::clone(&self.text);
        async move {
            let mut at = received;
            while at < text.bytes {
                let from = Arc::clone(&text);
                let piece = retry(move || from.read(at)).await;
                if input.write_all(&piece).await.is_err() {
                    std::future::pending::<()>().await;
                }
                at += piece.len() as u64;
            }
        }
    }
}

/// Reads from disk until it succeeds.
async fn retry<T: Send + 'static>(read: impl Fn() -> io::Result<T> + Clone + Send + 'static) -> T {
    loop {
        match tokio::task::spawn_blocking(read.clone()).await {
            Ok(Ok(value)) => return value,
            Ok(Err(error)) => tracing::error!(%error, "could not read the stdin of an execution; retrying"),
            Err(error) => tracing::error!(%error, "the thread that reads the stdin of an execution failed"),
        }
        tokio::time::sleep(RETRY).await;
    }
}
