//! Images on the host and the progress of pulls (an addition to the specification).

use serde::{Deserialize, Serialize};

use crate::{Pagination, Timestamp};

named! {
    /// State of an image: `ready` for creates, or `pulling`.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    ImageStatus by name {
        /// On the host.
        Ready = "ready",
        /// Being pulled.
        Pulling = "pulling",
    }
}

/// Stage of a pull: `resolving` (the manifest), `fetching` (downloading and unpacking layers), `building` (a stand-in) or
/// `storing` (writing to disk).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PullStage {
    /// Reads the manifest.
    Resolving,
    /// Downloads and unpacks layers.
    Fetching,
    /// Builds a stand-in.
    Building,
    /// Syncs layers and record to disk.
    Storing,
}

/// Progress of a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PullProgress {
    pub stage: PullStage,
    /// Bytes of packed layers fetched so far; at most `totalBytes`.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, example = 8_388_608))]
    pub done_bytes: u64,
    /// Total size of the packed layers. 0 if unknown, for example while a stand-in is built.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, example = 29_754_290))]
    pub total_bytes: u64,
}

/// An image on the host (`digest`, `sizeBytes`, `createdAt`) or being pulled (`progress`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Image))]
#[serde(rename_all = "camelCase")]
pub struct ImageView {
    /// Name for create requests.
    #[cfg_attr(feature = "openapi", schema(example = "ubuntu:24.04"))]
    pub name: String,
    pub status: ImageStatus,
    /// Digest of the manifest or archive from which the image was stored. Absent while it is pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub digest: Option<String>,
    /// Disk space of its layers, including layers shared with other images. Absent while it is pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, minimum = 0))]
    pub size_bytes: Option<u64>,
    /// Time at which it was stored on the host. Absent while it is pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub created_at: Option<Timestamp>,
    /// What the image has in place of the one that its name promises, in a sentence. Absent for the image itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub stand_in: Option<String>,
    /// Progress of the pull. Absent for a ready image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub progress: Option<PullProgress>,
}

impl ImageView {
    /// An image on the host, which is what its name says.
    pub fn ready(name: String, digest: String, size_bytes: u64, created_at: Timestamp) -> Self {
        let (digest, size_bytes, created_at) = (Some(digest), Some(size_bytes), Some(created_at));
        Self {
            name,
            status: ImageStatus::Ready,
            digest,
            size_bytes,
            created_at,
            stand_in: None,
            progress: None,
        }
    }

    /// An image that is being pulled.
    pub fn pulling(name: String, progress: PullProgress) -> Self {
        let (digest, size_bytes, created_at) = (None, None, None);
        let progress = Some(progress);
        Self { name, status: ImageStatus::Pulling, digest, size_bytes, created_at, stand_in: None, progress }
    }
}

/// A page of images, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ImageList {
    pub data: Vec<ImageView>,
    pub pagination: Pagination,
}
