//! Finds the image of a create or of a build: one of the operator, or one of a registry that the account may name. An image that is not on
//! this host is pulled; if that takes too long, the request gets 503 and the pull continues.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use admission::error::{ApiError, Condition, RefusalCode};
use api::{SnapshotId, TemplateState};
use engine::{EngineError, SnapshotError};
use image::{Image, ImageError, NamedBy, ProgressFn, PullReport, PullStep, SourceFailure};
use rules::{ImageReference, ImageRefusal};
use tokio::sync::watch;

use super::room::{make_room, remove_excess};
use crate::Service;
use crate::error::{
    KnownImages, needs_digest, of_image, unconfirmed_image, unfinished_template, unknown_image,
};

const PULL_RETRY_S: u64 = 10;
/// A request for an image that no registry has must fail fast, also if the registry does not answer.
const CONFIRM: Duration = Duration::from_millis(1500);
/// A build can wait for a slow registry.
const CONFIRM_BUILD: Duration = Duration::from_secs(60);

/// The tag that stands for the newest version.
const LATEST: &str = ":latest";

/// How long to wait for an image.
#[derive(Debug, Clone, Copy)]
pub struct PullWait {
    /// For the answer of the registry that it has the image.
    confirm: Duration,
    total: Duration,
    /// A build may have the name of the image that it begins with.
    is_of_build: bool,
}

impl PullWait {
    pub const fn of_request(total: Duration) -> Self {
        Self { confirm: CONFIRM, total, is_of_build: false }
    }

    pub const fn of_build(total: Duration) -> Self {
        Self { confirm: CONFIRM_BUILD, total, is_of_build: true }
    }
}

/// An image of this host that the account may use, or one that is pulled in time.
pub async fn find_image(
    service: &Service,
    account: &str,
    name: &str,
    wait: PullWait,
) -> Result<Arc<Image>, ApiError> {
    if let Some(image) = service.images.get(name)
        && image.named_by == NamedBy::Operator
    {
        return Ok(image);
    }
    let reference = ImageReference::parse(name);
    if let Some(name) = operator_name(service, name, reference.as_ref()).await? {
        let pull = service.images.ensure(&name, Arc::new(|_| {}));
        return match tokio::time::timeout(wait.total, pull).await {
            Ok(image) => image.map_err(of_image),
            Err(_) => Err(being_pulled(&name, report_of(service, &name).as_ref())),
        };
    }
    match reference {
        Some(reference) => Request { service, account, name, reference, wait }.image().await,
        None => Err(unknown(service, account, (name, None), wait).await),
    }
}

/// The name of an image of the operator that the request means.
async fn operator_name(
    service: &Service,
    name: &str,
    reference: Option<&ImageReference>,
) -> Result<Option<String>, ApiError> {
    if service.images.is_in_catalogue(name) {
        return Ok(Some(name.to_owned()));
    }
    if let Some(found) = reference.and_then(|reference| service.images.catalogue_name(reference)) {
        return Ok(Some(found.to_owned()));
    }
    // Another process may have imported it.
    let found = service.images.find(name).await.map_err(of_image)?;
    let imported = found.filter(|image| image.named_by == NamedBy::Operator);
    Ok(imported.map(|image| image.name.clone()))
}

/// Pulls the image that a snapshot of another host needs. False if that is not why the request failed, or only the id of another
/// snapshot is known. The source may have another image by now, so the request can fail again.
pub async fn pull_missing(service: &Service, account: &str, error: &EngineError) -> Result<bool, ApiError> {
    match error {
        EngineError::Snapshot(SnapshotError::OtherImage { image, .. })
            if !image.starts_with(SnapshotId::PREFIX) =>
        {
            let wait = PullWait::of_request(service.pull_timeout);
            find_image(service, account, image, wait).await.map(|_| true)
        }
        _ => Ok(false),
    }
}

/// A request for an image of a registry.
struct Request<'a> {
    service: &'a Service,
    account: &'a str,
    /// As the account wrote it.
    name: &'a str,
    reference: ImageReference,
    wait: PullWait,
}

impl Request<'_> {
    async fn image(&self) -> Result<Arc<Image>, ApiError> {
        let Self { service, account, name, ref reference, wait } = *self;
        let stored_as = reference.to_string();
        match service.image_access.check(account, reference).await {
            Ok(()) => {}
            Err(ImageRefusal::NotAllowed) => {
                return Err(unknown(service, account, (name, Some(reference)), wait).await);
            }
            Err(ImageRefusal::NeedsDigest) => {
                if let Some(error) = unfinished(service, account, name, wait) {
                    return Err(error);
                }
                let here = service.images.find_current(&stored_as).await.map_err(of_image)?;
                return Err(needs_digest(name, reference, here.as_ref().map(|image| image.digest.as_str())));
            }
        }
        service.image_access.note_request(account, &stored_as, &service.images);
        if let Some(image) = service.images.find_current(&stored_as).await.map_err(of_image)? {
            service.images.mark_used(&image);
            return Ok(image);
        }
        make_room(service).await?;
        let image = self.pull().await?;
        service.images.mark_used(&image);
        remove_excess(service).await;
        Ok(image)
    }

    async fn pull(&self) -> Result<Arc<Image>, ApiError> {
        let Self { service, account, name, ref reference, wait } = *self;
        let (confirm, confirmed) = watch::channel(false);
        let progress: ProgressFn = Arc::new(move |progress: PullReport| {
            if progress.stage != PullStep::Resolving {
                confirm.send_replace(true);
            }
        });
        let client = service.image_access.pull_of(account, service.engine.disk_reserve_bytes());
        let pulling = async {
            let mut pull = pin!(service.images.import_for_client(reference, client, progress));
            tokio::select! {
                biased;
                pulled = &mut pull => match pulled {
                    Ok(image) => Ok(image),
                    Err(ImageError::AllFailed { failures, .. }) if !*confirmed.borrow() => {
                        Err(self.unconfirmed(Some(&failures)).await)
                    }
                    Err(error) => Err(of_image(error)),
                },
                Err(_) = tokio::time::timeout(wait.confirm, is_confirmed(confirmed.clone())) => {
                    Err(self.unconfirmed(None).await)
                }
            }
        };
        let pulled = tokio::time::timeout(wait.total, pulling).await;
        service.image_access.save();
        pulled
            .unwrap_or_else(|_| Err(being_pulled(name, report_of(service, &reference.to_string()).as_ref())))
    }

    /// The error of an image that no registry has confirmed. `failures`: why not, if that is known.
    async fn unconfirmed(&self, failures: Option<&[SourceFailure]>) -> ApiError {
        let Self { service, account, name, ref reference, wait } = *self;
        match unfinished(service, account, name, wait) {
            Some(error) => error,
            None => unconfirmed_image((name, reference), &known(service, account).await, failures),
        }
    }
}

/// Waits until the registry has confirmed that it has the image, or the pull has ended.
async fn is_confirmed(mut confirmed: watch::Receiver<bool>) -> bool {
    confirmed.wait_for(|is_confirmed| *is_confirmed).await.is_ok()
}

/// How far the pull of an image is.
fn report_of(service: &Service, image: &str) -> Option<PullReport> {
    service.images.pulls().into_iter().find(|pull| pull.image == image)
}

/// Clients that wait print the message, so it has the progress.
fn being_pulled(name: &str, report: Option<&PullReport>) -> ApiError {
    let progress = report.map(progress_text).unwrap_or_default();
    let why = format!("image {} is being pulled{progress}", rules::quoted(name));
    let (code, condition) = (RefusalCode::ResourceExhausted, Condition::ImagePull);
    ApiError::refused(code, why, condition, PULL_RETRY_S).with_detail("field", "image")
}

/// How far a pull is, in the message of a refusal; empty before there is anything to say.
fn progress_text(report: &PullReport) -> String {
    let PullReport { stage, done_bytes, total_bytes, .. } = report;
    let megabytes = |bytes: &u64| bytes.div_ceil(1 << 20);
    match stage {
        PullStep::Fetching if *total_bytes > 0 => {
            format!(", {} of {} MB", megabytes(done_bytes), megabytes(total_bytes))
        }
        PullStep::Resolving | PullStep::Fetching => String::new(),
        PullStep::Building => ", a stand-in is built from Debian packages, which takes minutes".to_owned(),
        PullStep::Storing => ", it is written to disk".to_owned(),
    }
}

/// No image that the account may name has the name.
async fn unknown(
    service: &Service,
    account: &str,
    (name, reference): (&str, Option<&ImageReference>),
    wait: PullWait,
) -> ApiError {
    match unfinished(service, account, name, wait) {
        Some(error) => error,
        None => unknown_image(name, reference, &known(service, account).await),
    }
}

/// The error of a name that only builds without a result have: callers have looked for a ready template.
fn unfinished(service: &Service, account: &str, name: &str, wait: PullWait) -> Option<ApiError> {
    if wait.is_of_build {
        return None;
    }
    let name = name.strip_suffix(LATEST).unwrap_or(name);
    let newest = service.builder.all_named(account, name).into_iter().next()?;
    if newest.state == TemplateState::Ready {
        return None;
    }
    Some(unfinished_template(name, &newest.id, newest.state))
}

/// What the account can use in place of an image.
async fn known(service: &Service, account: &str) -> KnownImages {
    let templates = service.builder.list(account);
    let ready = templates.iter().filter(|template| template.state == TemplateState::Ready);
    let templates = ready.map(|template| template.name.clone()).collect();
    let mut images = service.images.operator_names();
    images.extend(own_images(service, account).await);
    images.sort_unstable();
    images.dedup();
    KnownImages { images, templates }
}

/// The images of registries on this host that the account has requested and may still name. Those that others have brought here are not
/// shown to it.
async fn own_images(service: &Service, account: &str) -> Vec<String> {
    let access = &service.image_access;
    let mut own = Vec::new();
    for name in service.images.names().into_iter().filter(|name| access.has_requested(account, name)) {
        if let Some(reference) = ImageReference::parse(&name)
            && access.check(account, &reference).await.is_ok()
        {
            own.push(name);
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_how_far_the_pull_is() {
        let text = |stage, done_bytes, total_bytes| {
            let (image, source) = ("python:3.12".to_owned(), "registry".to_owned());
            let report = PullReport { image, source, stage, done_bytes, total_bytes };
            being_pulled("python:3.12", Some(&report)).message
        };
        let pulled = "image 'python:3.12' is being pulled";
        assert_eq!(text(PullStep::Resolving, 0, 0), format!("{pulled}; try again in 10 s"));
        assert_eq!(
            text(PullStep::Fetching, 12 << 20, (28 << 20) - 1),
            format!("{pulled}, 12 of 28 MB; try again in 10 s")
        );
        assert_eq!(text(PullStep::Fetching, 0, 0), format!("{pulled}; try again in 10 s"));
        assert!(text(PullStep::Building, 0, 0).contains("which takes minutes; try again in 10 s"));
        assert!(text(PullStep::Storing, 1, 1).contains("written to disk"));
        assert_eq!(being_pulled("python:3.12", None).message, format!("{pulled}; try again in 10 s"));
    }
}
