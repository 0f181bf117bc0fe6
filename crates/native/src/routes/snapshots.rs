//! The endpoints of snapshots, one per module, and the create from a snapshot.

mod delete;
mod fork;
mod get;
mod list;
mod rollback;
mod take;
mod view;

use admission::error::ApiError;
use api::{CreateBody, SandboxConfig, SnapshotId};
use engine::Template;
use reader::RequestBody;
use service::Service;
use service::error::{OperationKind, no_snapshot, of_engine};
use service::images::pull_missing;
use service::snapshot_names;

use super::templates::explain_minimum;
use crate::endpoint::Endpoint;

pub fn endpoints() -> [Endpoint; 6] {
    [
        take::endpoint(),
        rollback::endpoint(),
        fork::endpoint(),
        list::endpoint(),
        get::endpoint(),
        delete::endpoint(),
    ]
}

/// The snapshot that a create names as its image, by its id or by its name. `None` if it names an image.
pub fn named(service: &Service, account: &str, image: &str) -> Result<Option<SnapshotId>, ApiError> {
    if image.starts_with(SnapshotId::PREFIX) {
        return image.parse().map(Some).map_err(|_| no_snapshot(image));
    }
    Ok(snapshot_names::image_named(service, account, image))
}

/// The configuration of a create from a snapshot, and what the sandbox begins with.
pub async fn create_from(
    service: &Service,
    account: &str,
    content: CreateBody,
    id: &SnapshotId,
) -> Result<(SandboxConfig, Template), ApiError> {
    let mut found = service.engine.snapshot_template(account, id).await;
    if let Err(error) = &found
        && pull_missing(service, account, error).await?
    {
        found = service.engine.snapshot_template(account, id).await;
    }
    let (mut template, snapshot) = found.map_err(|error| of_engine(error, None, OperationKind::Other))?;
    let mut rules = service.create_rules(account);
    rules.disk_mb = rules.disk_mb.raised_to(snapshot.resources.disk_mb);
    rules.isolation = rules.isolation.above(snapshot.isolation, &service.engine.images_below(&snapshot));
    if let Some(workdir) = &snapshot.workdir {
        rules.workdir_default.clone_from(workdir);
    }
    if content.cold == Some(true) {
        template.processes_from = None;
    }
    if template.processes_from.is_some() {
        rules.memory_mb = rules.memory_mb.raised_to(snapshot.resources.memory_mb);
    }
    let checked =
        CreateBody::check(content, &rules).map_err(|error| explain_minimum(error.into(), "snapshot"))?;
    let config = SandboxConfig { image: id.to_string(), ..checked };
    Ok((config, template))
}
