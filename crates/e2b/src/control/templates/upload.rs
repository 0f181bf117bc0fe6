//! Receives the files that the steps of a requested build copy.

use api::TemplateId;
use axum::body::Body;
use axum::http::{HeaderMap, Method, StatusCode, request};
use axum::response::Response;
use builder::Incoming;
use http_body_util::BodyExt;
use rules::{Charge, KeyCharge, Scope};
use serde_json::json;

use super::super::{Call, KEY, query, view};
use super::{missing, recipe};
use crate::error::E2bError;
use crate::services::Caller;
use crate::{E2bApi, tokens};

/// Where the files with a hash are uploaded to.
pub fn upload_link(call: &Call<'_>, id: &TemplateId, hash: &str) -> Result<Response, E2bError> {
    let hash = recipe::checked_hash(hash)?;
    let build = call.api.pending.find(&call.caller.account, id).ok_or_else(|| missing(id.as_str()))?;
    if build.files.contains_key(hash) {
        return Ok(view::json(StatusCode::CREATED, &json!({ "present": true })));
    }
    let settings = &call.api.settings;
    let host = call.authority.clone().unwrap_or_else(|| format!("api.{}", settings.domain));
    let token = call.api.tokens.upload(id, hash, &call.caller.key_id);
    let url = format!("{}://{host}/templates/{id}/files/{hash}?token={token}", settings.scheme);
    Ok(view::json(StatusCode::CREATED, &json!({ "present": false, "url": url })))
}

/// Receives files. The link has a token instead of a key, and the request counts as one of that key.
pub async fn upload(
    api: &E2bApi,
    id: &TemplateId,
    hash: &str,
    parts: &request::Parts,
    mut content: Body,
) -> Result<Response, E2bError> {
    let hash = recipe::checked_hash(hash)?;
    let caller = holder(api, id, hash, parts.uri.query())
        .ok_or_else(|| E2bError::new(StatusCode::FORBIDDEN, "the link is not valid"))?;
    api.services.count(&caller, Charge::Key(KeyCharge::Write))?;
    let permit = api.services.enter(&caller.account, &parts.headers)?;
    let failed = |error| api.services.builder_error(error);
    let account = api.pending.account_of(id).ok_or_else(|| missing(id.as_str()))?;
    let mut incoming: Incoming = api.builder.incoming(&account).map_err(failed)?;
    while let Some(frame) = content.frame().await {
        let frame = frame.map_err(|_| E2bError::invalid("the body ended early"))?;
        if let Ok(data) = frame.into_data() {
            incoming = incoming.write(data).await.map_err(failed)?;
        }
    }
    let stored = incoming.finish().await.map_err(failed)?;
    api.pending.add_files(id, hash.to_owned(), stored, api.builder.max_context_bytes())?;
    Ok(permit(view::empty(StatusCode::OK)))
}

/// The key that a link was made for. `None` if the link, its build or its key is not valid.
fn holder(api: &E2bApi, id: &TemplateId, hash: &str, query: Option<&str>) -> Option<Caller> {
    let token = query::pairs(query).remove("token")?;
    let account = api.pending.account(id)?;
    let keys = api.services.keys(&account);
    let key = tokens::key_of(&token, &keys, |key_id| api.tokens.upload(id, hash, key_id))?;
    key.scopes.allows(Scope::Write).then(|| key.clone())
}

/// The headers that only links have.
pub fn is_upload(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::PUT && !headers.contains_key(KEY)
}
