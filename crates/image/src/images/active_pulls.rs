//! Coalesced pulls: callers of the same image share one task. [`ActivePulls`] owns the task; callers hold a receiver
//! of its result.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Inner;
use crate::error::ImageError;
use crate::image::Image;
use crate::job::Builds;
use crate::oci::NamedBy;
use crate::progress::{Meter, Progress, ProgressFn};
use crate::source::Source;

type Result<T> = std::result::Result<T, ImageError>;

/// The request of a pull. Callers with the same key share one pull.
#[derive(Clone)]
pub(super) struct Task {
    pub(super) name: String,
    pub(super) sources: Vec<Source>,
    pub(super) builds: Builds,
    pub(super) named_by: NamedBy,
    key: String,
}

impl Task {
    pub(super) fn new(name: &str, sources: Vec<Source>, builds: Builds) -> Self {
        let key = name.to_owned();
        Self { name: name.to_owned(), sources, builds, named_by: NamedBy::Operator, key }
    }

    /// The key of an import differs from that of a pull of the same name, because a name cannot contain a space. Imports of the operator
    /// and of clients have different keys, too: they may connect to different addresses.
    pub(super) fn import(name: &str, source: Source, named_by: NamedBy) -> Self {
        let key = match named_by {
            NamedBy::Operator => format!("{name} {source}"),
            NamedBy::Client => format!("{name} {source} of a client"),
        };
        Self { name: name.to_owned(), sources: vec![source], builds: Builds::Renew, named_by, key }
    }
}

#[derive(Clone)]
struct ActivePull {
    meter: Arc<Meter>,
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
    pub(super) fn progress(&self) -> Vec<Progress> {
        self.by_key.values().map(|pull| pull.meter.now()).collect()
    }

    pub(super) fn take_tasks(&mut self) -> JoinSet<()> {
        self.by_key.clear();
        std::mem::take(&mut self.tasks)
    }
}

impl Inner {
    /// Joins the active pull with this key or starts it, and waits for its end.
    pub(super) async fn join_or_start(
        self: &Arc<Self>,
        task: Task,
        progress: ProgressFn,
    ) -> Result<Arc<Image>> {
        let name = task.name.clone();
        let pull = self.join(task, progress);
        let mut result = pull.result;
        let result_of_pull = result.wait_for(Option::is_some).await.ok().and_then(|result| result.clone());
        result_of_pull
            .unwrap_or_else(|| Err(ImageError::store(format!("fetch {name}"), "the service is stopping")))
    }

    fn join(self: &Arc<Self>, task: Task, progress: ProgressFn) -> ActivePull {
        let mut active_pulls = self.active_pulls.lock().unwrap_or_else(PoisonError::into_inner);
        while active_pulls.tasks.try_join_next().is_some() {}
        if let Some(pull) = active_pulls.by_key.get(&task.key) {
            pull.meter.listen(progress);
            return pull.clone();
        }
        let (publish, result) = watch::channel(None);
        let pull = ActivePull { meter: Arc::new(Meter::new(&task.name)), result };
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
        pull
    }
}

/// Removes the pull from the list, also if its task panics.
struct RemoveOnDrop {
    inner: Arc<Inner>,
    key: String,
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        self.inner.active_pulls.lock().unwrap_or_else(PoisonError::into_inner).by_key.remove(&self.key);
    }
}
