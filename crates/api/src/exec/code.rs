//! Code that the interpreter of a sandbox runs, and its results (an addition to the specification).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Integer, RunId};

/// The body of a request that runs code. Only `code` is required.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CodeBody {
    /// At most 1 MiB of UTF-8.
    #[cfg_attr(feature = "openapi", schema(required = true, max_length = 1_048_576, example = "1 + 1"))]
    #[cfg_attr(feature = "openapi", schema(pattern = r"^[^\x00]*$"))]
    pub code: String,
    /// `python`, `javascript`, `bash`, or the name of a Jupyter kernel that the image has. Not allowed with `contextId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(nullable = false, max_length = 100, pattern = "^[A-Za-z0-9_.+#-]+$", default = "python")
    )]
    pub language: Option<String>,
    /// The context in which the code runs. Default: the default context of the language.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, max_length = 100, pattern = "^[A-Za-z0-9-]+$"))]
    pub context_id: Option<String>,
    /// Environment variables for this execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::command_env, required = false))]
    pub env: Option<BTreeMap<String, String>>,
    /// Time in ms after which the code is interrupted. Paused time does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, nullable = false, minimum = 1, maximum = 300_000))]
    #[cfg_attr(feature = "openapi", schema(default = 60_000))]
    pub timeout_ms: Option<Integer>,
    /// Whether to resume a paused sandbox. If `false`, the request fails with `INVALID_STATE` while the sandbox is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = true))]
    pub auto_resume: Option<bool>,
}

/// Checked code with all defaults applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeRequest {
    pub code: String,
    pub language: Option<String>,
    pub context_id: Option<String>,
    pub env: BTreeMap<String, String>,
    pub timeout_ms: u64,
    pub auto_resume: bool,
    /// The run of its events.
    pub run_id: Option<RunId>,
}

/// One value that code showed, in one or more forms.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CodeResult {
    /// Whether it is the value of the last expression, and not something that the code displayed.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub is_main_result: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, example = "2"))]
    pub text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub html: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub markdown: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub svg: Option<String>,
    /// A PNG in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub png: Option<String>,
    /// A JPEG in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub jpeg: Option<String>,
    /// A PDF in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub pdf: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub latex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub json: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub javascript: Option<String>,
    /// A data frame: a list of values by name of the column, for at most 1,000 rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, value_type = Object))]
    pub data: Option<Value>,
    /// A description of a chart, if the kernel sends one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, value_type = Object))]
    pub chart: Option<Value>,
    /// Other forms by MIME type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, value_type = Object))]
    pub extra: Option<Map<String, Value>>,
}

/// What the code raised, or why it could not end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct CodeException {
    /// Its class. `KernelDied` if the kernel ended, `Timeout` if the code was interrupted at its `timeoutMs`.
    #[cfg_attr(feature = "openapi", schema(required = true, example = "ZeroDivisionError"))]
    pub name: String,
    #[cfg_attr(feature = "openapi", schema(required = true, example = "division by zero"))]
    pub value: String,
    /// May contain ANSI escape sequences for colors.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub traceback: String,
}

/// The outcome of code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CodeExecution {
    pub stdout: String,
    pub stderr: String,
    pub results: Vec<CodeResult>,
    /// `null` if the code ended without one.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub exception: Option<CodeException>,
    /// The number of the execution in its context. `null` if the code did not start.
    #[cfg_attr(feature = "openapi", schema(required = true, example = 1))]
    pub execution_count: Option<u64>,
    /// The context in which the code ran.
    pub context_id: String,
    /// Elapsed time in ms, paused time included.
    #[cfg_attr(feature = "openapi", schema(example = 12))]
    pub duration_ms: u64,
    /// `true` if part of `stdout` or `stderr` was omitted. Absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub output_truncated: bool,
}

/// The data of `done`, the last event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CodeDone {
    /// The number of the execution in its context. `null` if the code did not start.
    #[cfg_attr(feature = "openapi", schema(required = true, example = 1))]
    pub execution_count: Option<u64>,
    /// The context in which the code ran.
    pub context_id: String,
    /// Elapsed time in ms, paused time included.
    #[cfg_attr(feature = "openapi", schema(example = 12))]
    pub duration_ms: u64,
    /// `true` if part of `stdout` or `stderr` was omitted. Absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub output_truncated: bool,
}

/// The data of the events `stdout` and `stderr` of a stream of code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeText {
    pub text: String,
}

named! {
    /// The events of a stream of code, by message name.
    CodeEvent by as_str {
        /// The data is a [`CodeText`].
        Stdout = "stdout",
        /// The data is a [`CodeText`].
        Stderr = "stderr",
        /// The data is a [`CodeResult`].
        Result = "result",
        /// The data is a [`CodeException`].
        Exception = "exception",
        /// The end of the code; the data is a [`CodeDone`].
        Done = "done",
    }
}

/// The body of a request that creates a context. All fields are optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CodeContextBody {
    /// `python`, `javascript`, `bash`, or the name of a Jupyter kernel that the image has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(nullable = false, max_length = 100, pattern = "^[A-Za-z0-9_.+#-]+$", default = "python")
    )]
    pub language: Option<String>,
    /// Working directory. Default: the sandbox's `workdir`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::path, required = false))]
    pub cwd: Option<String>,
}

/// A context: a kernel, which keeps its state from one execution to the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CodeContext {
    pub context_id: String,
    #[cfg_attr(feature = "openapi", schema(example = "python"))]
    pub language: String,
    #[cfg_attr(feature = "openapi", schema(example = "/workspace"))]
    pub cwd: String,
}

/// The contexts of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CodeContextList {
    pub data: Vec<CodeContext>,
}

/// The response to the removal of a context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CodeContextRemoved {
    pub context_id: String,
    /// Always `true`.
    pub removed: bool,
}
