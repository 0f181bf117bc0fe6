//! What an image is once it is on this host.

use std::path::PathBuf;

use time::OffsetDateTime;

/// An image whose layers are unpacked on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub name: String,
    /// The source it really came from.
    pub source: String,
    /// `sha256:…` of what it was made from: the manifest, or the archive.
    pub digest: String,
    /// Unpacked layers, topmost first, owned by the image's own user ids (0 to 65535).
    pub layers: Vec<PathBuf>,
    pub config: ImageConfig,
    /// Set where the image only stands in for what its name promises: a sentence for people.
    pub stand_in: Option<String>,
    /// The versions of the programs that matter, where they are known: `("python", "3.11.2")`.
    pub versions: Vec<(String, String)>,
    /// Disk the layers take, counting layers that other images share.
    pub size_bytes: u64,
    pub created_at: OffsetDateTime,
}

/// What of an image's configuration applies. `Entrypoint` and `Cmd` are not read: a sandbox runs the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ImageConfig {
    pub env: Vec<(String, String)>,
    pub workdir: Option<String>,
    /// `USER` of the image. Kept to be shown; commands run as the sandbox's root all the same.
    pub user: Option<String>,
}
