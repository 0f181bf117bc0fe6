//! Tags of templates.

use api::Timestamp;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{Call, view};
use super::{build_id, checked_tags, missing};
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
pub async fn assign(call: &Call<'_>, content: Body) -> Result<Response, E2bError> {
    let Assign { target, tags } = call.read(content).await?;
    let tags = checked_tags(tags)?;
    let template = call.api.builder.named(&call.caller.account, &target).ok_or_else(|| missing(&target))?;
    let changed = call.api.builder.add_tags(&template, &tags).await;
    let changed = changed.map_err(|error| call.api.services.builder_error(error))?;
    let shown = json!({ "buildID": build_id(&changed.id), "tags": tags });
    Ok(view::json(StatusCode::CREATED, &shown))
}

pub async fn remove(call: &Call<'_>, content: Body) -> Result<Response, E2bError> {
    let Remove { name, tags } = call.read(content).await?;
    let removed = call.api.builder.remove_tags(&call.caller.account, &name, &checked_tags(tags)?).await;
    match removed.map_err(|error| call.api.services.builder_error(error))? {
        0 => Err(missing(&name)),
        _ => Ok(view::empty(StatusCode::NO_CONTENT)),
    }
}

/// The tags of a name, or of the name of a template.
pub fn list(call: &Call<'_>, text: &str) -> Result<Response, E2bError> {
    let own = call.api.builder.list(&call.caller.account);
    let name = own.iter().find(|template| template.id.as_str() == text || template.name == text);
    let name = name.map(|template| template.name.clone()).ok_or_else(|| missing(text))?;
    let mut shown: Vec<Value> = Vec::new();
    for template in own.iter().filter(|template| template.name == name) {
        let created = Timestamp::from(template.created_at);
        for tag in &template.content.tags {
            shown.push(json!({ "tag": tag, "buildID": build_id(&template.id), "createdAt": created }));
        }
    }
    Ok(view::json(StatusCode::OK, &shown))
}
