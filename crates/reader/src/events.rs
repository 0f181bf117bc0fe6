//! The body of posted events: one, or an array of them.

use api::{EventBody, EventKind, RunId, Timestamp};
use rules::{ConfigError, POSTED_DATA_BYTES, POSTED_MAX, is_posted, shown};

use crate::Refusal;
use crate::fields::Fields;

const EVENT: &[&str] = &["type", "runId", "data", "timestamp"];

/// Reads a body of one event or of several; all of them are good, or none is taken.
pub fn posted_events(body: &[u8]) -> Result<Vec<EventBody>, Refusal> {
    Fields::of_each(body, EVENT, POSTED_MAX)?.iter().map(event).collect()
}

fn event(fields: &Fields<'_>) -> Result<EventBody, Refusal> {
    let name = fields.required_text("type")?;
    let kind = name.parse().ok().filter(|kind: &EventKind| is_posted(*kind)).ok_or_else(|| {
        let posted = EventKind::ALL.iter().filter(|kind| is_posted(**kind)).map(|kind| kind.as_str());
        let posted: Vec<&str> = posted.collect();
        let allowed = format!("one of {}; the service says the others itself", posted.join(", "));
        ConfigError { field: fields.path("type"), got: shown(&name), allowed }
    })?;
    let run_id: RunId = fields.required("runId", "1 to 128 visible ASCII characters")?;
    let timestamp: Option<Timestamp> =
        fields.parsed("timestamp", "a time of RFC 3339, such as '2026-01-02T03:04:05.678Z'")?;
    let data = fields.free("data", POSTED_DATA_BYTES)?.unwrap_or_default();
    Ok(EventBody { kind, run_id, data, timestamp })
}
