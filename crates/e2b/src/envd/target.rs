//! The sandbox that a request is for, and who may use it.

use std::sync::Arc;

use admission::keyring::Caller;
use admission::output_memory::OutputReservation;
use api::{SandboxId, SandboxState};
use axum::http::HeaderMap;
use engine::{EngineError, SandboxError, SandboxHandle};
use rules::Scope;
use service::Service;
use store::SandboxRecord;

use super::auth::{Grant, SentToken, TokenCheck, sent_token};
use super::connect::Buffers;
use crate::run_defaults::RunDefaults;
use crate::tokens::{self, Tokens};

/// A sandbox of an account, as the router of host names found it.
#[derive(Clone)]
pub struct Target {
    pub service: Arc<Service>,
    pub account: Arc<str>,
    pub id: SandboxId,
    /// The id as clients know it.
    pub shown_id: String,
    /// Makes the tokens of which requests must have one. `None` if its owner asked for an open sandbox.
    pub tokens: Option<Tokens>,
    /// For requests that name no user or no directory.
    pub defaults: RunDefaults,
}

impl Target {
    pub fn sandbox(&self) -> SandboxHandle<'_> {
        self.service.engine.sandbox(&self.account, &self.id)
    }

    /// Checks the access token of a request.
    pub fn check_token(&self, headers: &HeaderMap) -> TokenCheck {
        let Some(tokens) = &self.tokens else { return TokenCheck::Valid(Grant::Open) };
        match sent_token(headers) {
            SentToken::Missing => TokenCheck::Missing,
            SentToken::Malformed => TokenCheck::Wrong,
            SentToken::One(text) => {
                let keys = self.keys();
                tokens::key_of(text, &keys, |key_id| tokens.access(&self.id, key_id))
                    .map_or(TokenCheck::Wrong, |key| TokenCheck::Valid(Grant::Key(Arc::clone(&key.key_id))))
            }
        }
    }

    /// The access tokens that are valid now; none for an open sandbox.
    pub fn valid_tokens(&self) -> Vec<String> {
        let Some(tokens) = &self.tokens else { return Vec::new() };
        self.keys().iter().map(|key| tokens.access(&self.id, &key.key_id)).collect()
    }

    /// Whether a grant still holds. It ends with its key.
    pub fn allows(&self, grant: &Grant) -> bool {
        match grant {
            Grant::Open => true,
            Grant::Key(id) => self.keys().iter().any(|key| key.key_id == *id),
        }
    }

    /// The valid keys whose holders get access tokens.
    fn keys(&self) -> Vec<Caller> {
        let mut keys = self.service.gate.keyring.of_account(&self.account);
        keys.retain(|key| key.scopes.allows(Scope::Execute));
        keys
    }

    /// The memory for messages of requests.
    pub fn buffers(&self) -> Buffers {
        Buffers::new(&self.service.gate.request_memory, &self.account)
    }

    /// The memory for a response that is collected.
    pub fn response_memory(&self) -> OutputReservation {
        self.service.gate.output_memory.response(&self.account)
    }

    /// Resumes the sandbox if it is paused and its options allow that.
    pub async fn resume_if_paused(&self) {
        let record = self.service.engine.record(&self.id);
        let may_resume =
            |record: &SandboxRecord| record.state() == SandboxState::Paused && record.config.auto_resume;
        if !record.is_some_and(|record| may_resume(&record)) {
            return;
        }
        if let Err(error) = self.sandbox().resume().await {
            // Another request may have resumed it.
            tracing::debug!(%error, "a request did not resume its sandbox");
        }
    }

    /// False if the sandbox was terminated.
    pub async fn exists(&self) -> bool {
        !matches!(self.sandbox().status().await, Err(EngineError::Sandbox(SandboxError::NotFound { .. })))
    }
}
