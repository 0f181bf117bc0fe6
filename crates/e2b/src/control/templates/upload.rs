//! Receives the files that the steps of a requested build copy.

use admission::keyring::Caller;
use api::TemplateId;
use axum::body::Body;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use builder::Incoming;
use http_body_util::BodyExt;
use rules::Scope;
use serde_json::json;

use super::super::{Call, query, route, view};
use super::{missing, recipe};
use crate::error::E2bError;
use crate::{E2bApi, tokens};

/// Where the files with a hash are uploaded to.
pub async fn upload_link(call: Call, _: Body) -> Result<Response, E2bError> {
    let call = &call;
    let (id, hash) = (&call.template_id()?, &call.text("hash"));
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

/// Receives files. The request counts as one of the key that the link was made for.
pub async fn upload(call: Call, mut content: Body) -> Result<Response, E2bError> {
    let (api, id, hash) = (&call.api, &call.template_id()?, &call.text("hash"));
    let hash = recipe::checked_hash(hash)?;
    let account = api.pending.account_of(id).ok_or_else(|| missing(id.as_str()))?;
    let mut incoming: Incoming = api.service.builder.incoming(&account).map_err(E2bError::of_builder)?;
    while let Some(frame) = content.frame().await {
        let frame = frame.map_err(|_| E2bError::invalid("the body ended early"))?;
        if let Ok(data) = frame.into_data() {
            incoming = incoming.write(data).await.map_err(E2bError::of_builder)?;
        }
    }
    let stored = incoming.finish().await.map_err(E2bError::of_builder)?;
    api.pending.add_files(id, hash.to_owned(), stored, api.service.builder.max_context_bytes())?;
    Ok(view::empty(StatusCode::OK))
}

/// The key that the link of a request was made for. It has a token instead of a key.
pub fn link_holder(api: &E2bApi, uri: &Uri) -> Result<Caller, E2bError> {
    let invalid = || E2bError::new(StatusCode::FORBIDDEN, "the link is not valid");
    let (id, hash) = route::upload(uri.path()).ok_or_else(invalid)?;
    holder(api, &id, recipe::checked_hash(&hash)?, uri.query()).ok_or_else(invalid)
}

/// The key that a link was made for. `None` if the link, its build or its key is not valid.
fn holder(api: &E2bApi, id: &TemplateId, hash: &str, query: Option<&str>) -> Option<Caller> {
    let token = query::pairs(query).remove("token")?;
    let account = api.pending.account(id)?;
    let keys = api.service.gate.keyring.of_account(&account);
    let key = tokens::key_of(&token, &keys, |key_id| api.tokens.upload(id, hash, key_id))?;
    key.scopes.allows(Scope::Write).then(|| key.clone())
}
