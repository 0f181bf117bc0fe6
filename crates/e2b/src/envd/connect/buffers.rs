//! The memory for messages of requests.

use std::sync::Arc;

use super::RpcError;
use crate::services::BodyBuffer;

/// Makes buffers for the messages of an account.
#[derive(Clone)]
pub struct Buffers(Arc<dyn Fn(usize) -> Box<dyn BodyBuffer> + Send + Sync>);

impl Buffers {
    /// `make` makes a buffer for a message of a greatest length.
    pub fn new(make: impl Fn(usize) -> Box<dyn BodyBuffer> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    /// A buffer for a message of at most `max_bytes`.
    pub fn message(&self, max_bytes: usize) -> Box<dyn BodyBuffer> {
        (self.0)(max_bytes)
    }
}

/// Appends to a message; fails if there is no memory for it.
pub async fn append(message: &mut Box<dyn BodyBuffer>, data: &[u8]) -> Result<(), RpcError> {
    message.add(data).await.map_err(RpcError::refused)
}
