//! `PATCH` of templates. Their clients publish templates to all accounts; here a template belongs to one account.

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;

use super::super::{Call, reference, view};
use super::missing;
use crate::error::E2bError;

#[derive(Debug, Default, Deserialize)]
struct Update {
    public: Option<bool>,
}

/// Answers with the names of the template.
pub async fn update(call: Call, content: Body) -> Result<Response, E2bError> {
    let call = &call;
    let text = &call.text("template");
    let name = updated(call, text, content).await?;
    Ok(view::json(StatusCode::OK, &json!({ "names": [name] })))
}

/// As [`update`], for old clients, which read no answer.
pub async fn update_silently(call: Call, content: Body) -> Result<Response, E2bError> {
    let call = &call;
    let text = &call.text("template");
    updated(call, text, content).await?;
    Ok(view::json(StatusCode::OK, &json!(null)))
}

async fn updated(call: &Call, text: &str, content: Body) -> Result<String, E2bError> {
    let Update { public } = call.read(content).await?;
    let own = call.api.service.builder.list(&call.caller.account);
    let versions = reference::versions(&own, reference::split(text).0);
    let version = versions.first().ok_or_else(|| missing(text))?;
    match public {
        Some(true) => {
            let message = "public is true; allowed: false. Templates of this service belong to one account; other accounts can \
                           build their own";
            Err(E2bError::invalid(message))
        }
        Some(false) | None => Ok(version.name.clone()),
    }
}
