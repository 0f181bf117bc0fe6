//! The body of posted events: one, or an array of them.

use api::{EventBody, EventKind, RunId, Timestamp};
use rules::{ConfigError, POSTED_DATA_BYTES, POSTED_MAX, is_posted};

use crate::Refusal;
use crate::fields::Fields;

const EVENT: &[&str] = &["type", "runId", "data", "timestamp"];

/// Reads a body of one event or of several; all of them are good, or none is taken.
pub fn posted_events(body: &[u8]) -> Result<Vec<EventBody>, Refusal> {
    Fields::of_each(body, EVENT, POSTED_MAX)?.iter().map(event).collect()
}

fn event(fields: &Fields<'_>) -> Result<EventBody, Refusal> {
    let kind: EventKind =
        fields.required("type", "a type of event that clients post, such as 'agent.tool_call'")?;
    if !is_posted(kind) {
        let allowed = "an 'agent.' type or 'cost.llm'; the service says the others itself".to_owned();
        return Err(ConfigError { field: fields.path("type"), got: format!("'{kind}'"), allowed }.into());
    }
    let run_id: RunId = fields.required("runId", "1 to 128 visible ASCII characters")?;
    let timestamp: Option<Timestamp> =
        fields.parsed("timestamp", "a time of RFC 3339, such as '2026-01-02T03:04:05.678Z'")?;
    let data = fields.free("data", POSTED_DATA_BYTES)?.unwrap_or_default();
    Ok(EventBody { kind, run_id, data, timestamp })
}
