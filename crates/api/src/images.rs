//! The images of a service, and how far those are that it is fetching (an addition of ours).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Pagination, Timestamp};

/// Whether a sandbox can be made of it at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ImageStatus {
    /// It is here.
    Ready,
    /// It is being fetched.
    Pulling,
}

impl fmt::Display for ImageStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "ready",
            Self::Pulling => "pulling",
        })
    }
}

/// What a service that fetches an image is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PullStage {
    /// It asks what the image consists of.
    Resolving,
    /// It fetches and unpacks layers.
    Fetching,
    /// It builds a stand-in.
    Building,
    /// It writes to disk for good.
    Storing,
}

/// How far a service is with an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PullProgress {
    pub stage: PullStage,
    /// Of the packed layers; never above `totalBytes`.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, example = 8_388_608))]
    pub done_bytes: u64,
    /// 0 where no size is known, as while it is built.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, example = 29_754_290))]
    pub total_bytes: u64,
}

/// An image that is here or on its way. What goes with its status is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Image))]
#[serde(rename_all = "camelCase")]
pub struct ImageView {
    /// As a create names it.
    #[cfg_attr(feature = "openapi", schema(example = "ubuntu:24.04"))]
    pub name: String,
    pub status: ImageStatus,
    /// Of what it was made from: a manifest or an archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub digest: Option<String>,
    /// Disk that its layers take, those that it shares with others too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, minimum = 0))]
    pub size_bytes: Option<u64>,
    /// When it came here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub created_at: Option<Timestamp>,
    /// Of one that is being fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub progress: Option<PullProgress>,
}

impl ImageView {
    /// One that is here.
    pub fn ready(name: String, digest: String, size_bytes: u64, created_at: Timestamp) -> Self {
        let (digest, size_bytes, created_at) = (Some(digest), Some(size_bytes), Some(created_at));
        Self { name, status: ImageStatus::Ready, digest, size_bytes, created_at, progress: None }
    }

    /// One that is being fetched.
    pub fn pulling(name: String, progress: PullProgress) -> Self {
        let (digest, size_bytes, created_at) = (None, None, None);
        let progress = Some(progress);
        Self { name, status: ImageStatus::Pulling, digest, size_bytes, created_at, progress }
    }
}

/// A page of images, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ImageList {
    pub data: Vec<ImageView>,
    pub pagination: Pagination,
}
