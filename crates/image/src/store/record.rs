//! The stored record of an image: everything except its layers.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::client::{Audience, NamedBy};
use crate::image::{Image, ImageConfig};
use crate::store::Store;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ImageRecord {
    pub(crate) name: String,
    pub(crate) source: String,
    pub(crate) digest: String,
    /// Topmost first.
    pub(crate) layers: Vec<String>,
    pub(crate) config: ImageConfig,
    pub(crate) stand_in: Option<String>,
    pub(crate) versions: Vec<(String, String)>,
    pub(crate) size_bytes: u64,
    /// As [`Image::layer_bytes`].
    #[serde(default)]
    pub(crate) layer_bytes: Vec<u64>,
    /// `None` if an earlier version has stored it.
    #[serde(default)]
    pub(crate) named_by: Option<NamedBy>,
    /// Who may use its layers. `None` if an earlier version has stored it: nobody may until it is pulled again.
    #[serde(default)]
    pub(crate) audience: Option<Audience>,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) created_at: OffsetDateTime,
}

impl ImageRecord {
    /// Earlier versions stored what a client had named under its reference.
    fn named_by(&self) -> NamedBy {
        let of_reference = || if self.source == self.name { NamedBy::Client } else { NamedBy::Operator };
        self.named_by.unwrap_or_else(of_reference)
    }

    pub(crate) fn into_image(self, store: &Store) -> Image {
        Image {
            named_by: self.named_by(),
            layers: self.layers.iter().map(|id| store.layer_path(id)).collect(),
            name: self.name,
            source: self.source,
            digest: self.digest,
            config: self.config,
            stand_in: self.stand_in,
            versions: self.versions,
            size_bytes: self.size_bytes,
            layer_bytes: self.layer_bytes,
            created_at: self.created_at,
        }
    }
}
