//! Responses that are stored for a repetition of their request.

use rules::TimeMs;
use store::{IdempotencyRecord, SandboxRecord};

/// Builds the status and the body of the response from what was created.
pub type BuildResponse<T = SandboxRecord> = Box<dyn FnOnce(&T) -> (u16, Vec<u8>) + Send>;

/// The idempotency record of a create. It is committed together with the record of what is created: after a crash both exist or
/// neither.
pub struct PendingIdempotencyRecord<T = SandboxRecord> {
    pub endpoint: String,
    pub key: String,
    pub request_hash: [u8; 32],
    pub expires_at: TimeMs,
    /// Called with the record that is about to be committed.
    pub respond: BuildResponse<T>,
}

impl<T> PendingIdempotencyRecord<T> {
    pub fn complete(self, account: &str, created_at: TimeMs, created: &T) -> IdempotencyRecord {
        let (status, content) = (self.respond)(created);
        IdempotencyRecord {
            account: account.to_owned(),
            endpoint: self.endpoint,
            key: self.key,
            request_hash: self.request_hash,
            status,
            content,
            created_at,
            expires_at: self.expires_at,
        }
    }
}
