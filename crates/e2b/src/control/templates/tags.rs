//! Tags of templates.

use api::Timestamp;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use builder::DEFAULT_TAG;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::reference::{self, Reference, build_id};
use super::super::{Call, view};
use super::{checked_tags, missing};
use crate::error::E2bError;

#[derive(Debug, Deserialize)]
struct Assign {
    target: String,
    tags: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Remove {
    name: String,
    tags: Vec<String>,
}

/// Assigns tags to the version that a tag names.
pub async fn assign(call: Call, content: Body) -> Result<Response, E2bError> {
    let call = &call;
    let Assign { target, tags } = call.read(content).await?;
    let tags = checked_tags(tags)?;
    let template = match reference::resolve(&call.api.service.builder.list(&call.caller.account), &target) {
        Reference::Version(version) => version,
        Reference::NoTag(tag) => return Err(tag.into_error()),
        Reference::Unknown => return Err(missing(&target)),
    };
    let changed = call.api.service.builder.add_tags(&template, &tags).await;
    let changed = changed.map_err(E2bError::of_builder)?;
    let shown = json!({ "buildID": build_id(&changed.id), "tags": tags });
    Ok(view::json(StatusCode::CREATED, &shown))
}

/// A template always keeps the tag that its name stands for.
pub async fn remove(call: Call, content: Body) -> Result<Response, E2bError> {
    let call = &call;
    let Remove { name, tags } = call.read(content).await?;
    let tags = checked_tags(tags)?;
    if tags.iter().any(|tag| tag == DEFAULT_TAG) {
        return Err(E2bError::invalid(format!("the tag '{DEFAULT_TAG}' cannot be removed")));
    }
    let account = &*call.caller.account;
    let versions = reference::versions(&call.api.service.builder.list(account), &name);
    let name = versions.first().map(|version| version.name.clone()).ok_or_else(|| missing(&name))?;
    let removed = call.api.service.builder.remove_tags(account, &name, &tags).await;
    match removed.map_err(E2bError::of_builder)? {
        0 => Err(missing(&name)),
        _ => Ok(view::empty(StatusCode::NO_CONTENT)),
    }
}

/// The tags of a template, each with the newest build that has it.
pub async fn list(call: Call, _: Body) -> Result<Response, E2bError> {
    let call = &call;
    let text = &call.text("template");
    let own = call.api.service.builder.list(&call.caller.account);
    if reference::versions(&own, text).is_empty() {
        return Err(missing(text));
    }
    let shown = reference::tags(&own, text).into_iter().map(|(tag, version)| {
        let created = Timestamp::from(version.created_at);
        json!({ "tag": tag, "buildID": build_id(&version.id), "createdAt": created })
    });
    Ok(view::json(StatusCode::OK, &shown.collect::<Vec<Value>>()))
}
