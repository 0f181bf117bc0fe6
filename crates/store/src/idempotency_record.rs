//! Idempotency records. Plain data, with [`IdempotencyRecord::check`].

use rules::TimeMs;

/// The maximum size of a stored response: more than two outputs of 16 MiB with all bytes escaped.
pub const MAX_RESPONSE: usize = 256 * 1024 * 1024;

/// The maximum length of account, endpoint and key.
const TEXT_BYTES: usize = 255;

/// Bytes that are stored for an account: contents as stored, and 512 for each record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredBytes {
    /// Idempotency records.
    pub idempotency: u64,
    /// Events of the service.
    pub events: u64,
    /// Events that clients posted.
    pub posted_events: u64,
}

/// The response to a request with an idempotency key.
#[derive(Clone, PartialEq, Eq)]
pub struct IdempotencyRecord {
    pub account: String,
    /// The scope of the key: one endpoint, such as `POST /v1/sandboxes`.
    pub endpoint: String,
    pub key: String,
    /// Identifies a repeat of the same request.
    pub request_hash: [u8; 32],
    pub status: u16,
    pub content: Vec<u8>,
    pub created_at: TimeMs,
    /// Expired from then on.
    pub expires_at: TimeMs,
}

impl IdempotencyRecord {
    /// Whether the key may be used for another request.
    pub fn is_expired(&self, now: TimeMs) -> bool {
        self.expires_at <= now
    }

    /// Whether it can be stored, or why not.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if [&self.account, &self.endpoint, &self.key].into_iter().any(|text| text.len() > TEXT_BYTES) {
            return Err("its account, endpoint or key has more than 255 bytes");
        }
        if self.content.len() > MAX_RESPONSE {
            return Err("it has more than 256 MiB");
        }
        if !(100..=599).contains(&self.status) {
            return Err("its status is not an HTTP status");
        }
        if self.expires_at <= self.created_at {
            return Err("it expires before it is created");
        }
        if i64::try_from(self.expires_at.0).is_err() {
            return Err("one of its times exceeds 63 bits");
        }
        Ok(())
    }
}

impl std::fmt::Debug for IdempotencyRecord {
    /// Without the content, which contains its owner's environment.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { account, endpoint, key, status, content, created_at, expires_at, .. } = self;
        f.debug_struct("IdempotencyRecord")
            .field("account", account)
            .field("endpoint", endpoint)
            .field("key", key)
            .field("status", status)
            .field("content_bytes", &content.len())
            .field("created_at", created_at)
            .field("expires_at", expires_at)
            .finish_non_exhaustive()
    }
}
