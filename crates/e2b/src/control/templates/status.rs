//! The state of a build and its log, as their clients poll it.

use api::{BuildEvent, BuildStep, TemplateId, TemplateState, Timestamp};
use axum::http::StatusCode;
use axum::response::Response;
use builder::LogEvent;
use serde_json::{Value, json};

use super::super::{Call, query, view};
use super::{build_id, failure};
use crate::error::E2bError;

/// Most entries of a response.
const MAX_ENTRIES: usize = 100;

pub async fn status(call: &Call<'_>, id: &TemplateId) -> Result<Response, E2bError> {
    let given = query::pairs(call.query.as_deref());
    let offset = given.get("logsOffset").and_then(|offset| offset.parse().ok()).unwrap_or(0);
    let account = &*call.caller.account;
    let template = match call.api.builder.find(account, id) {
        Ok(template) => template,
        Err(_) if call.api.pending.find(account, id).is_some() => {
            return Ok(view::json(StatusCode::OK, &shown(id, "waiting", &[], None)));
        }
        Err(error) => return Err(call.api.services.builder_error(error)),
    };
    let status = match template.state {
        TemplateState::Queued | TemplateState::Building => "building",
        TemplateState::Ready => "ready",
        TemplateState::Failed | TemplateState::Cancelled => "error",
    };
    let entries = entries(call, id, offset).await?;
    let reason = template.content.error.as_ref().map(|error| {
        let steps = template.content.steps;
        let is_starting = template.content.start.is_some() && steps.done + 1 == steps.total;
        failure::reason(error, &template.content.dockerfile, is_starting)
    });
    Ok(view::json(StatusCode::OK, &shown(id, status, &entries, reason)))
}

fn shown(id: &TemplateId, status: &str, entries: &[Value], reason: Option<Value>) -> Value {
    let logs: Vec<&Value> = entries.iter().map(|entry| &entry["message"]).collect();
    let mut shown = json!({
        "templateID": id, "buildID": build_id(id), "status": status, "logs": logs, "logEntries": entries,
    });
    if let Some(reason) = reason {
        shown["reason"] = reason;
    }
    shown
}

/// Entries of the log from an offset on, without those that are still to come.
async fn entries(call: &Call<'_>, id: &TemplateId, offset: usize) -> Result<Vec<Value>, E2bError> {
    let reader = call.api.builder.log(&call.caller.account, id, 0);
    let reader = reader.map_err(|error| call.api.services.builder_error(error))?;
    let Some(mut reader) = reader else { return Ok(Vec::new()) };
    let (mut skipped, mut entries) = (0, Vec::new());
    while let Some(events) = reader.next_now().map_err(|_| E2bError::internal())? {
        for event in &events {
            if skipped < offset {
                skipped += 1;
            } else if entries.len() < MAX_ENTRIES {
                entries.push(entry(event));
            }
        }
        if entries.len() == MAX_ENTRIES {
            break;
        }
    }
    Ok(entries)
}

fn entry(event: &LogEvent) -> Value {
    let level = if event.kind == BuildEvent::Stderr { "warn" } else { "info" };
    let step: Option<BuildStep> =
        (event.kind == BuildEvent::Step).then(|| serde_json::from_str(&event.data).ok()).flatten();
    let message = match step {
        Some(step) => {
            let cached = if step.cached { "CACHED " } else { "" };
            format!("{cached}[builder {}/{}] {}", step.number, step.total, step.text)
        }
        None => event.data.clone(),
    };
    json!({ "timestamp": Timestamp::from(event.at), "level": level, "message": message })
}
