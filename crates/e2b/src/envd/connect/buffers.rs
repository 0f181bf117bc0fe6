//! The memory for messages of requests.

use std::sync::Arc;

use admission::memory::{GrowingBody, RequestMemory};

use super::RpcError;

/// Makes buffers for the messages of an account.
#[derive(Clone)]
pub struct Buffers {
    memory: Arc<RequestMemory>,
    account: Arc<str>,
}

impl Buffers {
    pub fn new(memory: &Arc<RequestMemory>, account: &Arc<str>) -> Self {
        Self { memory: Arc::clone(memory), account: Arc::clone(account) }
    }

    /// A buffer for a message of at most `max_bytes`.
    pub fn message(&self, max_bytes: usize) -> GrowingBody {
        self.memory.body(&self.account, max_bytes)
    }
}

/// Appends to a message; fails if there is no memory for it.
pub async fn append(message: &mut GrowingBody, data: &[u8]) -> Result<(), RpcError> {
    message.add(data).await.map_err(RpcError::refused)
}
