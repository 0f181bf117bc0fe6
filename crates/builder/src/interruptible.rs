//! Work that takes long, on a thread for it.

use base::blocking;
use tokio_util::sync::CancellationToken;

use crate::error::BuilderError;

/// Runs work that may take long. Its token is cancelled when nobody waits for the result any more, and it ends soon after that.
pub async fn interruptible<T: Send + 'static>(
    work: impl FnOnce(&CancellationToken) -> Result<T, BuilderError> + Send + 'static,
) -> Result<T, BuilderError> {
    let token = CancellationToken::new();
    let _interrupts = token.clone().drop_guard();
    blocking(move || work(&token)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn work_that_is_awaited_is_not_interrupted() {
        let done = interruptible(|token| Ok(token.is_cancelled())).await;
        assert!(!done.unwrap());
        let failed = interruptible(|_| Err::<(), _>(BuilderError::Stopping)).await;
        assert!(matches!(failed, Err(BuilderError::Stopping)));
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_is_told_so() {
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (ended, has_ended) = mpsc::channel();
        let work = tokio::spawn(interruptible(move |token| {
            begun.send(()).unwrap();
            while !token.is_cancelled() {
                std::thread::yield_now();
            }
            ended.send(()).unwrap();
            Ok(())
        }));
        has_begun.await.unwrap();
        work.abort();
        assert!(work.await.unwrap_err().is_cancelled());
        has_ended.recv().unwrap();
    }
}
