//! Coalesced pulls: one task per image, however many callers wait for it. [`Flights`] owns the task; callers hold a receiver
//! of its result.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Inner;
use crate::error::ImageError;
use crate::image::Image;
use crate::job::Builds;
use crate::progress::{Meter, Progress, ProgressFn};
use crate::source::Source;

type Result<T> = std::result::Result<T, ImageError>;

/// What is pulled. Callers share a flight if name and kind are equal.
#[derive(Clone)]
pub(super) struct Task {
    pub(super) name: String,
    pub(super) sources: Vec<Source>,
    pub(super) builds: Builds,
    key: String,
}

impl Task {
    pub(super) fn new(name: &str, sources: Vec<Source>, builds: Builds) -> Self {
        Self { name: name.to_owned(), sources, builds, key: name.to_owned() }
    }

    /// An import never joins another source's pull of the same name: the space cannot be part of a name.
    pub(super) fn import(name: &str, source: Source) -> Self {
        let key = format!("{name} {source}");
        Self { name: name.to_owned(), sources: vec![source], builds: Builds::Renew, key }
    }
}

#[derive(Clone)]
struct Flight {
    meter: Arc<Meter>,
    result: watch::Receiver<Option<Result<Arc<Image>>>>,
}

/// The pulls in progress.
#[derive(Default)]
pub(super) struct Flights {
    by_key: HashMap<String, Flight>,
    tasks: JoinSet<()>,
}

impl Flights {
    /// The progress of each.
    pub(super) fn progress(&self) -> Vec<Progress> {
        self.by_key.values().map(|flight| flight.meter.now()).collect()
    }

    pub(super) fn take_tasks(&mut self) -> JoinSet<()> {
        self.by_key.clear();
        std::mem::take(&mut self.tasks)
    }
}

impl Inner {
    /// Joins the flight for this task or starts it, and waits for its end.
    pub(super) async fn fly(self: &Arc<Self>, task: Task, progress: ProgressFn) -> Result<Arc<Image>> {
        let name = task.name.clone();
        let flight = self.join(task, progress);
        let mut result = flight.result;
        let landed = result.wait_for(Option::is_some).await.ok().and_then(|result| result.clone());
        landed.unwrap_or_else(|| Err(ImageError::store(format!("fetch {name}"), "the service is stopping")))
    }

    fn join(self: &Arc<Self>, task: Task, progress: ProgressFn) -> Flight {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        while flights.tasks.try_join_next().is_some() {}
        if let Some(flight) = flights.by_key.get(&task.key) {
            flight.meter.listen(progress);
            return flight.clone();
        }
        let (tell, result) = watch::channel(None);
        let flight = Flight { meter: Arc::new(Meter::new(&task.name)), result };
        flight.meter.listen(progress);
        flights.by_key.insert(task.key.clone(), flight.clone());
        let landing = Landing { inner: self.clone(), key: task.key.clone() };
        let meter = flight.meter.clone();
        flights.tasks.spawn(async move {
            let landed = landing.inner.fetch(&task, &meter).await;
            // Remove the flight before publishing its result: later callers find the image in the cache, or start another pull.
            drop(landing);
            tell.send_replace(Some(landed));
        });
        flight
    }
}

/// Removes the flight from the list, also if its task panics.
struct Landing {
    inner: Arc<Inner>,
    key: String,
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.inner.flights.lock().unwrap_or_else(PoisonError::into_inner).by_key.remove(&self.key);
    }
}
