//! Work that waits for the disk or takes long, on threads for it.

use tokio_util::sync::CancellationToken;

use crate::error::BuilderError;

/// Runs work that waits for the disk.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BuilderError> + Send + 'static,
) -> Result<T, BuilderError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| BuilderError::Stopping)?
}

/// Runs work that may take long. Its token is cancelled when nobody waits for the result any more, and it ends soon after that.
pub async fn interruptible<T: Send + 'static>(
    work: impl FnOnce(&CancellationToken) -> Result<T, BuilderError> + Send + 'static,
) -> Result<T, BuilderError> {
    let token = CancellationToken::new();
    let _interrupts = token.clone().drop_guard();
    blocking(move || work(&token)).await
}
