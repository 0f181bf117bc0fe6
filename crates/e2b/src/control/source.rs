//! What a create names: a template of the operator, a template or a snapshot of the account, or an image.

use std::sync::Arc;

use api::{Isolation, Resources};
use axum::http::StatusCode;
use axum::response::Response;
use rules::IsolationRules;
use serde_json::json;
use store::SnapshotRecord;

use super::{Call, snapshots, view};
use crate::error::E2bError;
use crate::{E2bApi, Template};

/// The template that an account has built with this name, unless the operator has one.
pub fn built(api: &E2bApi, account: &str, name: &str) -> Option<Arc<builder::Template>> {
    if api.settings.templates.contains_key(name) {
        return None;
    }
    api.builder.named(account, name)
}

/// The snapshot that a create names as its template, unless a template has this name.
async fn snapshot_of(
    api: &E2bApi,
    account: &str,
    name: &str,
) -> Result<Option<Arc<SnapshotRecord>>, E2bError> {
    if api.settings.templates.contains_key(name) {
        return Ok(None);
    }
    let Some(id) = snapshots::named(api, account, name) else { return Ok(None) };
    let missing = |_| E2bError::not_found(format!("template {} not found", rules::quoted(name)));
    api.engine.snapshot(account, &id).await.map(Some).map_err(missing)
}

/// Whether there is a template or a snapshot of this name.
pub async fn template(call: &Call<'_>, name: &str) -> Result<Response, E2bError> {
    let is_template = call.api.settings.templates.contains_key(name)
        || built(call.api, &call.caller.account, name).is_some();
    if !is_template && !matches!(snapshot_of(call.api, &call.caller.account, name).await, Ok(Some(_))) {
        return Err(E2bError::not_found(format!("template {} not found", rules::quoted(name))));
    }
    Ok(view::json(StatusCode::OK, &json!({ "templateID": name, "public": true })))
}

/// What a create names: the operator's template, a template or a snapshot of the account with its resources, or an image with the
/// default resources; and the weakest isolation that it allows.
pub async fn source(api: &E2bApi, account: &str, name: &str) -> Result<(Template, Isolation), E2bError> {
    let with = |image: String, Resources { cpu, memory_mb, disk_mb }| Template {
        image,
        cpu: Some(cpu),
        memory_mb: Some(memory_mb),
        disk_mb: Some(disk_mb),
    };
    if let Some(named) = api.settings.templates.get(name) {
        return Ok((named.clone(), Isolation::default()));
    }
    if let Some(built) = built(api, account, name) {
        let minimum = api.builder.minimum(&built);
        let (resources, isolation) = minimum.map_err(|error| api.services.builder_error(error))?;
        return Ok((with(name.to_owned(), resources), isolation));
    }
    if let Some(snapshot) = snapshot_of(api, account, name).await? {
        let rules = IsolationRules::new(&api.settings.isolation, account);
        let floor = rules.above(snapshot.isolation, &api.engine.images_below(&snapshot)).minimum(name);
        return Ok((with(snapshot.id.to_string(), snapshot.resources), floor));
    }
    let image = Template { image: name.to_owned(), cpu: None, memory_mb: None, disk_mb: None };
    Ok((image, Isolation::default()))
}
