//! Forks of a sandbox.

use admission::record::CreatedSandboxes;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use engine::{EngineError, HibernationError, TimeoutChange};
use rules::{ForkRequest, IsolationRules};
use serde_json::{Value, json};

use super::body::Fork;
use super::{Call, limits, view};
use crate::error::E2bError;

const MAX_COUNT: u32 = 20;

/// All new sandboxes, or an error for all. They have the disk of the sandbox, and its processes if the isolation
/// can copy them.
pub async fn fork(call: Call, body: Body) -> Result<Response, E2bError> {
    let call = &call;
    let id = &call.sandbox_id()?;
    // The forks have the same options.
    let (_, own) = call.find_with_options(id)?;
    let Fork { timeout, count } = call.read(body).await?;
    let timeout_ms = timeout.map(limits::timeout_ms).transpose()?;
    let count = count.unwrap_or(1);
    let allowed = u32::try_from(count).ok().filter(|count| (1..=MAX_COUNT).contains(count));
    let invalid = || E2bError::invalid(format!("count is {count}; allowed: 1 to {MAX_COUNT}"));
    let request = ForkRequest {
        count: allowed.ok_or_else(invalid)?,
        env: Default::default(),
        name: None,
        metadata: None,
        memory: call.can_store_processes(id),
        isolation: IsolationRules::new(&call.api.settings.isolation, &call.caller.account),
    };
    let mut forked = call.sandbox(id).fork(request.clone(), None).await;
    // There are processes if that is possible.
    if matches!(forked, Err(EngineError::Hibernation(HibernationError::NotStorable { .. }))) {
        forked = call.sandbox(id).fork(ForkRequest { memory: false, ..request }, None).await;
    }
    let (mut shown, mut ids) = (Vec::new(), Vec::new());
    for status in forked.map_err(|error| call.failed(id, error))? {
        let fork = &status.record.id;
        if let Some(ms) = timeout_ms {
            let changed = call.sandbox(fork).change_timeout(TimeoutChange::Set(ms)).await;
            changed.map_err(|error| call.failed(fork, error))?;
        }
        ids.push(fork.clone());
        shown.push(json!({ "sandbox": view::sandbox(&call.api, &call.caller, fork, &own) }));
    }
    let mut response = view::json(StatusCode::CREATED, &Value::from(shown));
    response.extensions_mut().insert(CreatedSandboxes(ids));
    Ok(response)
}
