//! Builds of templates. Their clients request a build, upload the files of its steps by links, start it, and poll its state.
//!
//! A build is one of the service's own, from a Dockerfile that says the same as the steps (`recipe`).

mod failure;
mod pending;
mod recipe;
mod status;
mod tags;
mod upload;

use std::fmt::Write as _;
use std::time::Duration;

use api::{CreateBody, CreateResources, TemplateId};
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use builder::{NewTemplate, Start, StoredContext, Template};
use rand::Rng;
use rules::{IsolationRules, sandbox_config, template_name};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::limits::rules_for_templates;
use super::{Call, view};
use crate::E2bApi;
use crate::error::E2bError;

pub use pending::PendingBuilds;
pub use status::status;
pub use tags::{assign as assign_tags, list as list_tags, remove as remove_tags};
pub use upload::{is_upload, upload, upload_link};

use pending::RequestedBuild;
use recipe::Step;

/// The image behind their base images.
const BASE: &str = "base";
const BUILD_TIMEOUT_MS: i128 = 3_600_000;
const READY_TIMEOUT_MS: u64 = 300_000;
const MAX_TAGS: usize = 20;

#[derive(Debug, Default, Deserialize)]
struct Requested {
    name: Option<String>,
    alias: Option<String>,
    tags: Option<Vec<String>>,
    #[serde(rename = "cpuCount")]
    cpu: Option<u32>,
    #[serde(rename = "memoryMB")]
    memory_mb: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Started {
    from_image: Option<String>,
    from_template: Option<String>,
    from_image_registry: Option<serde_json::Value>,
    force: Option<bool>,
    steps: Option<Vec<Step>>,
    start_cmd: Option<String>,
    ready_cmd: Option<String>,
}

fn missing(name: &str) -> E2bError {
    E2bError::not_found(format!("template {} not found", rules::quoted(name)))
}

/// A UUID that belongs to a template: each has one build.
fn build_id(id: &TemplateId) -> String {
    let hash = Sha256::digest(id.as_str().as_bytes());
    let mut text = String::with_capacity(36);
    for (at, byte) in hash.iter().take(16).enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn checked_tags(tags: Vec<String>) -> Result<Vec<String>, E2bError> {
    let is_tag = |tag: &String| {
        (1..=128).contains(&tag.len())
            && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    if tags.len() > MAX_TAGS || tags.iter().any(|tag| !is_tag(tag)) {
        return Err(E2bError::invalid(format!(
            "tags are at most {MAX_TAGS} texts of letters, digits and '._-'"
        )));
    }
    Ok(tags)
}

/// Requests a build.
pub async fn request(call: &Call<'_>, content: Body) -> Result<Response, E2bError> {
    let requested: Requested = call.read(content).await?;
    let given = requested.name.or(requested.alias).ok_or_else(|| E2bError::invalid("name is missing"))?;
    let (name, own_tag) = match given.split_once(':') {
        Some((name, tag)) => (name.to_owned(), Some(tag.to_owned())),
        None => (given, None),
    };
    let name = template_name("name", name).map_err(|error| E2bError::invalid(error.to_string()))?;
    let tags = checked_tags(own_tag.into_iter().chain(requested.tags.unwrap_or_default()).collect())?;
    let mut random = [0; 20];
    rand::rng().fill_bytes(&mut random);
    let id = TemplateId::from_random(random);
    let (cpu, memory_mb) = (requested.cpu, requested.memory_mb);
    let build =
        RequestedBuild { name: name.clone(), tags: tags.clone(), cpu, memory_mb, ..Default::default() };
    call.api.pending.add(&call.caller.account, id.clone(), build);
    let shown = json!({
        "templateID": id, "buildID": build_id(&id), "public": false, "names": [name], "aliases": [name], "tags": tags,
    });
    Ok(view::json(StatusCode::ACCEPTED, &shown))
}

/// Starts a requested build.
pub async fn start(call: &Call<'_>, id: &TemplateId, content: Body) -> Result<Response, E2bError> {
    let started: Started = call.read(content).await?;
    let account = &*call.caller.account;
    let build = call.api.pending.find(account, id).ok_or_else(|| missing(id.as_str()))?;
    if started.from_image_registry.is_some() {
        return Err(E2bError::invalid("registries with credentials are not supported by this service"));
    }
    let steps = started.steps.unwrap_or_default();
    let image = base(call.api, started.from_image, started.from_template)?;
    let start = started.start_cmd.map(|command| start_of(&command, started.ready_cmd.as_deref()));
    let new = NewTemplate {
        id: Some(id.clone()),
        name: build.name.clone(),
        tags: build.tags.clone(),
        dockerfile: recipe::dockerfile(&image, &steps)?,
        args: Default::default(),
        start,
        config: config(call, &build)?,
        no_cache: started.force.unwrap_or(false) || steps.iter().any(|step| step.force),
        metadata: Default::default(),
        context: merged(call, &steps, build.files.clone()).await?,
    };
    let accepted = call.api.builder.create(account, new, &call.api.services.bases(), None).await;
    accepted.map_err(|error| call.api.services.builder_error(error))?;
    call.api.pending.remove(id);
    // Their JavaScript package parses the body.
    Ok(view::json(StatusCode::ACCEPTED, &json!({})))
}

/// The files of all steps as one context, each archive in a directory that is named by its hash.
async fn merged(
    call: &Call<'_>,
    steps: &[Step],
    files: std::collections::BTreeMap<String, StoredContext>,
) -> Result<Option<StoredContext>, E2bError> {
    let hashes = steps.iter().filter(|step| step.kind == "COPY").filter_map(|step| step.files_hash.as_ref());
    for hash in hashes {
        if !files.contains_key(hash) {
            return Err(E2bError::invalid(format!(
                "the files with the hash {} were not uploaded",
                rules::quoted(hash)
            )));
        }
    }
    if files.is_empty() {
        return Ok(None);
    }
    let merged = call.api.builder.merge_contexts(&call.caller.account, files).await;
    merged.map(Some).map_err(|error| call.api.services.builder_error(error))
}

/// The image that a build begins with. The base images of their clients are the template `base`.
fn base(api: &E2bApi, image: Option<String>, template: Option<String>) -> Result<String, E2bError> {
    let named = |name: &str| api.settings.templates.get(name).map(|template| template.image.clone());
    match (image, template) {
        (Some(image), None) if image.starts_with("e2bdev/") => {
            named(BASE).ok_or_else(|| E2bError::invalid("this service has no template 'base'"))
        }
        (Some(image), None) => Ok(image),
        (None, Some(template)) => Ok(named(&template).unwrap_or(template)),
        _ => Err(E2bError::invalid("either fromImage or fromTemplate is required")),
    }
}

/// The configuration of the sandboxes of the steps.
fn config(call: &Call<'_>, build: &RequestedBuild) -> Result<api::SandboxConfig, E2bError> {
    let isolation = IsolationRules::new(&call.api.settings.isolation, &call.caller.account);
    let resources = CreateResources {
        cpu: build.cpu.map(Into::into),
        memory_mb: build.memory_mb.map(Into::into),
        disk_mb: None,
    };
    let create = CreateBody {
        image: build.name.clone(),
        resources: Some(resources),
        timeout_ms: Some(BUILD_TIMEOUT_MS),
        idle_timeout_ms: Some(0),
        ..CreateBody::default()
    };
    let config = sandbox_config(create, &rules_for_templates(isolation));
    let config = config.map_err(|error| E2bError::invalid(error.to_string()))?;
    Ok(api::SandboxConfig { default_user: true, ..config })
}

/// The start command of a template. Their clients wait for a fixed time with a check that sleeps.
fn start_of(command: &str, ready: Option<&str>) -> Start {
    let seconds = ready.and_then(|ready| ready.trim().strip_prefix("sleep ")?.trim().parse::<f64>().ok());
    let settles = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let settles_ms = settles.and_then(|settles| u64::try_from(settles.as_millis()).ok());
    Start {
        command: recipe::in_shell(command),
        ready: ready.filter(|_| settles_ms.is_none()).map(recipe::in_shell),
        timeout_ms: READY_TIMEOUT_MS,
        settles_ms,
    }
}

/// Deletes a template, or all versions of a name. False if there is none.
pub async fn delete(call: &Call<'_>, name: &str) -> Result<bool, E2bError> {
    let account = &*call.caller.account;
    let own = call.api.builder.list(account);
    let is_it = |template: &&std::sync::Arc<Template>| template.id.as_str() == name || template.name == name;
    let mut found = false;
    for template in own.iter().filter(is_it) {
        let deleted = call.api.builder.delete(account, &template.id).await;
        deleted.map_err(|error| call.api.services.builder_error(error))?;
        found = true;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_only_sleeps_is_a_time_to_wait() {
        let (waits, checks) =
            (start_of("server", Some("sleep 2.5")), start_of("server", Some("sleep 1; true")));
        assert_eq!((waits.ready, waits.settles_ms), (None, Some(2500)));
        assert_eq!((checks.ready.is_some(), checks.settles_ms), (true, None));
        assert_eq!(start_of("server", Some("sleep -1")).settles_ms, None);
        assert!(!start_of("server", None).may_end() && start_of("server", Some("true")).may_end());
    }

    #[test]
    fn tags_are_without_the_name() {
        let is_accepted = |tag: &str| checked_tags(vec![tag.to_owned()]).is_ok();
        assert!(["v1", "latest", "a.B_c-d"].into_iter().all(is_accepted));
        assert!(!["", ":v1", "name:", "name:v1", "a b"].into_iter().any(is_accepted));
    }
}
