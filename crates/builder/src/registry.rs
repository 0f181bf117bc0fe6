//! The templates of all accounts, in memory, with their logs and the builds that run.

pub mod polls;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use api::{TemplateId, TemplateState};
use base::IgnorePoison;
use rules::Quotas;
use tokio_util::sync::CancellationToken;

use crate::error::BuilderError;
use crate::log::BuildLog;
use crate::registry::polls::Polls;
use crate::template::{NewTemplate, SharedTemplate, Template};

/// Most builds of an account that are queued or running.
const MAX_ACTIVE: usize = 20;

/// Guarded by one lock, which is never held across a wait.
#[derive(Debug, Default)]
pub struct Registry(Mutex<BTreeMap<TemplateId, RegisteredTemplate>>);

/// Why a build is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelReason {
    Request,
    /// A newer build has its name and a tag of it.
    Replaced,
    /// The client that waited for it has gone away.
    Abandoned,
}

impl CancelReason {
    /// For the owner of the build.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Request => "the build was cancelled",
            Self::Replaced => {
                "the build was cancelled because a newer one of the same name and tag was started"
            }
            Self::Abandoned => "the build was cancelled because its client no longer waits for it",
        }
    }
}

/// A template with what belongs to it.
#[derive(Debug, Clone)]
pub struct RegisteredTemplate {
    pub template: SharedTemplate,
    pub log: Arc<BuildLog>,
    /// Cancelled when the build is to end.
    pub stop: CancellationToken,
    /// Set before `stop` is cancelled.
    reason: Arc<OnceLock<CancelReason>>,
    pub polls: Arc<Polls>,
    /// Cancelled when the build is over.
    pub ended: CancellationToken,
}

impl RegisteredTemplate {
    /// For a template that was built, or for a build that begins.
    pub fn new(template: Template, log: BuildLog) -> Self {
        let ended = CancellationToken::new();
        if template.state.is_final() {
            ended.cancel();
        }
        Self {
            template: Arc::new(template),
            log: Arc::new(log),
            stop: CancellationToken::new(),
            reason: Arc::default(),
            polls: Arc::new(Polls::new()),
            ended,
        }
    }

    /// Makes the build end. The first reason counts.
    pub fn cancel(&self, reason: CancelReason) {
        self.reason.get_or_init(|| reason);
        self.stop.cancel();
    }

    /// Why the build is to end; `None` if it goes on.
    pub fn cancelled(&self) -> Option<CancelReason> {
        self.reason.get().copied()
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<TemplateId, RegisteredTemplate>> {
        // Every change under the lock is complete before anything can panic.
        self.0.lock().ignore_poison()
    }

    /// Adds a template, or replaces the one with its id.
    pub fn insert(&self, entry: RegisteredTemplate) {
        self.lock().insert(entry.template.id.clone(), entry);
    }

    /// Replaces the template of a build by one with more progress. The tags may have changed since the build began.
    pub fn advance(&self, mut template: Template) {
        if let Some(entry) = self.lock().get_mut(&template.id) {
            template.content.tags.clone_from(&entry.template.content.tags);
            entry.template = Arc::new(template);
        }
    }

    /// Replaces the template of an entry, which another request may have deleted.
    pub fn update(&self, template: SharedTemplate) {
        if let Some(entry) = self.lock().get_mut(&template.id) {
            entry.template = template;
        }
    }

    /// Removes a template whose record is gone.
    pub fn remove(&self, id: &TemplateId) {
        self.lock().remove(id);
    }

    /// The template with this id, if it is one of the account.
    pub fn find(&self, account: &str, id: &TemplateId) -> Result<RegisteredTemplate, BuilderError> {
        let found = self.lock().get(id).filter(|entry| entry.template.account == account).cloned();
        found.ok_or_else(|| BuilderError::NotFound { id: id.to_string() })
    }

    /// The templates of an account, newest first.
    pub fn of_account(&self, account: &str) -> Vec<SharedTemplate> {
        let all = self.lock();
        let own = all.values().map(|entry| &entry.template).filter(|template| template.account == account);
        let mut own: Vec<_> = own.cloned().collect();
        drop(all);
        own.sort_by(|one, two| {
            (two.created_at, two.version, &two.id).cmp(&(one.created_at, one.version, &one.id))
        });
        own
    }

    /// The builds of an account that are over, newest first.
    pub fn finished(&self, account: &str) -> Vec<RegisteredTemplate> {
        let is_finished = |entry: &&RegisteredTemplate| {
            entry.template.account == account && entry.template.state.is_final()
        };
        let mut own: Vec<_> = self.lock().values().filter(is_finished).cloned().collect();
        own.sort_by_key(|entry| Reverse((entry.template.finished_at, entry.template.id.clone())));
        own
    }

    /// Whether an account may have another context of this size for its builds that are not over.
    pub fn check_contexts(&self, account: &str, bytes: u64, allowed_bytes: u64) -> Result<(), BuilderError> {
        let own = self.of_account(account);
        let active = own.iter().filter(|template| !template.state.is_final());
        let used: u64 = active.map(|template| template.content.context_bytes).sum();
        if used.saturating_add(bytes) > allowed_bytes && bytes > 0 {
            return Err(BuilderError::QueuedContexts { used_bytes: used, allowed_bytes });
        }
        Ok(())
    }

    /// The templates of all accounts.
    pub fn all(&self) -> Vec<RegisteredTemplate> {
        self.lock().values().cloned().collect()
    }

    /// The ready template that an image of a create names: `NAME` for the newest, `NAME:VERSION`, `NAME:TAG` or an id.
    pub fn named(&self, account: &str, text: &str) -> Option<SharedTemplate> {
        let is_ready = |template: &SharedTemplate| template.state == TemplateState::Ready;
        let own = self.of_account(account).into_iter().filter(is_ready);
        let newest_of_name = |template: &SharedTemplate| template.name == text;
        let (mut newest, mut exact) = (None::<SharedTemplate>, None);
        for template in own {
            if newest_of_name(&template)
                && newest.as_ref().is_none_or(|newest| newest.version < template.version)
            {
                newest = Some(template);
            } else if exact.is_none() && template.is_named(text) {
                exact = Some(template);
            }
        }
        newest.or(exact)
    }

    /// The builds in progress that a new one replaces. Fails if one of them does the same.
    pub fn replaced_by(
        &self,
        account: &str,
        new: &NewTemplate,
    ) -> Result<Vec<RegisteredTemplate>, BuilderError> {
        let (tags, request) = (new.all_tags(), new.digest());
        let is_replaced = |entry: &&RegisteredTemplate| {
            let Template { account: owner, name, state, content, .. } = &*entry.template;
            let has_tag = content.tags.iter().any(|tag| tags.contains(tag));
            owner == account
                && *name == new.name
                && has_tag
                && !state.is_final()
                && entry.cancelled().is_none()
        };
        let found: Vec<RegisteredTemplate> = self.lock().values().filter(is_replaced).cloned().collect();
        match found.iter().find(|entry| entry.template.content.request.as_ref() == Some(&request)) {
            Some(same) => Err(BuilderError::InProgress { id: same.template.id.clone() }),
            None => Ok(found),
        }
    }

    /// The version of the next build of a name, if the account may have another template. `replaced` builds in progress make room.
    pub fn next_version(
        &self,
        account: &str,
        name: &str,
        quotas: &Quotas,
        replaced: usize,
    ) -> Result<u32, BuilderError> {
        let own = self.of_account(account);
        let active = own.iter().filter(|template| !template.state.is_final()).count();
        let active = active.saturating_sub(replaced);
        if active >= MAX_ACTIVE {
            return Err(BuilderError::TooManyBuilds { active, allowed: MAX_ACTIVE });
        }
        let used = own.len() as u64;
        quotas.create_template(used).map_err(engine::EngineError::from)?;
        let versions = own.iter().filter(|template| template.name == name).map(|template| template.version);
        Ok(versions.max().unwrap_or(0).saturating_add(1))
    }
}

#[cfg(test)]
mod tests;
