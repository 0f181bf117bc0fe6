//! The record of an event, and its kinds.

use std::fmt;

use api::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Something that happened in a run.
///
/// ```
/// let json = r#"{"id":"ev_1","timestamp":"2026-01-05T10:31:07.412Z","type":"exec.completed",
///     "sandboxId":"sb_abcdefgh","runId":"a","data":{"command":"true","durationMs":3}}"#;
/// let event: client::RuntimeEvent = serde_json::from_str(json)?;
/// assert_eq!((event.kind, event.data["durationMs"].as_u64()), (client::EventKind::ExecCompleted, Some(3)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeEvent {
    pub id: String,
    pub timestamp: Timestamp,
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// Empty where it is about no sandbox.
    pub sandbox_id: String,
    /// Empty where there is no run.
    pub run_id: String,
    pub data: Map<String, Value>,
}

/// What an answer of a model cost.
///
/// ```
/// let cost = client::LlmCost {
///     model: "m-1".into(), input_tokens: 900, output_tokens: 50, amount: 0.004, currency: "USD".into(),
/// };
/// assert_eq!(serde_json::to_value(&cost).unwrap()["inputTokens"], 900);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LlmCost {
    pub model: String,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub amount: f64,
    /// Such as `USD`.
    pub currency: String,
}

macro_rules! kinds {
    ($($variant:ident $name:literal,)+) => {
        /// The kinds of events (section 6.3 of the specification).
        ///
        /// ```
        /// assert_eq!(client::EventKind::AgentToolCall.to_string(), "agent.tool_call");
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum EventKind {
            $(#[doc = concat!("`", $name, "`")] #[serde(rename = $name)] $variant,)+
        }

        impl EventKind {
            /// All kinds, in the order of the specification.
            ///
            /// ```
            /// assert_eq!(client::EventKind::ALL.len(), 22);
            /// ```
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// As records write it.
            ///
            /// ```
            /// assert_eq!(client::EventKind::CostLlm.as_str(), "cost.llm");
            /// ```
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

kinds! {
    SandboxCreated "sandbox.created",
    SandboxStarted "sandbox.started",
    SandboxPaused "sandbox.paused",
    SandboxResumed "sandbox.resumed",
    SandboxTerminated "sandbox.terminated",
    SandboxError "sandbox.error",
    ExecStarted "exec.started",
    ExecCompleted "exec.completed",
    ExecStreamed "exec.streamed",
    ExecError "exec.error",
    FileCreated "file.created",
    FileRead "file.read",
    FileDeleted "file.deleted",
    FileError "file.error",
    PortExposed "port.exposed",
    PortClosed "port.closed",
    AgentThinking "agent.thinking",
    AgentToolCall "agent.tool_call",
    AgentToolResult "agent.tool_result",
    AgentError "agent.error",
    CostRuntime "cost.runtime",
    CostLlm "cost.llm",
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
