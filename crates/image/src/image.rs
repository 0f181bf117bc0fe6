//! An image on this host.

use std::path::PathBuf;

use time::OffsetDateTime;

use crate::client::NamedBy;

/// An image whose layers are unpacked on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub name: String,
    /// The source from which it was pulled.
    pub source: String,
    /// `sha256:…` of the manifest or the archive.
    pub digest: String,
    /// Unpacked layers, topmost first, owned by the image's own user ids (0 to 65535).
    pub layers: Vec<PathBuf>,
    pub config: ImageConfig,
    /// Set for a stand-in: a sentence that explains it to users.
    pub stand_in: Option<String>,
    /// Known versions of programs: `("python", "3.11.2")`.
    pub versions: Vec<(String, String)>,
    /// Bytes of the layers on disk, including layers that other images share.
    pub size_bytes: u64,
    /// Bytes of each layer. Empty if an earlier version has stored the image.
    pub layer_bytes: Vec<u64>,
    /// Who has named the image: an image of the operator is for all accounts.
    pub named_by: NamedBy,
    pub created_at: OffsetDateTime,
}

/// The used part of an image's configuration. `Entrypoint` and `Cmd` are not used: a sandbox runs the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ImageConfig {
    pub env: Vec<(String, String)>,
    pub workdir: Option<String>,
    /// `USER` of the image. Only shown; commands run as the sandbox's root.
    pub user: Option<String>,
}
