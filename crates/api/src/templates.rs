//! Templates: images that an account builds from a Dockerfile (docs/templates.md).

pub mod build_log;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    BuildContextId, CreateNetwork, CreateResources, Integer, Isolation, IsolationChoice, Pagination,
    TemplateId, Timestamp,
};

named! {
    /// State of a template.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    TemplateState by name {
        /// Its build waits for other builds.
        Queued = "queued",
        Building = "building",
        /// Sandboxes can be created from it.
        Ready = "ready",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

impl TemplateState {
    /// Whether its build is over.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Ready | Self::Failed | Self::Cancelled)
    }
}

/// The body of a request that builds a template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TemplateBody {
    /// The name is an image of the account when the template is ready. Each build of a name is a new version.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128, example = "web"))]
    #[cfg_attr(feature = "openapi", schema(pattern = r"^(?!snap_|tpl_|sb_)[a-z0-9][a-z0-9._/-]*$"))]
    pub name: String,
    /// The Dockerfile. Without it the context has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(nullable = false, min_length = 1, max_length = 262_144, pattern = r"^[^\x00]*$")
    )]
    #[cfg_attr(feature = "openapi", schema(example = "FROM ubuntu:24.04\nRUN echo hello > /greeting\n"))]
    pub dockerfile: Option<String>,
    /// The path of the Dockerfile in the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(nullable = false, min_length = 1, max_length = 4096, pattern = r"^[^\x00]*$")
    )]
    #[cfg_attr(feature = "openapi", schema(default = "Dockerfile"))]
    pub dockerfile_path: Option<String>,
    /// The build context: the id of an uploaded one, or a tar archive in base64, which may be compressed with gzip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::build_context, required = false))]
    pub context: Option<String>,
    /// Values of build arguments. They replace the defaults of `ARG`, and are part of the record of the template: not for secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::build_args, required = false))]
    pub build_args: Option<BTreeMap<String, String>>,
    /// A shell command that runs in every sandbox from the template. Where processes can be stored, sandboxes begin with a copy of
    /// its processes as they were at the end of the build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(nullable = false, min_length = 1, max_length = 65_536, pattern = r"^[^\x00]*$")
    )]
    #[cfg_attr(feature = "openapi", schema(example = "python3 -m http.server 8080"))]
    pub start_command: Option<String>,
    /// A shell command that succeeds when the start command is ready. It is repeated until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(nullable = false, min_length = 1, max_length = 65_536, pattern = r"^[^\x00]*$")
    )]
    #[cfg_attr(feature = "openapi", schema(example = "curl -sf http://127.0.0.1:8080"))]
    pub ready_command: Option<String>,
    /// Time in ms for the start command to become ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, nullable = false, minimum = 1, maximum = 3_600_000u64))]
    #[cfg_attr(feature = "openapi", schema(default = 60_000))]
    pub ready_timeout_ms: Option<Integer>,
    /// Of the sandboxes in which the steps run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub resources: Option<CreateResources>,
    /// Of the sandboxes in which the steps run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub network: Option<CreateNetwork>,
    /// Of the sandboxes in which the steps run. That of sandboxes from the template is at least as strong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = "auto"))]
    pub isolation: Option<IsolationChoice>,
    /// Time in ms for all steps together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, nullable = false, minimum = 1, maximum = 86_400_000u64))]
    #[cfg_attr(feature = "openapi", schema(default = 1_800_000))]
    pub timeout_ms: Option<Integer>,
    /// Whether to run all steps anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = false))]
    pub no_cache: Option<bool>,
    /// Your own tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::metadata, required = false))]
    pub metadata: Option<BTreeMap<String, String>>,
}

/// An uploaded build context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BuildContext {
    pub id: BuildContextId,
    /// Without compression.
    pub size_bytes: u64,
    /// It can be used until then.
    pub expires_at: Timestamp,
}

/// A template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Template))]
#[serde(rename_all = "camelCase")]
pub struct TemplateView {
    pub id: TemplateId,
    #[cfg_attr(feature = "openapi", schema(example = "web"))]
    pub name: String,
    /// Counts the builds of the name. `NAME:VERSION` is this template, `NAME` the newest ready one.
    #[cfg_attr(feature = "openapi", schema(example = 3))]
    pub version: u32,
    pub state: TemplateState,
    /// What the Dockerfile builds upon.
    #[cfg_attr(feature = "openapi", schema(example = "ubuntu:24.04"))]
    pub base: String,
    pub isolation: Isolation,
    pub steps: TemplateSteps,
    /// Disk space of its steps. Other templates can have steps in common with it.
    pub size_bytes: u64,
    /// Whether sandboxes from it continue the processes of the start command.
    pub memory: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub start_command: Option<String>,
    /// Why the build failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub error: Option<TemplateError>,
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::metadata))]
    pub metadata: BTreeMap<String, String>,
    pub created_at: Timestamp,
    /// Absent while it is built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub finished_at: Option<Timestamp>,
}

/// The steps of a build.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TemplateSteps {
    pub total: u32,
    /// Finished steps, those from the cache included.
    pub done: u32,
    /// Steps whose result an earlier build has left.
    pub cached: u32,
}

/// Why a build failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TemplateError {
    #[cfg_attr(feature = "openapi", schema(example = "line 2: the command exited with code 100"))]
    pub message: String,
    /// The line of the Dockerfile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, example = 2))]
    pub line: Option<u32>,
}

/// A page of templates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TemplateList {
    pub data: Vec<TemplateView>,
    pub pagination: Pagination,
}

/// A deleted template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TemplateDeleted {
    pub id: TemplateId,
    pub deleted_at: Timestamp,
}
