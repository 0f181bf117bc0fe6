//! Snapshots, which their clients use as templates.

use api::{SnapshotBody, SnapshotId};
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use engine::{EngineError, HibernationError};
use rules::{ConfigRules, SnapshotQuery, SnapshotRequest, snapshot_request};
use serde_json::{Value, json};
use store::SnapshotRecord;

use super::body::NewSnapshot;
use super::paging::Page;
use super::{Call, query, route, view};
use crate::E2bApi;
use crate::error::E2bError;
use crate::run_defaults::RunDefaults;

fn shown(record: &SnapshotRecord) -> Value {
    json!({ "snapshotID": record.id, "names": record.name.iter().collect::<Vec<_>>() })
}

pub async fn take(call: Call, body: Body) -> Result<Response, E2bError> {
    let call = &call;
    let id = &call.sandbox_id()?;
    let (_, own) = call.find_with_options(id)?;
    let NewSnapshot { name, memory } = call.read(body).await?;
    let body = SnapshotBody { name, ..SnapshotBody::default() };
    let request = snapshot_request(body, &ConfigRules::default());
    let mut request = request.map_err(|error| E2bError::invalid(error.to_string()))?;
    // For the sandboxes that are created from the snapshot.
    RunDefaults::of_sandbox(&own).add_to(&mut request.metadata);
    let with = |memory| SnapshotRequest { memory, ..request.clone() };
    let is_asked = memory.unwrap_or(true) && call.can_store_processes(id);
    let mut taken = call.sandbox(id).take_snapshot(with(is_asked), None).await;
    // By default there are processes if that is possible.
    if memory.is_none()
        && matches!(taken, Err(EngineError::Hibernation(HibernationError::NotStorable { .. })))
    {
        taken = call.sandbox(id).take_snapshot(with(false), None).await;
    }
    let record = taken.map_err(|error| call.failed(id, error))?;
    Ok(view::json(StatusCode::CREATED, &shown(&record)))
}

/// A page of snapshots, newest first.
pub async fn list(call: Call, _: Body) -> Result<Response, E2bError> {
    let call = &call;
    let text = call.query.as_deref();
    let page = Page::read(text)?;
    let given = query::pairs(text);
    let given = |name: &str| given.get(name).filter(|value| !value.is_empty());
    let sandbox = given("sandboxID").map(|text| route::parse_id(text)).transpose();
    // An unknown sandbox has no snapshots.
    let Ok(sandbox) = sandbox else { return Ok(view::json(StatusCode::OK, &json!([]))) };
    let (name, Page { limit, offset }) = (given("name").cloned(), page);
    let query = SnapshotQuery { sandbox, name, metadata: Default::default(), limit, offset };
    let (found, total) = call.api.service.engine.list_snapshots(&call.caller.account, &query);
    let items: Vec<Value> = found.iter().map(|record| shown(record)).collect();
    let mut response = view::json(StatusCode::OK, &items);
    page.mark_next(&mut response, items.len(), total);
    Ok(response)
}

pub async fn delete(call: &Call, name: &str) -> Result<Response, E2bError> {
    let missing = || E2bError::not_found(format!("template {} not found", rules::quoted(name)));
    let id = named(&call.api, &call.caller.account, name).ok_or_else(missing)?;
    match call.api.service.engine.delete_snapshot(&call.caller.account, &id).await {
        Ok(_) => Ok(view::empty(StatusCode::NO_CONTENT)),
        Err(engine::EngineError::Snapshot(engine::SnapshotError::NotFound { .. })) => Err(missing()),
        Err(error) => Err(E2bError::of_engine(error)),
    }
}

/// The snapshot with this id, or the newest one with this name.
pub fn named(api: &E2bApi, account: &str, text: &str) -> Option<SnapshotId> {
    if let Ok(id) = text.parse() {
        return Some(id);
    }
    let query = SnapshotQuery {
        sandbox: None,
        name: Some(text.to_owned()),
        metadata: Default::default(),
        limit: 1,
        offset: 0,
    };
    let (newest, _) = api.service.engine.list_snapshots(account, &query);
    newest.first().map(|record| record.id.clone())
}
