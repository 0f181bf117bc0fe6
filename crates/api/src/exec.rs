//! A command as a client asks for it, and its result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One command, complete: defaults are already in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecuteRequest {
    pub command: String,
    /// The sandbox's `workdir` where none is given.
    pub cwd: Option<String>,
    pub env: BTreeMap<String, String>,
    pub timeout_ms: u64,
    pub stdin: Option<String>,
    pub auto_resume: bool,
}

/// How a command ended (section 2.7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionResult {
    pub stdout: String,
    pub stderr: String,
    pub exit_code: Option<i32>,
    pub duration_ms: u64,
    pub signal: Option<String>,
    /// Whether bytes are missing (decision 12); not in the body otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stdout_truncated: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stderr_truncated: bool,
}
