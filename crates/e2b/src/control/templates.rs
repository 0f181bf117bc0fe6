//! Builds of templates. Their clients request a build, upload the files of its steps by links, start it, and poll its state.
//!
//! A build is one of the service's own, from a Dockerfile that says the same as the steps (`recipe`). It is a version of the template
//! with its name: every version has an id, and each of them names the template (`super::reference`).

mod build_log;
mod failure;
mod listing;
mod pending;
mod recipe;
mod status;
mod tags;
mod update;
mod upload;

use std::time::Duration;

use api::{CreateBody, CreateResources, TemplateId};
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use builder::{BuilderError, DEFAULT_TAG, NewTemplate, OtherBuilds, StartCommand, StoredContext};
use rand::Rng;
use rules::{IsolationRules, sandbox_config, template_name};
use serde::Deserialize;
use serde_json::json;
use service::bases::bases;

use super::limits::rules_for_templates;
use super::reference::{self, Reference, build_id};
use super::source::{self, Named};
use super::{Call, snapshots, view};
use crate::E2bApi;
use crate::error::E2bError;
use crate::run_defaults::RunDefaults;

pub use build_log::build_log;
pub use listing::{get, list, list_page};
pub use pending::PendingBuilds;
pub use status::status;
pub use tags::{assign as assign_tags, list as list_tags, remove as remove_tags};
pub use update::{update, update_silently};
pub use upload::{link_holder, upload, upload_link};

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

fn no_build(build: &str) -> E2bError {
    E2bError::not_found(format!("build {} not found", rules::quoted(build)))
}

/// Tags in lower case, each once.
fn checked_tags(given: Vec<String>) -> Result<Vec<String>, E2bError> {
    let is_tag = |tag: &String| {
        (1..=128).contains(&tag.len())
            && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
            && !is_build_id(tag)
    };
    if given.len() > MAX_TAGS || given.iter().any(|tag| !is_tag(tag)) {
        return Err(E2bError::invalid(format!(
            "tags are at most {MAX_TAGS} texts of letters, digits and '._-', and no ids of builds"
        )));
    }
    let mut tags: Vec<String> = Vec::new();
    for tag in given.into_iter().map(|tag| tag.to_ascii_lowercase()) {
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    Ok(tags)
}

/// Whether a text has the form of a UUID.
fn is_build_id(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// Requests a build.
pub async fn request(call: Call, content: Body) -> Result<Response, E2bError> {
    let call = &call;
    let requested: Requested = call.read(content).await?;
    let given = requested.name.or(requested.alias).ok_or_else(|| E2bError::invalid("name is missing"))?;
    let (name, own_tag) = match given.split_once(':') {
        Some((name, tag)) => (name.to_owned(), Some(tag.to_owned())),
        None => (given, None),
    };
    let name = template_name("name", name).map_err(|error| E2bError::invalid(error.to_string()))?;
    let mut tags = checked_tags(own_tag.into_iter().chain(requested.tags.unwrap_or_default()).collect())?;
    if tags.is_empty() {
        tags.push(DEFAULT_TAG.to_owned());
    }
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

/// Starts a requested build. It replaces builds in progress of the same name and tag; if one of them does the same, the request is a
/// conflict, and over.
pub async fn start(call: Call, content: Body) -> Result<Response, E2bError> {
    let call = &call;
    let (id, wanted) = (&call.template_id()?, &call.text("build"));
    let started: Started = call.read(content).await?;
    let account = &*call.caller.account;
    let build = call.api.pending.find(account, id).ok_or_else(|| missing(id.as_str()))?;
    if !build_id(id).eq_ignore_ascii_case(wanted) {
        return Err(no_build(wanted));
    }
    if started.from_image_registry.is_some() {
        return Err(E2bError::invalid("registries with credentials are not supported by this service"));
    }
    let steps = started.steps.unwrap_or_default();
    let (image, defaults) = base(call, started.from_image, started.from_template)?;
    let start = started.start_cmd.map(|command| start_of(&command, started.ready_cmd.as_deref()));
    let new = NewTemplate {
        id: Some(id.clone()),
        name: build.name.clone(),
        tags: build.tags.clone(),
        dockerfile: recipe::dockerfile(&image, &defaults, &steps)?,
        args: Default::default(),
        start,
        config: config(call, &build)?,
        no_cache: started.force.unwrap_or(false) || steps.iter().any(|step| step.force),
        metadata: Default::default(),
        context: merged(call, &steps, build.files.clone()).await?,
        others: OtherBuilds::Replaced,
    };
    match call.api.service.builder.create(account, new, &bases(&call.api.service), None).await {
        Ok(_) => {
            call.api.pending.remove(id);
            // Their JavaScript package parses the body.
            Ok(view::json(StatusCode::ACCEPTED, &json!({})))
        }
        Err(BuilderError::InProgress { id: other }) => {
            call.api.pending.remove(id);
            Err(in_progress(&build, &other))
        }
        Err(error) => Err(E2bError::of_builder(error)),
    }
}

fn in_progress(build: &RequestedBuild, other: &TemplateId) -> E2bError {
    let (name, tags, other) = (&build.name, build.tags.join(", "), build_id(other));
    let message = format!("an identical build of '{name}' with the tags {tags} is in progress: '{other}'");
    E2bError::new(StatusCode::CONFLICT, message)
}

/// The files of all steps as one context, each archive in a directory that is named by its hash.
async fn merged(
    call: &Call,
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
    let merged = call.api.service.builder.merge_contexts(&call.caller.account, files).await;
    merged.map(Some).map_err(E2bError::of_builder)
}

/// What a build begins with, by a name for `FROM`. The base images of their clients are the template `base`. Steps above a template begin
/// with its last user and directory.
fn base(
    call: &Call,
    image: Option<String>,
    template: Option<String>,
) -> Result<(String, RunDefaults), E2bError> {
    let api: &E2bApi = &call.api;
    let of_image = |image: String| Ok((image, RunDefaults::default()));
    match (image, template) {
        (Some(image), None) if image.starts_with("e2bdev/") => match api.settings.templates.get(BASE) {
            Some(base) => of_image(base.image.clone()),
            None => Err(E2bError::invalid("this service has no template 'base'")),
        },
        (Some(image), None) => of_image(image),
        (None, Some(text)) => match source::named(api, &call.caller.account, &text) {
            Named::Operator(template) => of_image(template.image),
            Named::Account(Reference::Version(version)) => {
                Ok((version.id.to_string(), RunDefaults::of_template(&version)))
            }
            Named::Account(Reference::NoTag(tag)) if !api.service.images.is_in_catalogue(&text) => {
                Err(tag.into_error())
            }
            Named::Account(_) => of_image(text),
        },
        _ => Err(E2bError::invalid("either fromImage or fromTemplate is required")),
    }
}

/// The configuration of the sandboxes of the steps.
fn config(call: &Call, build: &RequestedBuild) -> Result<api::SandboxConfig, E2bError> {
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
fn start_of(command: &str, ready: Option<&str>) -> StartCommand {
    let seconds = ready.and_then(|ready| ready.trim().strip_prefix("sleep ")?.trim().parse::<f64>().ok());
    let settles = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let settles_ms = settles.and_then(|settles| u64::try_from(settles.as_millis()).ok());
    StartCommand {
        command: recipe::in_shell(command),
        ready: ready.filter(|_| settles_ms.is_none()).map(recipe::in_shell),
        timeout_ms: READY_TIMEOUT_MS,
        settles_ms,
    }
}

/// Deletes all versions of a template, which the id of each of them names, or else a snapshot.
pub async fn delete(call: Call, _: Body) -> Result<Response, E2bError> {
    let call = &call;
    let text = &call.text("template");
    let account = &*call.caller.account;
    let versions = reference::versions(&call.api.service.builder.list(account), text);
    if versions.is_empty() {
        return snapshots::delete(call, text).await;
    }
    for version in versions {
        match call.api.service.builder.delete(account, &version.id).await {
            // Another request has deleted it.
            Ok(_) | Err(BuilderError::NotFound { .. }) => {}
            Err(error) => return Err(E2bError::of_builder(error)),
        }
    }
    Ok(view::empty(StatusCode::NO_CONTENT))
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
        assert!(
            ["v1", "latest", "a.B_c-d", "12345678-1234-1234-1234-12345678901g"].into_iter().all(is_accepted)
        );
        assert!(!["", ":v1", "name:", "name:v1", "a b"].into_iter().any(is_accepted));
        assert!(!is_accepted("12345678-1234-1234-1234-1234567890aB"), "it would hide a build");
        let given = ["v1", "V1", "dev", "v1"].map(str::to_owned);
        assert_eq!(checked_tags(given.to_vec()).unwrap(), ["v1", "dev"]);
    }
}
