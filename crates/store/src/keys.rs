//! API keys as they are stored. Plain data, with [`KeyRecord::check`].

use rules::{KeyLimits, TimeMs};

/// The maximum length of each text of a key.
const TEXT_BYTES: usize = 255;

/// An API key. Its text is not stored: the database contains no usable key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// `key_` and 12 characters, chosen by the caller.
    pub id: String,
    /// SHA-256 of the whole text of the key.
    pub hash: [u8; 32],
    pub account: String,
    /// In the form of `rules::Scopes`: `read,execute`.
    pub scopes: String,
    /// The label that its creator chose.
    pub name: Option<String>,
    /// The first characters of the text, so that users can identify it.
    pub prefix_hint: String,
    pub created_at: TimeMs,
    pub revoked_at: Option<TimeMs>,
    /// From then on the key is not valid.
    pub expires_at: Option<TimeMs>,
    pub limits: KeyLimits,
}

impl KeyRecord {
    /// Whether it can be stored, or why not.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let texts = [&self.id, &self.account, &self.scopes, &self.prefix_hint];
        if texts.into_iter().chain(&self.name).any(|text| text.len() > TEXT_BYTES) {
            return Err("one of its texts has more than 255 bytes");
        }
        if self.id.is_empty() || self.account.is_empty() {
            return Err("its id and its account must not be empty");
        }
        let times = [Some(self.created_at), self.revoked_at, self.expires_at];
        if times.into_iter().flatten().any(|at| i64::try_from(at.0).is_err()) {
            return Err("one of its times exceeds 63 bits");
        }
        Ok(())
    }
}
