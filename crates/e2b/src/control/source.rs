//! What a create names: a template of the operator, a template or a snapshot of the account, or an image.

use std::sync::Arc;

use api::{Isolation, Resources, SnapshotId, TemplateId};
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use builder::DEFAULT_TAG;
use rules::IsolationRules;
use serde_json::json;
use store::SnapshotRecord;

use super::reference::{self, MissingTag, Reference};
use super::{Call, snapshots, view};
use crate::error::E2bError;
use crate::run_defaults::RunDefaults;
use crate::{E2bApi, Template};

/// A template of the operator or of the account.
pub enum Named {
    Operator(Template),
    Account(Reference),
}

/// What the disk of a sandbox begins with.
pub enum Origin {
    /// The image that its configuration names.
    Image,
    Built(Arc<builder::Template>),
    Snapshot(SnapshotId),
}

/// What a sandbox is created from.
pub struct Source {
    pub origin: Origin,
    /// The name of the image, and the resources.
    pub template: Template,
    /// The weakest isolation that it allows.
    pub floor: Isolation,
    pub defaults: RunDefaults,
}

fn missing(text: &str) -> E2bError {
    E2bError::not_found(format!("template {} not found", rules::quoted(text)))
}

/// What a text names among the templates. One of the operator hides those of the account.
pub fn named(api: &E2bApi, account: &str, text: &str) -> Named {
    if let Some(template) = api.settings.templates.get(text) {
        return Named::Operator(template.clone());
    }
    let (name, tag) = reference::split(text);
    match (api.settings.templates.get(name), tag) {
        (Some(template), Some(tag)) if tag.eq_ignore_ascii_case(DEFAULT_TAG) => {
            Named::Operator(template.clone())
        }
        (Some(_), Some(tag)) => Named::Account(Reference::NoTag(MissingTag::new(name, tag))),
        _ => Named::Account(reference::resolve(&api.service.builder.list(account), text)),
    }
}

/// The snapshot with this id or name.
async fn snapshot_of(
    api: &E2bApi,
    account: &str,
    text: &str,
) -> Result<Option<Arc<SnapshotRecord>>, E2bError> {
    let Some(id) = snapshots::named(api, account, text) else { return Ok(None) };
    api.service.engine.snapshot(account, &id).await.map(Some).map_err(|_| missing(text))
}

/// The id of the template or of the snapshot that a name stands for.
pub async fn alias(call: Call, _: Body) -> Result<Response, E2bError> {
    let call = &call;
    let text = &call.text("template");
    let (api, account) = (&call.api, &*call.caller.account);
    let (id, is_public) = match named(api, account, text) {
        Named::Operator(_) => (reference::split(text).0.to_owned(), true),
        Named::Account(Reference::Version(version)) => (version.id.to_string(), false),
        Named::Account(other) => {
            match (any_version(api, account, text), snapshot_of(api, account, text).await) {
                // A name without a tag stands for its template from the first build on.
                (Some(version), _) => (version.id.to_string(), false),
                (None, Ok(Some(snapshot))) => (snapshot.id.to_string(), false),
                (None, _) => {
                    return Err(match other {
                        Reference::NoTag(tag) => tag.into_error(),
                        _ => missing(text),
                    });
                }
            }
        }
    };
    Ok(view::json(StatusCode::OK, &json!({ "templateID": id, "public": is_public })))
}

/// The version with an id, or the newest one with a name. It may not be ready.
fn any_version(api: &E2bApi, account: &str, text: &str) -> Option<Arc<builder::Template>> {
    let versions = reference::versions(&api.service.builder.list(account), text);
    versions.iter().find(|version| version.id.as_str() == text).or(versions.first()).cloned()
}

/// What a create begins with: the operator's template, a template or a snapshot of the account with its resources, or an image with the
/// default resources.
pub async fn find(api: &E2bApi, account: &str, text: &str) -> Result<Source, E2bError> {
    let refused = match named(api, account, text) {
        Named::Operator(template) => return Ok(of_operator(api, account, template)),
        Named::Account(Reference::Version(version)) => return of_version(api, text, version),
        Named::Account(Reference::NoTag(tag)) => Some(tag.into_error()),
        // No image has such a name.
        Named::Account(Reference::Unknown) => text.starts_with(TemplateId::PREFIX).then(|| missing(text)),
    };
    if let Some(snapshot) = snapshot_of(api, account, text).await? {
        return Ok(of_snapshot(api, account, text, &snapshot));
    }
    match refused {
        // Images have names with colons too.
        Some(error) if !api.service.images.is_in_catalogue(text) => Err(error),
        _ => Ok(of_image(Template { image: text.to_owned(), cpu: None, memory_mb: None, disk_mb: None })),
    }
}

fn of_image(template: Template) -> Source {
    Source { origin: Origin::Image, template, floor: Isolation::default(), defaults: RunDefaults::default() }
}

/// The operator can name an image, or what the account calls so.
fn of_operator(api: &E2bApi, account: &str, template: Template) -> Source {
    let own = || match api.settings.templates.contains_key(&template.image) {
        true => Reference::Unknown,
        false => reference::resolve(&api.service.builder.list(account), &template.image),
    };
    match (template.image.parse::<SnapshotId>(), own()) {
        (Ok(snapshot), _) => Source { origin: Origin::Snapshot(snapshot), ..of_image(template) },
        (Err(_), Reference::Version(version)) => {
            let defaults = RunDefaults::of_template(&version);
            Source { origin: Origin::Built(version), defaults, ..of_image(template) }
        }
        (Err(_), Reference::NoTag(_) | Reference::Unknown) => of_image(template),
    }
}

fn of_version(api: &E2bApi, text: &str, version: Arc<builder::Template>) -> Result<Source, E2bError> {
    let minimum = api.service.builder.minimum(&version);
    let (resources, floor) = minimum.map_err(E2bError::of_builder)?;
    let defaults = RunDefaults::of_template(&version);
    let template = with(text.to_owned(), resources);
    Ok(Source { origin: Origin::Built(version), template, floor, defaults })
}

fn of_snapshot(api: &E2bApi, account: &str, text: &str, snapshot: &SnapshotRecord) -> Source {
    let rules = IsolationRules::new(&api.settings.isolation, account);
    let floor = rules.above(snapshot.isolation, &api.service.engine.images_below(snapshot)).minimum(text);
    Source {
        origin: Origin::Snapshot(snapshot.id.clone()),
        template: with(snapshot.id.to_string(), snapshot.resources),
        floor,
        defaults: RunDefaults::of_snapshot(&snapshot.metadata),
    }
}

fn with(image: String, Resources { cpu, memory_mb, disk_mb }: Resources) -> Template {
    Template { image, cpu: Some(cpu), memory_mb: Some(memory_mb), disk_mb: Some(disk_mb) }
}

#[cfg(test)]
mod tests {
    use api::TemplateState;

    use super::*;
    use crate::control::reference::tests::version;

    #[test]
    fn a_template_has_its_last_user_and_directory() {
        let of = |default_user: bool, user: Option<&str>, workdir: Option<&str>| {
            let mut template = builder::Template::clone(&version("web", 1, TemplateState::Ready, &[]));
            template.content.config.default_user = default_user;
            template.content.settings.user = user.map(str::to_owned);
            template.content.settings.workdir = workdir.map(str::to_owned);
            let RunDefaults { user, workdir } = RunDefaults::of_template(&template);
            (user, workdir)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of(true, Some("app"), Some("/srv")), (some("app"), some("/srv")));
        assert_eq!(of(true, None, None), (some("root"), some("/")));
        // Of the native API, without USER and WORKDIR.
        assert_eq!(of(false, None, None), (None, None));
        assert_eq!(of(false, Some("app"), None), (some("app"), None));
    }
}
