//! Events of sandboxes, and events that clients post for their runs (sections 2.10 and 6.3).
//!
//! The server returns them from its records; clients post the events of agents and of LLM costs.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error as _, Expected, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::bounds::RUN_ID_CHARS;
use crate::{Pagination, SandboxId, Timestamp};

named! {
    /// Type of an event.
    #[derive(PartialOrd, Ord)]
    EventKind by as_str {
        SandboxCreated = "sandbox.created",
        SandboxStarted = "sandbox.started",
        SandboxPaused = "sandbox.paused",
        /// An addition: in the specification a paused sandbox stays in memory.
        SandboxHibernated = "sandbox.hibernated",
        SandboxResumed = "sandbox.resumed",
        SandboxTerminated = "sandbox.terminated",
        /// An addition: in the specification a timeout does not change.
        SandboxTimeoutChanged = "sandbox.timeout_changed",
        SandboxError = "sandbox.error",
        /// Additions: the specification has no snapshots.
        SandboxRolledBack = "sandbox.rolled_back",
        SandboxForked = "sandbox.forked",
        SnapshotCreated = "snapshot.created",
        SnapshotStored = "snapshot.stored",
        SnapshotDeleted = "snapshot.deleted",
        /// Additions: the specification has no templates.
        TemplateReady = "template.ready",
        TemplateFailed = "template.failed",
        TemplateDeleted = "template.deleted",
        ExecStarted = "exec.started",
        ExecCompleted = "exec.completed",
        ExecStreamed = "exec.streamed",
        ExecError = "exec.error",
        FileCreated = "file.created",
        FileRead = "file.read",
        FileDeleted = "file.deleted",
        FileError = "file.error",
        PortExposed = "port.exposed",
        PortClosed = "port.closed",
        /// An addition: the specification has no event types for the network.
        NetworkChanged = "network.changed",
        NetworkRefused = "network.refused",
        AgentThinking = "agent.thinking",
        AgentToolCall = "agent.tool_call",
        AgentToolResult = "agent.tool_result",
        AgentError = "agent.error",
        CostRuntime = "cost.runtime",
        CostLlm = "cost.llm",
    }
}

/// The text is not an event type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an event type")]
pub struct UnknownEventKind;

impl EventKind {
    /// The types that clients can post. The service records the others.
    pub const POSTED: [Self; 5] =
        [Self::AgentThinking, Self::AgentToolCall, Self::AgentToolResult, Self::AgentError, Self::CostLlm];

    fn deserialize_posted<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let kind = Self::POSTED.iter().copied().find(|kind| kind.as_str() == name);
        kind.ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&name), &PostedKind))
    }
}

/// The allowed types, for error messages.
struct PostedKind;

impl Expected for PostedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = EventKind::POSTED.iter().map(|kind| kind.as_str()).collect();
        write!(f, "{}; the service records the other types itself", names.join(", "))
    }
}

impl FromStr for EventKind {
    type Err = UnknownEventKind;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == text).ok_or(UnknownEventKind)
    }
}

/// Id of an event: `ev_` and 16 digits. Later events have greater ids, also when compared as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, pattern = "^ev_[0-9]{16}$", example = "ev_0000000000000042"))]
#[serde(try_from = "String", into = "String")]
pub struct EventId(pub u64);

/// The text is not an event id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an event's id is 'ev_' and 16 digits, such as 'ev_0000000000000042'")]
pub struct BadEventId;

const ID_PREFIX: &str = "ev_";
pub(crate) const ID_DIGITS: usize = 16;

impl FromStr for EventId {
    type Err = BadEventId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix(ID_PREFIX).ok_or(BadEventId)?;
        if digits.len() != ID_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(BadEventId);
        }
        digits.parse().map(Self).map_err(|_| BadEventId)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ID_PREFIX}{:0ID_DIGITS$}", self.0)
    }
}

impl TryFrom<String> for EventId {
    type Error = BadEventId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<EventId> for String {
    fn from(id: EventId) -> Self {
        id.to_string()
    }
}

/// Id of a run: a name that a client chooses for related work in any number of sandboxes. 1 to 128 visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, pattern = r"^[\x21-\x7e]{1,128}$", example = "run_7"))]
#[serde(into = "String")]
pub struct RunId(String);

/// The text is not a run id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a run's id is 1 to {RUN_ID_CHARS} visible ASCII characters")]
pub struct BadRunId;

impl RunId {
    /// The id as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RunId {
    type Err = BadRunId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits =
            (1..=RUN_ID_CHARS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if fits { Ok(Self(text.to_owned())) } else { Err(BadRunId) }
    }
}

impl TryFrom<String> for RunId {
    type Error = BadRunId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let wrong = |_| D::Error::invalid_type(Unexpected::Str(&text), &"1 to 128 visible ASCII characters");
        text.parse().map_err(wrong)
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RuntimeEvent {
    pub id: EventId,
    /// Time of the event.
    pub timestamp: Timestamp,
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// Id of the sandbox. Empty only in events that the client library records for a run without a sandbox; the service does
    /// not return such events.
    #[serde(with = "maybe_sandbox")]
    #[cfg_attr(feature = "openapi", schema(value_type = SandboxId))]
    pub sandbox_id: Option<SandboxId>,
    /// Id of the run to which the event belongs; `""` without a run.
    #[cfg_attr(feature = "openapi", schema(example = "run_7"))]
    pub run_id: String,
    /// Fields that depend on the type; see docs/events.md.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::event_data))]
    pub data: Map<String, Value>,
}

mod maybe_sandbox {
    //! A sandbox id or an empty string.

    use serde::de::{Deserialize, Deserializer, Error};
    use serde::{Serialize, Serializer};

    use crate::SandboxId;

    pub(super) fn serialize<S: Serializer>(id: &Option<SandboxId>, to: S) -> Result<S::Ok, S::Error> {
        match id {
            Some(id) => id.serialize(to),
            None => to.serialize_str(""),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SandboxId>, D::Error> {
        let text = String::deserialize(from)?;
        if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(D::Error::custom) }
    }
}

/// A page of events, in the order of their ids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventList {
    pub data: Vec<RuntimeEvent>,
    pub pagination: Pagination,
}

/// An event that a client posts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct EventBody {
    /// Type of the event. Clients can post only these.
    #[serde(rename = "type", deserialize_with = "EventKind::deserialize_posted")]
    #[cfg_attr(feature = "openapi", schema(schema_with = posted_kind))]
    pub kind: EventKind,
    pub run_id: RunId,
    /// Fields that depend on the type. At most 16 KiB as JSON.
    #[serde(default, skip_serializing_if = "Map::is_empty", deserialize_with = "object_or_empty")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::event_data, required = false))]
    pub data: Map<String, Value>,
    /// Time of the event. Default: the time of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::moment, required = false))]
    pub timestamp: Option<Timestamp>,
}

/// An object; an empty one if the field is absent.
fn object_or_empty<'de, D: Deserializer<'de>>(from: D) -> Result<Map<String, Value>, D::Error> {
    match Option::<Value>::deserialize(from)? {
        None => Ok(Map::new()),
        Some(Value::Object(object)) => Ok(object),
        Some(_) => Err(D::Error::invalid_type(Unexpected::Other("another value"), &"an object")),
    }
}

#[cfg(feature = "openapi")]
fn posted_kind() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
    let kinds = EventKind::POSTED.into_iter().map(EventKind::as_str);
    crate::schema::posted_kind(kinds, EventKind::AgentToolCall.as_str())
}

/// The body of a request that posts events: one, or an array of 1 to 100.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct EventsBody(pub Vec<EventBody>);

impl EventsBody {
    /// The most events in one request.
    pub const MAX: usize = 100;
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for EventsBody {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        use utoipa::openapi::schema::{ArrayBuilder, OneOfBuilder};
        let one = || utoipa::openapi::Ref::from_schema_name("EventBody");
        let more = ArrayBuilder::new().items(one()).min_items(Some(1)).max_items(Some(Self::MAX));
        OneOfBuilder::new().item(one()).item(more).into()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for EventsBody {}

/// The response to posted events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventsRecorded {
    /// Number of events recorded.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 100))]
    pub recorded: u32,
}

/// Schema of a time in a request.
#[cfg(feature = "openapi")]
pub struct Moment;

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for Moment {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        crate::schema::moment()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for Moment {}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for EventKind {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        crate::schema::kind(Self::ALL.iter().map(|kind| kind.as_str()), Self::ExecCompleted.as_str())
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for EventKind {}

/// Schema of the filter by type.
#[cfg(feature = "openapi")]
pub struct EventKinds;

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for EventKinds {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        crate::schema::kinds(EventKind::ALL.iter().map(|kind| kind.as_str()))
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for EventKinds {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ordered_as_texts_and_read_strictly() {
        let ids = [0, 9, 10, 999, 9_999_999_999_999_999].map(EventId);
        for pair in ids.windows(2) {
            assert!(pair[0].to_string() < pair[1].to_string());
        }
        for id in ids {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for text in
            ["", "ev_", "42", "ev_42", "ev_00000000000000042", "ev_000000000000004x", "ev_+000000000000042"]
        {
            assert_eq!(text.parse::<EventId>(), Err(BadEventId), "{text}");
        }
    }

    #[test]
    fn kinds_are_written_as_they_are_named() {
        // 22 of the specification, two for the network, one for timeouts, five for snapshots, one for hibernation and three
        // for templates.
        assert_eq!(EventKind::ALL.len(), 34);
        for kind in EventKind::ALL {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        assert_eq!("exec".parse::<EventKind>(), Err(UnknownEventKind));
    }

    #[test]
    fn clients_post_what_the_service_cannot_know() {
        let posted: Vec<&str> = EventKind::POSTED.iter().map(|kind| kind.as_str()).collect();
        let expected = ["agent.thinking", "agent.tool_call", "agent.tool_result", "agent.error", "cost.llm"];
        assert_eq!(posted, expected);
    }

    #[test]
    fn an_event_has_the_fields_of_the_record() {
        let json = r#"{"id":"ev_0000000000000042","timestamp":"2026-01-02T03:04:05.678Z","type":"exec.completed","sandboxId":"sb_aaaaaaaa","runId":"","data":{"command":"true","durationMs":3}}"#;
        let event: RuntimeEvent = serde_json::from_str(json).unwrap();
        assert_eq!((event.id, event.kind), (EventId(42), EventKind::ExecCompleted));
        assert_eq!(serde_json::to_string(&event).unwrap(), json);
        let nowhere = json.replace("sb_aaaaaaaa", "");
        let event: RuntimeEvent = serde_json::from_str(&nowhere).unwrap();
        assert_eq!((&event.sandbox_id, serde_json::to_string(&event).unwrap()), (&None, nowhere));
        assert!(serde_json::from_str::<RuntimeEvent>(&json.replace("sb_aaaaaaaa", "sb_")).is_err());
    }

    #[test]
    fn run_ids_are_valid_header_values() {
        for text in ["r", "run_7", &"x".repeat(128)] {
            assert_eq!(text.parse::<RunId>().unwrap().as_str(), text);
        }
        for text in ["", "a b", "ü", "a\n", &"x".repeat(129)] {
            assert_eq!(text.parse::<RunId>(), Err(BadRunId), "{text}");
        }
    }
}
