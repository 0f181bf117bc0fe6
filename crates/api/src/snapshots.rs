//! Snapshots of sandboxes, and the requests that use them (docs/snapshots.md).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Integer, Isolation, Pagination, SandboxId, SandboxView, SnapshotId, Timestamp};

named! {
    /// State of a snapshot.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    SnapshotState by name {
        /// It is stored, and sandboxes can be created from it.
        Ready = "ready",
    }
}

named! {
    /// Where the files of a snapshot are.
    #[derive(Default)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    SnapshotStorage by name {
        /// On the host of the service. It has no object store, or the snapshot belongs to a template.
        #[default]
        Local = "local",
        /// On the host; the copy in the object store is not complete yet.
        Uploading = "uploading",
        /// On the host and in the object store.
        Stored = "stored",
        /// In the object store. The next use copies it to the host.
        Remote = "remote",
    }
}

/// A snapshot: the content of a sandbox's disk at one moment, and on request its processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Snapshot))]
#[serde(rename_all = "camelCase")]
pub struct SnapshotView {
    pub id: SnapshotId,
    /// The sandbox that it was taken of. That sandbox may have been terminated since.
    pub sandbox_id: SandboxId,
    /// The name that its creator chose. Absent without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, example = "after-setup"))]
    pub name: Option<String>,
    /// The `image` of the sandbox: the name of an image, or the id of a snapshot, which may have been deleted since.
    #[cfg_attr(feature = "openapi", schema(example = "ubuntu:24.04"))]
    pub image: String,
    pub isolation: Isolation,
    /// Whether it contains the processes and their memory.
    pub memory: bool,
    /// Disk space that it takes. What it shares with the image and with other snapshots is not counted.
    pub size_bytes: u64,
    pub state: SnapshotState,
    /// Where its files are. Absent in responses of earlier versions of the service, which have no object store.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub storage: SnapshotStorage,
    pub created_at: Timestamp,
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::metadata))]
    pub metadata: BTreeMap<String, String>,
}

/// A page of snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SnapshotList {
    pub data: Vec<SnapshotView>,
    pub pagination: Pagination,
}

/// A deleted snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SnapshotDeleted {
    pub id: SnapshotId,
    pub deleted_at: Timestamp,
}

/// The new sandboxes of a fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ForkList {
    pub data: Vec<SandboxView>,
}

/// The body of a request that takes a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SnapshotBody {
    /// A name of your choice. Several snapshots can have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, min_length = 1, max_length = 128))]
    #[cfg_attr(feature = "openapi", schema(pattern = r"^[^\x00-\x1f\x7f]*$", example = "after-setup"))]
    pub name: Option<String>,
    /// Your own tags. Lists can be filtered by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::metadata, required = false))]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Whether to store the processes and their memory too. `GET /v1/info` lists the backends that can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = false))]
    pub memory: Option<bool>,
}

/// The body of a request that rolls a sandbox back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RollbackBody {
    /// A snapshot of this sandbox: its id, or its name, which means the newest of those with it.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    #[cfg_attr(feature = "openapi", schema(pattern = r"^[^\x00-\x1f\x7f]*$", example = "after-setup"))]
    pub snapshot_id: String,
}

/// The body of a request that forks a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ForkBody {
    /// Number of new sandboxes.
    #[cfg_attr(feature = "openapi", schema(value_type = u32, minimum = 1, maximum = 100, example = 3))]
    pub count: Integer,
    /// Environment variables, added to those of the sandbox. They override variables of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::command_env, required = false))]
    pub env: Option<BTreeMap<String, String>>,
    /// The name of the new sandbox, if `count` is 1. Forks have no name otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::sandbox_name, required = false))]
    pub name: Option<String>,
    /// Tags of the new sandboxes, in place of those of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::fork_metadata, required = false))]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Whether the new sandboxes continue copies of the processes, instead of running new ones. `GET /v1/info` lists the backends that can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = false))]
    pub memory: Option<bool>,
}
