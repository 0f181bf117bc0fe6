//! Which images of registries accounts may name, what their pulls may take, and which images they have requested.

mod allowed;
mod ledger;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};

use base::IgnorePoison;
use image::{ClientPull, Images};
use rules::{ImagePolicy, ImageReference, ImageRefusal};

use ledger::PullLedger;

pub use allowed::{AllowedImages, AllowedImagesError, Changed};

/// From this number on, names without an image are forgotten.
const REMEMBERED: usize = 1_000;

/// The operator's choices for images that accounts name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageSettings {
    pub policy: ImagePolicy,
    /// Of all images on this host; 0 is unlimited.
    pub max_bytes: u64,
    /// Of one account; 0 is unlimited.
    pub pull_bytes_per_day: u64,
}

/// Decides about images that accounts name.
pub struct ImageAccess {
    settings: ImageSettings,
    added: AllowedImages,
    ledger: Arc<PullLedger>,
    /// The accounts that have requested an image since the start of the daemon.
    requested: Mutex<HashMap<String, BTreeSet<String>>>,
}

impl ImageAccess {
    pub fn open(data_dir: &Path, settings: ImageSettings) -> Self {
        Self {
            ledger: Arc::new(PullLedger::open(data_dir, settings.pull_bytes_per_day)),
            added: AllowedImages::in_dir(data_dir),
            settings,
            requested: Mutex::default(),
        }
    }

    /// Whether the account may name the image. If the added patterns cannot be read, those of the configuration apply alone.
    pub async fn check(&self, account: &str, reference: &ImageReference) -> Result<(), ImageRefusal> {
        let added = self.added.clone();
        let read = tokio::task::spawn_blocking(move || added.read()).await;
        let added = match read {
            Ok(Ok(added)) => added,
            Ok(Err(error)) => {
                tracing::error!(error = base::chain_text(&error), "cannot read the added patterns of images");
                Vec::new()
            }
            Err(error) => {
                tracing::error!(%error, "the task that reads the added patterns of images panicked");
                Vec::new()
            }
        };
        self.settings.policy.check(account, reference, &added)
    }

    /// The limit of all images on this host, if there is one.
    pub fn max_bytes(&self) -> Option<u64> {
        Some(self.settings.max_bytes).filter(|bytes| *bytes > 0)
    }

    /// What a pull of the account is charged to. It leaves so many bytes free on the host.
    pub fn pull_of(&self, account: &str, min_free_bytes: u64) -> ClientPull {
        let quota = Arc::clone(&self.ledger);
        ClientPull { account: account.into(), quota, max_unpacked_bytes: self.max_bytes(), min_free_bytes }
    }

    /// Stores what was pulled.
    pub fn save(&self) {
        self.ledger.save();
    }

    /// Notes that the account has requested an image.
    pub fn note_request(&self, account: &str, image: &str, images: &Images) {
        let mut requested = self.requested.lock().ignore_poison();
        if requested.len() >= REMEMBERED {
            requested.retain(|name, _| images.get(name).is_some());
        }
        requested.entry(image.to_owned()).or_default().insert(account.to_owned());
    }

    /// Whether the account has requested an image.
    pub fn has_requested(&self, account: &str, image: &str) -> bool {
        let requested = self.requested.lock().ignore_poison();
        requested.get(image).is_some_and(|accounts| accounts.contains(account))
    }
}
