//! Coalesced pulls: callers of the same image share one task. [`ActivePulls`] owns the task; callers hold a receiver
//! of its result.

use std::collections::HashMap;
use std::sync::Arc;

use base::IgnorePoison;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::ImagesState;
use crate::client::{ClientPull, NamedBy, PULLS_OF_ACCOUNT};
use crate::error::ImageError;
use crate::image::Image;
use crate::job::Builds;
use crate::progress::{Meter, ProgressFn, PullReport};
use crate::source::ImageSource;

type Result<T> = std::result::Result<T, ImageError>;

/// The request of a pull. Callers with the same key share one pull.
#[derive(Clone)]
pub(super) struct Task {
    pub(super) name: String,
    pub(super) sources: Vec<ImageSource>,
    pub(super) builds: Builds,
    pub(super) named_by: NamedBy,
    /// What the pull is charged to, if a client has caused it.
    pub(super) client: Option<ClientPull>,
    key: String,
}

impl Task {
    pub(super) fn new(name: &str, sources: Vec<ImageSource>, builds: Builds) -> Self {
        let key = name.to_owned();
        let (name, client) = (name.to_owned(), None);
        Self { name, sources, builds, named_by: NamedBy::Operator, client, key }
    }

    /// The key of an import differs from that of a pull of the same name, because a name cannot contain a space. Imports of the operator
    /// and of clients have different keys, too: they may connect to different addresses.
    pub(super) fn import(name: &str, source: ImageSource, named_by: NamedBy) -> Self {
        let key = match named_by {
            NamedBy::Operator => format!("{name} {source}"),
            NamedBy::Client => format!("{name} {source} of a client"),
        };
        let (name, sources) = (name.to_owned(), vec![source]);
        Self { name, sources, builds: Builds::Renew, named_by, client: None, key }
    }

    /// An image that a client has named by its reference. Another process may have pulled it.
    pub(super) fn for_client(name: &str, source: ImageSource, client: ClientPull) -> Self {
        let (builds, client) = (Builds::Reuse, Some(client));
        Self { builds, client, ..Self::import(name, source, NamedBy::Client) }
    }

    fn account(&self) -> Option<&Arc<str>> {
        self.client.as_ref().map(|client| &client.account)
    }
}

#[derive(Clone)]
struct ActivePull {
    meter: Arc<Meter>,
    /// Of a client.
    account: Option<Arc<str>>,
    result: watch::Receiver<Option<Result<Arc<Image>>>>,
}

/// The pulls in progress.
#[derive(Default)]
pub(super) struct ActivePulls {
    by_key: HashMap<String, ActivePull>,
    tasks: JoinSet<()>,
}

impl ActivePulls {
    /// The progress of each pull.
    pub(super) fn progress(&self) -> Vec<PullReport> {
        self.by_key.values().map(|pull| pull.meter.now()).collect()
    }

    fn count_of(&self, account: &str) -> usize {
        self.by_key.values().filter(|pull| pull.account.as_deref() == Some(account)).count()
    }

    pub(super) fn take_tasks(&mut self) -> JoinSet<()> {
        self.by_key.clear();
        std::mem::take(&mut self.tasks)
    }
}

impl ImagesState {
    /// Joins the active pull with this key or starts it, and waits for its end.
    pub(super) async fn join_or_start(
        self: &Arc<Self>,
        task: Task,
        progress: ProgressFn,
    ) -> Result<Arc<Image>> {
        let name = task.name.clone();
        let pull = self.join(task, progress)?;
        let mut result = pull.result;
        let result_of_pull = result.wait_for(Option::is_some).await.ok().and_then(|result| result.clone());
        result_of_pull
            .unwrap_or_else(|| Err(ImageError::store(format!("fetch {name}"), "the service is stopping")))
    }

    fn join(self: &Arc<Self>, task: Task, progress: ProgressFn) -> Result<ActivePull> {
        let mut active_pulls = self.active_pulls.lock().ignore_poison();
        while active_pulls.tasks.try_join_next().is_some() {}
        if let Some(pull) = active_pulls.by_key.get(&task.key) {
            // The next report may be far away.
            progress(pull.meter.now());
            pull.meter.listen(progress);
            return Ok(pull.clone());
        }
        let account = task.account().cloned();
        if account.as_deref().is_some_and(|account| active_pulls.count_of(account) >= PULLS_OF_ACCOUNT) {
            return Err(ImageError::TooManyPulls { allowed: PULLS_OF_ACCOUNT });
        }
        let (publish, result) = watch::channel(None);
        let pull = ActivePull { meter: Arc::new(Meter::new(&task.name)), account, result };
        pull.meter.listen(progress);
        active_pulls.by_key.insert(task.key.clone(), pull.clone());
        let remove_on_drop = RemoveOnDrop { inner: self.clone(), key: task.key.clone() };
        let meter = pull.meter.clone();
        active_pulls.tasks.spawn(async move {
            let result_of_pull = remove_on_drop.inner.fetch(&task, &meter).await;
            // Removes the pull before publishing its result: later callers find the image in the cache, or start
            // another pull.
            drop(remove_on_drop);
            publish.send_replace(Some(result_of_pull));
        });
        Ok(pull)
    }
}

/// Removes the pull from the list, also if its task panics.
struct RemoveOnDrop {
    inner: Arc<ImagesState>,
    key: String,
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        self.inner.active_pulls.lock().ignore_poison().by_key.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_request_shares_a_pull() {
        let source = || "ghcr.io/a/b:1".parse::<ImageSource>().unwrap();
        let other = || "ghcr.io/a/b:2".parse::<ImageSource>().unwrap();
        let import = |source, named_by| Task::import("web", source, named_by);
        let keys = [
            Task::new("web", vec![source()], Builds::Reuse).key,
            import(source(), NamedBy::Operator).key,
            import(source(), NamedBy::Client).key,
            import(other(), NamedBy::Operator).key,
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{key}");
        }
        assert_eq!(import(source(), NamedBy::Client).key, keys[2]);
        let again = Task::new("web", vec![other()], Builds::Renew);
        assert_eq!(again.key, keys[0], "a name of the catalogue is pulled once, whatever its sources are");
        assert!(again.account().is_none());
    }
}
