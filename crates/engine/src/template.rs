//! What a sandbox begins with: an unpacked image on this host, or a snapshot, with the holds that keep it there.

pub mod hold;

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use api::SnapshotId;

use hold::SnapshotHold;

/// An unpacked image on this host, or a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pub name: String,
    pub digest: String,
    /// Topmost first.
    pub layers: Vec<PathBuf>,
    /// `NAME=value`.
    pub env: Vec<String>,
    /// The disk of a snapshot that is copied as the first content of the sandbox's disk.
    pub disk_from: Option<PathBuf>,
    /// The snapshot whose processes continue.
    pub processes_from: Option<SnapshotId>,
    /// The snapshots that it needs.
    pub hold: SnapshotHold,
    /// The image that it needs.
    pub image: ImageHold,
}

impl Template {
    pub fn of_image(name: String, digest: String, layers: Vec<PathBuf>, env: Vec<String>) -> Self {
        Self {
            name,
            digest,
            layers,
            env,
            disk_from: None,
            processes_from: None,
            hold: SnapshotHold::default(),
            image: ImageHold::default(),
        }
    }

    /// Keeps the image on this host until the sandbox that it is for is recorded: whoever removes images asks who has them.
    #[must_use]
    pub fn holding(self, image: Arc<dyn Any + Send + Sync>) -> Self {
        Self { image: ImageHold { _held: Some(image) }, ..self }
    }

    /// Whether it is of a snapshot instead of an image.
    pub fn is_snapshot(&self) -> bool {
        self.hold.holds_any()
    }
}

/// Keeps an image on this host. Clones hold the same one. The default holds none.
#[derive(Debug, Clone, Default)]
pub struct ImageHold {
    _held: Option<Arc<dyn Any + Send + Sync>>,
}

impl PartialEq for ImageHold {
    /// What is held is part of the layers, which are compared as well.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ImageHold {}

/// Finds an image on this host by its name.
pub type FindImage = Arc<dyn Fn(&str) -> Option<Template> + Send + Sync>;
