//! The state of a build and its log, as their clients poll it.

use std::borrow::Cow;
use std::sync::Arc;

use admission::error::ApiError;
use api::{BuildEvent, BuildStep, TemplateId, TemplateState, Timestamp};
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use builder::{LogEvent, Template};
use serde_json::{Value, json};

use super::super::logs::Level;
use super::super::reference::{self, build_id};
use super::super::{Call, query, view};
use super::failure::{self, BuildStage};
use super::{missing, no_build};
use crate::error::E2bError;

/// Most entries of a response.
const MAX_ENTRIES: usize = 100;

/// The state of a build of a template. Any id of the template names it.
pub async fn status(call: Call, _: Body) -> Result<Response, E2bError> {
    let call = &call;
    let id = &call.template_id()?;
    let given = query::pairs(call.query.as_deref());
    let offset = given.get("logsOffset").and_then(|offset| offset.parse().ok()).unwrap_or(0);
    let Some(template) = of_path(call, id)? else {
        return Ok(view::json(StatusCode::OK, &shown(id, id, "waiting", &[], None)));
    };
    // The client waits for it. It can have been deleted a moment ago.
    let polled = call.api.service.builder.polled(&call.caller.account, &template.id);
    polled.map_err(|_| no_build(&call.text("build")))?;
    let status = word(template.state);
    let entries = entries(call, &template.id, offset).await?;
    let reason = template.content.error.as_ref().map(|error| {
        let steps = template.content.steps;
        let is_starting = template.content.start.is_some() && steps.done + 1 == steps.total;
        let stage = if is_starting { BuildStage::Start } else { BuildStage::Steps };
        failure::reason(error, &template.content.dockerfile, stage)
    });
    Ok(view::json(StatusCode::OK, &shown(id, &template.id, status, &entries, reason)))
}

/// The build of a path; `None` if it is requested and has not been started.
pub fn of_path(call: &Call, id: &TemplateId) -> Result<Option<Arc<Template>>, E2bError> {
    let (account, wanted) = (&*call.caller.account, &call.text("build"));
    let own = call.api.service.builder.list(account);
    let Some(template) = reference::of_build(&own, id, wanted) else {
        let is_known = !reference::versions(&own, id.as_str()).is_empty();
        let is_requested = call.api.pending.find(account, id).is_some();
        return match is_requested && build_id(id).eq_ignore_ascii_case(wanted) {
            true => Ok(None),
            false if is_requested || is_known => Err(no_build(wanted)),
            false => Err(missing(id.as_str())),
        };
    };
    Ok(Some(template))
}

/// The name of a state in this API.
pub fn word(state: TemplateState) -> &'static str {
    match state {
        TemplateState::Queued | TemplateState::Building => "building",
        TemplateState::Ready => "ready",
        TemplateState::Failed | TemplateState::Cancelled => "error",
    }
}

/// A build, which has made the version, as the client named its template.
fn shown(
    template: &TemplateId,
    version: &TemplateId,
    status: &str,
    entries: &[Value],
    reason: Option<Value>,
) -> Value {
    let logs: Vec<&Value> = entries.iter().map(|entry| &entry["message"]).collect();
    let mut shown = json!({
        "templateID": template, "buildID": build_id(version), "status": status, "logs": logs,
        "logEntries": entries,
    });
    if let Some(reason) = reason {
        shown["reason"] = reason;
    }
    shown
}

/// Entries of the log from an offset on, without those that are still to come.
async fn entries(call: &Call, id: &TemplateId, offset: usize) -> Result<Vec<Value>, E2bError> {
    let reader = call.api.service.builder.log(&call.caller.account, id, 0);
    let reader = reader.map_err(E2bError::of_builder)?;
    let Some(mut reader) = reader else { return Ok(Vec::new()) };
    let (mut skipped, mut entries) = (0, Vec::new());
    while let Some(events) = reader.next_now().map_err(ApiError::internal)? {
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
        // A log can have hundreds of thousands of lines, and the thread has other requests.
        tokio::task::yield_now().await;
    }
    Ok(entries)
}

/// An entry of the log.
pub fn entry(event: &LogEvent) -> Value {
    let timestamp = Timestamp::from(event.at);
    json!({ "timestamp": timestamp, "level": level(event).name(), "message": message(event) })
}

/// The text of an entry as their builder words it.
pub fn message(event: &LogEvent) -> Cow<'_, str> {
    let step: Option<BuildStep> =
        (event.kind == BuildEvent::Step).then(|| serde_json::from_str(&event.data).ok()).flatten();
    match step {
        Some(step) => {
            let cached = if step.cached { "CACHED " } else { "" };
            format!("{cached}[builder {}/{}] {}", step.number, step.total, step.text).into()
        }
        None => event.data.as_str().into(),
    }
}

/// How grave an entry is.
pub fn level(event: &LogEvent) -> Level {
    if event.kind == BuildEvent::Stderr { Level::Warn } else { Level::Info }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_entry(kind: BuildEvent, data: &str) -> (Value, Value) {
        let event = LogEvent { kind, at: rules::TimeMs(1_700_000_000_000), data: data.to_owned(), id: 1 };
        let shown = entry(&event);
        assert_eq!(shown["timestamp"], "2023-11-14T22:13:20.000Z");
        (shown["level"].clone(), shown["message"].clone())
    }

    #[test]
    fn steps_are_worded_as_their_builder_does() {
        let step = |cached: bool| {
            let step = BuildStep { number: 2, total: 5, line: 9, text: "RUN make".to_owned(), cached };
            log_entry(BuildEvent::Step, &serde_json::to_string(&step).unwrap())
        };
        assert_eq!(step(false), (json!("info"), json!("[builder 2/5] RUN make")));
        assert_eq!(step(true), (json!("info"), json!("CACHED [builder 2/5] RUN make")));
        assert_eq!(log_entry(BuildEvent::Step, "{"), (json!("info"), json!("{")));
    }

    #[test]
    fn only_stderr_warns_and_only_steps_are_parsed() {
        let json = r#"{"number":1,"total":1,"line":1,"text":"x","cached":false}"#;
        assert_eq!(log_entry(BuildEvent::Stderr, json), (json!("warn"), json!(json)));
        assert_eq!(log_entry(BuildEvent::Stdout, "a"), (json!("info"), json!("a")));
        assert_eq!(log_entry(BuildEvent::Note, "b"), (json!("info"), json!("b")));
    }

    #[test]
    fn a_cancelled_build_is_an_error_and_a_queued_one_builds() {
        for (state, name) in [
            (TemplateState::Queued, "building"),
            (TemplateState::Building, "building"),
            (TemplateState::Ready, "ready"),
            (TemplateState::Failed, "error"),
            (TemplateState::Cancelled, "error"),
        ] {
            assert_eq!(word(state), name, "{state:?}");
        }
    }

    #[test]
    fn the_messages_are_there_twice_and_the_build_is_that_of_the_version() {
        let (template, version) = (TemplateId::from_random([1; 20]), TemplateId::from_random([2; 20]));
        let entries =
            [json!({ "message": "a", "level": "info" }), json!({ "message": "b", "level": "warn" })];
        let body = shown(&template, &version, "building", &entries, None);
        assert_eq!((&body["templateID"], &body["buildID"]), (&json!(template), &json!(build_id(&version))));
        assert_eq!((&body["logs"], &body["logEntries"]), (&json!(["a", "b"]), &json!(entries)));
        assert!(body.get("reason").is_none(), "clients take any reason for a failure");
        let failed = shown(&template, &version, "error", &[], Some(json!({ "message": "m" })));
        assert_eq!((&failed["reason"], &failed["logs"]), (&json!({ "message": "m" }), &json!([])));
    }
}
