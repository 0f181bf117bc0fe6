//! The endpoints of templates, one per module, and the create from a template.

mod cancel;
mod create;
mod delete;
mod get;
mod list;
mod logs;
mod names;
mod upload;
mod view;

use std::sync::Arc;

use admission::error::ApiError;
use api::{CreateBody, ErrorCode, SandboxConfig, SandboxId, TemplateId};
use builder::Template;
use reader::RequestBody;
use rules::ImageReference;
use service::Service;
use service::error::{no_template, of_builder};

use crate::endpoint::Endpoint;

/// The tag that stands for the newest version of an image.
const LATEST: &str = ":latest";
/// The reason in the event of a sandbox whose start command failed.
const START_FAILED: &str = "start_command_failed";

pub fn endpoints() -> [Endpoint; 7] {
    [
        create::endpoint(),
        upload::endpoint(),
        list::endpoint(),
        get::endpoint(),
        delete::endpoint(),
        cancel::endpoint(),
        logs::endpoint(),
    ]
}

/// The template that a create names as its image. `None` if it names something else.
pub fn named(service: &Service, account: &str, image: &str) -> Result<Option<Arc<Template>>, ApiError> {
    let found = service.builder.named(account, image);
    // A version does not hide an image of the catalogue, such as `node:22`.
    let found = found.filter(|found| found.name == image || !service.images.is_in_catalogue(image));
    let found = found.or_else(|| newest_of(service, account, image));
    if found.is_none() && image.starts_with(TemplateId::PREFIX) {
        return Err(no_template(image));
    }
    Ok(found)
}

/// The newest version of the template that an image with the tag of Docker for it names, unless the image exists.
fn newest_of(service: &Service, account: &str, image: &str) -> Option<Arc<Template>> {
    let name = image.strip_suffix(LATEST)?;
    let images = &service.images;
    let is_known = |reference: ImageReference| images.catalogue_name(&reference).is_some();
    if images.is_in_catalogue(image)
        || images.get(image).is_some()
        || ImageReference::parse(image).is_some_and(is_known)
    {
        return None;
    }
    service.builder.named(account, name).filter(|found| found.name == name)
}

/// The configuration of a create from a template, and what the sandbox begins with.
pub fn create_from(
    service: &Service,
    account: &str,
    content: CreateBody,
    template: &Template,
) -> Result<(SandboxConfig, engine::Template), ApiError> {
    let mut image = service.builder.image(template).map_err(of_builder)?;
    let (resources, isolation) = service.builder.minimum(template).map_err(of_builder)?;
    let mut rules = service.create_rules(account);
    rules.disk_mb = rules.disk_mb.raised_to(resources.disk_mb);
    let floor = isolation.max(rules.isolation.minimum(&template.content.base));
    rules.isolation = rules.isolation.at_least(floor);
    if let Some(workdir) = &template.content.settings.workdir {
        rules.workdir_default.clone_from(workdir);
    }
    if content.cold == Some(true) {
        image.processes_from = None;
    }
    if image.processes_from.is_some() {
        rules.memory_mb = rules.memory_mb.raised_to(resources.memory_mb);
    }
    let config =
        CreateBody::check(content, &rules).map_err(|error| explain_minimum(error.into(), "template"))?;
    Ok((config, image))
}

/// Adds to the error of a disk where its minimum is from: what a create begins with raises that of the service.
pub fn explain_minimum(mut error: ApiError, source: &str) -> ApiError {
    if error.details.get("field").is_some_and(|field| field == "resources.diskMb") {
        error.message.push_str(&format!(" (a sandbox has at least the disk of its {source})"));
    }
    error
}

/// Runs the start command of a template in a new sandbox, unless the sandbox has copies of its processes. Without it the sandbox is
/// not what was asked for, so it is terminated if the command fails.
pub async fn run_start(service: &Service, template: &Template, sandbox: &SandboxId) -> Result<(), ApiError> {
    let Err(error) = service.builder.run_start(template, sandbox).await else { return Ok(()) };
    let ended = service.engine.sandbox(&template.account, sandbox).terminate(START_FAILED).await;
    if let Err(error) = ended {
        tracing::warn!(%sandbox, %error, "cannot end a sandbox whose start command failed");
    }
    let message = format!("the start command of template '{}' failed: {error}", template.name);
    Err(ApiError::new(ErrorCode::ExecutionError, message).with_detail("sandboxId", sandbox.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_disk_says_what_raises_its_minimum() {
        let error = |field: &str| {
            let message = format!("{field} is 5120; allowed: 10240 to 51200");
            ApiError::new(ErrorCode::InvalidConfig, message).with_detail("field", field)
        };
        let disk = explain_minimum(error("resources.diskMb"), "template");
        assert!(
            disk.message.ends_with("to 51200 (a sandbox has at least the disk of its template)"),
            "{}",
            disk.message
        );
        let memory = error("resources.memoryMb");
        assert_eq!(explain_minimum(memory.clone(), "template").message, memory.message);
    }
}
