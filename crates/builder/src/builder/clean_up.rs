//! Removes what no template needs: sandboxes and files that an earlier daemon has left, old builds and logs, and snapshots of steps.

use std::collections::BTreeSet;
use std::time::Duration;

use api::{SnapshotId, TemplateState};
use base::blocking;
use rules::TimeMs;

use crate::build::step::METADATA;
use crate::builder::{Builder, BuilderState};
use crate::error::BuilderError;
use crate::template::Template;
use crate::template::files;

const INTERVAL: Duration = Duration::from_secs(10 * 60);

impl Builder {
    /// Cleans up now, and from time to time until the builder stops.
    pub async fn clean_up_regularly(self) {
        loop {
            self.clean_up().await;
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// The sandboxes of steps that a daemon before this one has left.
    pub async fn end_step_sandboxes(&self) {
        for entry in self.shared.registry.all() {
            let Template { id, account, name, state, .. } = &*entry.template;
            if state.is_final() {
                continue;
            }
            for record in self.shared.engine.records_of(account) {
                let tag = record.config.metadata.get(METADATA).map(String::as_str);
                if tag != Some(id.as_str()) || record.config.image != *name {
                    continue;
                }
                let ended =
                    self.shared.engine.sandbox(account, &record.id).terminate("build_interrupted").await;
                if let Err(error) = ended {
                    tracing::warn!(sandbox = %record.id, %error, "cannot end the sandbox of an interrupted build");
                }
            }
        }
    }

    /// The files of templates without a record.
    pub async fn remove_unknown_files(&self) -> Result<(), BuilderError> {
        // Not from the registry: it lacks the templates whose records cannot be read.
        let records = self.shared.store.templates().await?;
        let known: BTreeSet<String> = records.into_iter().map(|record| record.id.to_string()).collect();
        let dir = self.shared.settings.dir.clone();
        blocking(move || files::remove_unknown(&dir, &known)).await
    }

    /// Deletes the snapshots of steps that no template of the account needs. A running build may be about to need some.
    pub async fn collect(&self, account: &str) {
        let _creating = self.shared.creating.acquire(account).await;
        let templates = self.list(account);
        if templates.iter().any(|template| !template.state.is_final()) {
            return;
        }
        let is_needed = |id: &SnapshotId| templates.iter().any(|template| template.snapshots.contains(id));
        let steps = self.shared.engine.internal_snapshots(account);
        let unused: Vec<_> = steps.iter().map(|step| step.id.clone()).filter(|id| !is_needed(id)).collect();
        for part in unused.chunks(store::MAX_WRITES) {
            if let Err(error) = self.shared.engine.delete_internal_snapshots(part).await {
                tracing::error!(%error, "cannot delete the snapshots of steps; trying again later");
                return;
            }
        }
    }

    /// Removes the oldest logs of an account's finished builds that have too many bytes together.
    pub async fn trim_logs(&self, account: &str) {
        let BuilderState { registry, settings, .. } = &*self.shared;
        if settings.log_bytes == 0 {
            return;
        }
        let mut logs: Vec<_> = registry.finished(account).into_iter().map(|entry| entry.log).collect();
        let mut bytes = 0;
        logs.retain(|log| is_beyond(&mut bytes, log.file_bytes(), settings.log_bytes));
        let removing = blocking(move || logs.iter().try_for_each(|log| log.remove()));
        if let Err(error) = removing.await {
            tracing::error!(account, %error, "cannot remove old logs of builds; trying again later");
        }
    }

    /// Deletes failed and cancelled builds after a while, and snapshots that a crash has left.
    async fn clean_up(&self) {
        let BuilderState { registry, contexts, settings, engine, .. } = &*self.shared;
        contexts.expire(engine.now());
        let mut accounts = BTreeSet::new();
        for entry in registry.all() {
            let template = &entry.template;
            if is_expired(template, settings.retention_ms, engine.now())
                && let Err(error) = self.delete(&template.account, &template.id).await
            {
                tracing::error!(template = %template.id, %error, "cannot delete an old build");
            }
            accounts.insert(template.account.clone());
        }
        for account in accounts {
            self.trim_logs(&account).await;
            self.collect(&account).await;
        }
    }
}

/// Whether a build without a result is deleted. `retention_ms` is 0 for never.
fn is_expired(template: &Template, retention_ms: u64, now: TimeMs) -> bool {
    let is_over = matches!(template.state, TemplateState::Failed | TemplateState::Cancelled);
    let is_old = template.finished_at.is_some_and(|time| time < now.before(retention_ms));
    retention_ms > 0 && is_over && is_old
}

/// Whether a log is removed, after newer ones with `bytes` together. An empty one is removed already.
fn is_beyond(bytes: &mut u64, log_bytes: u64, allowed_bytes: u64) -> bool {
    *bytes += log_bytes;
    *bytes > allowed_bytes && log_bytes > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::tests::template;

    #[test]
    fn builds_without_a_result_are_deleted_after_a_while() {
        let ended = |state| Template { finished_at: Some(TimeMs(10_000)), ..template(1, 1, state) };
        for state in TemplateState::ALL {
            let expected = matches!(state, TemplateState::Failed | TemplateState::Cancelled);
            assert_eq!(is_expired(&ended(state), 500, TimeMs(10_501)), expected, "{}", state.name());
        }
        let failed = ended(TemplateState::Failed);
        assert!(!is_expired(&failed, 500, TimeMs(10_500)));
        assert!(!is_expired(&failed, 0, TimeMs(u64::MAX)), "never");
        // A record without the time of its end is kept.
        assert!(!is_expired(&template(1, 1, TemplateState::Failed), 500, TimeMs(u64::MAX)));
    }

    #[test]
    fn the_newest_logs_are_kept_as_long_as_they_fit_together() {
        let removed = |sizes: &[u64]| {
            let mut bytes = 0;
            sizes.iter().map(|size| is_beyond(&mut bytes, *size, 100)).collect::<Vec<_>>()
        };
        assert_eq!(removed(&[60, 40]), [false, false]);
        assert_eq!(removed(&[60, 41, 1]), [false, true, true]);
        assert_eq!(removed(&[101, 0, 1]), [true, false, true]);
    }
}
