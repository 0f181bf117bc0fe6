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
