//! The task of a pull: tries the sources in order, then stores layers and record of the first one that succeeds.

use std::sync::Arc;

use time::OffsetDateTime;
use tokio_util::task::TaskTracker;

use super::ImagesState;
use super::active_pulls::Task;
use crate::client::{ClientCharge, ClientPull, PULL_TIMEOUT};
use crate::error::{FailureKind, ImageError, SourceFailure};
use crate::fault::Fault;
use crate::image::Image;
use crate::job::{Builds, Job, UnpackedImage};
use crate::limits::{Budget, ImageLimits};
use crate::progress::{Meter, PullStep};
use crate::source::ImageSource;
use crate::store::{ImageRecord, tree_bytes};
use crate::{debian, layers, oci, rootfs};

impl ImagesState {
    pub(super) async fn fetch(&self, task: &Task, meter: &Arc<Meter>) -> Result<Arc<Image>, ImageError> {
        let store = self.store.clone();
        let locked = base::blocking(move || store.lock_for_use()).await;
        let _lock = locked.map_err(|error| ImageError::store("lock the image directory", error))?;
        // Another process may have pulled it since this one read the records.
        if task.builds == Builds::Reuse
            && let Some(record) = self.store.record(&task.name)
        {
            return Ok(self.add_to_cache(record));
        }
        let charge = task
            .client
            .as_ref()
            .map(|client| Arc::new(ClientCharge::new(client.clone(), self.turns.clone())));
        let mut failures: Vec<SourceFailure> = Vec::new();
        for source in &task.sources {
            let source_text = source.to_string();
            meter.begin(&source_text);
            match self.attempt((task, charge.as_ref()), source, &failures, meter).await {
                Ok(image) => return Ok(image),
                Err(fault) => {
                    if let (Some(client), Some(reached)) =
                        (&task.client, charge.as_ref().and_then(|charge| charge.reached()))
                    {
                        return Err(ImageError::PullQuota { account: client.account.to_string(), reached });
                    }
                    tracing::warn!(image = %task.name, source = %source_text, reason = %fault, "image source failed");
                    let Fault { kind, reason, source } = fault;
                    failures.push(SourceFailure { source_text, kind, reason, source });
                }
            }
        }
        Err(ImageError::AllFailed { name: task.name.clone(), failures })
    }

    async fn attempt(
        &self,
        (task, charge): (&Task, Option<&Arc<ClientCharge>>),
        source: &ImageSource,
        failures: &[SourceFailure],
        meter: &Arc<Meter>,
    ) -> Result<Arc<Image>, Fault> {
        let reasons = failures.iter().map(short_reason).collect::<Vec<_>>().join(", ");
        let job = Job {
            store: self.store.clone(),
            layers: self.layers.clone(),
            unpacks: self.unpacks.clone(),
            budget: Arc::new(self.budget_of(task.client.as_ref())),
            meter: meter.clone(),
            working: TaskTracker::new(),
            builds: task.builds,
            name: task.name.clone(),
            stands_in_because: Some(reasons).filter(|reasons| !reasons.is_empty()),
            charge: charge.cloned(),
        };
        let outcome = self.outcome_in_time(&job, source, task).await;
        job.wait_for_work().await;
        let outcome = outcome?;
        meter.stage(PullStep::Storing);
        let record = self.store_outcome(task, source, outcome).await?;
        let image = self.add_to_cache(record);
        match &image.stand_in {
            Some(stand_in) => tracing::warn!(image = %image.name, source = %image.source, "{stand_in}"),
            None => {
                tracing::info!(image = %image.name, source = %image.source, digest = %image.digest, "image pulled");
            }
        }
        Ok(image)
    }

    fn budget_of(&self, client: Option<&ClientPull>) -> Budget {
        let limits = self.options.limits;
        let Some(client) = client else { return Budget::new(limits) };
        let own = client.max_unpacked_bytes.unwrap_or(limits.unpacked_bytes);
        let limits = ImageLimits { unpacked_bytes: limits.unpacked_bytes.min(own), ..limits };
        Budget::new(limits).with_reserve(self.store.root(), client.min_free_bytes)
    }

    /// The operator's sources may take as long as they need.
    async fn outcome_in_time(
        &self,
        job: &Job,
        source: &ImageSource,
        task: &Task,
    ) -> Result<UnpackedImage, Fault> {
        let outcome = self.outcome(job, source, task);
        if task.client.is_none() {
            return outcome.await;
        }
        let in_time = tokio::time::timeout(PULL_TIMEOUT, outcome).await;
        in_time.unwrap_or_else(|_| {
            let seconds = PULL_TIMEOUT.as_secs();
            Err(Fault::new(FailureKind::TooSlow, format!("the pull took longer than {seconds} s")))
        })
    }

    async fn outcome(&self, job: &Job, source: &ImageSource, task: &Task) -> Result<UnpackedImage, Fault> {
        match source {
            ImageSource::Registry { reference } => {
                let (options, unreachable) = (&self.options.registry, &self.unreachable_registries);
                oci::from_registry(job, reference, task.named_by, options, unreachable).await
            }
            ImageSource::OciLayout { dir, select } => oci::from_layout(job, dir, select).await,
            ImageSource::Rootfs { path } => rootfs::import(job, path).await,
            ImageSource::Debian { suite, packages } => debian::build(job, suite, packages).await,
        }
    }

    async fn store_outcome(
        &self,
        task: &Task,
        source: &ImageSource,
        outcome: UnpackedImage,
    ) -> Result<ImageRecord, Fault> {
        layers::commit(&self.store, &outcome.layers).await?;
        let mut record = ImageRecord {
            name: task.name.clone(),
            source: source.to_string(),
            digest: outcome.digest,
            layers: outcome.layers.iter().map(|slot| slot.id.clone()).collect(),
            config: outcome.config,
            stand_in: outcome.stand_in,
            versions: outcome.versions,
            size_bytes: 0,
            layer_bytes: Vec::new(),
            named_by: Some(task.named_by),
            audience: Some(outcome.audience),
            created_at: OffsetDateTime::now_utc(),
        };
        let (store, built) = (self.store.clone(), outcome.built);
        let written = base::blocking(move || {
            let sizes = record.layers.iter().map(|id| tree_bytes(&store.layer_path(id)));
            record.layer_bytes = sizes.collect::<std::io::Result<_>>()?;
            record.size_bytes = record.layer_bytes.iter().sum();
            for (key, _, slot) in &built {
                store.write_built(key, &slot.id)?;
            }
            store.write_record(&record)?;
            std::io::Result::Ok(record)
        });
        written.await.map_err(Fault::io("write the record"))
    }
}

/// A short reason for a failed source, for descriptions of stand-ins; the log has the complete cause.
fn short_reason(failure: &SourceFailure) -> String {
    let why = match failure.kind {
        FailureKind::Unreachable => "cannot be reached",
        FailureKind::Untrusted => "has no trusted certificate",
        FailureKind::NotFound => "does not exist",
        FailureKind::Denied => "requires a login",
        FailureKind::Credentials => "has no usable login",
        FailureKind::Closed => "has no public address",
        FailureKind::Refused => "has invalid content",
        FailureKind::TooBig => "is too big",
        FailureKind::TooSlow => "is too slow",
        FailureKind::Tool | FailureKind::Io => "could not be used",
    };
    format!("{} {why}", failure.source_text)
}
