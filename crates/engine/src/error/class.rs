//! What the class of an error says: who is to blame, and whether a repetition can help.

/// The class of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The request is refused. Its caller may see the text.
    Refused(Retry),
    /// The agent failed. The sandbox's processes may be gone then.
    AgentFailed(Retry),
    /// The isolation backend failed. The sandbox's processes may be gone then.
    BackendFailed(Retry),
    /// The service failed, beside the sandbox.
    ServiceFailed(Retry),
}

/// Whether the same request may succeed later without a change by the caller or the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    Useful,
    Useless,
}
