//! The text that an execution began with, on its way to the command. It may be long and the command may never read it, so it stays
//! on disk and is read by pieces, as they are taken.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

use crate::detached::record::StdinText;
use crate::link::DetachedInput;

/// What could not be read is tried again after so long.
const AGAIN: Duration = Duration::from_secs(1);

/// What is fed first, and the right to write until it is.
pub struct InitialStdin {
    text: Arc<StdinText>,
    _turn: OwnedMutexGuard<()>,
}

impl InitialStdin {
    /// `None` where there is none.
    pub async fn open(dir: PathBuf, stdin_lock: OwnedMutexGuard<()>) -> Option<Self> {
        let text = persist(move || StdinText::open(&dir)).await?;
        Some(Self { text: Arc::new(text), _turn: stdin_lock })
    }

    pub fn is_fed(&self, fed: u64) -> bool {
        fed >= self.text.bytes
    }

    /// Feeds what is left of it after so many bytes. Does not end where the input takes no more: that is heard elsewhere, and is
    /// not the end of the text.
    pub fn feed(&self, input: DetachedInput, fed: u64) -> impl Future<Output = ()> + use<> {
        let text = Arc::clone(&self.text);
        async move {
            let mut at = fed;
            while at < text.bytes {
                let from = Arc::clone(&text);
                let piece = persist(move || from.read(at)).await;
                if input.write_all(&piece).await.is_err() {
                    std::future::pending::<()>().await;
                }
                at += piece.len() as u64;
            }
        }
    }
}

/// What the disk says when it can.
async fn persist<T: Send + 'static>(ask: impl Fn() -> io::Result<T> + Clone + Send + 'static) -> T {
    loop {
        match tokio::task::spawn_blocking(ask.clone()).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(error)) => tracing::error!(%error, "could not read what an execution is fed; it waits"),
            Err(error) => tracing::error!(%error, "lost a thread that reads what an execution is fed"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}
