//! The context and the result of one attempt at one source. Created by [`crate::images`], used by all kinds of
//! sources.

use std::collections::HashSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use permits::SharedPermit;
use tempfile::TempDir;
use tokio::sync::{Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use crate::client::{Audience, ClientCharge};
use crate::fault::Fault;
use crate::image::ImageConfig;
use crate::layers::{Build, LayerTable, Reuse, Slot, TREE};
use crate::limits::Budget;
use crate::progress::Meter;
use crate::store::Store;
use crate::unpack::{Rules, Unpacked, Whiteouts, unpack};

/// Whether an existing Debian build may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Builds {
    Reuse,
    Renew,
}

/// One attempt.
pub(crate) struct Job {
    pub(crate) store: Arc<Store>,
    pub(crate) layers: Arc<LayerTable>,
    pub(crate) unpacks: Arc<Semaphore>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) meter: Arc<Meter>,
    /// Tracks the blocking work of this attempt.
    pub(crate) working: TaskTracker,
    pub(crate) builds: Builds,
    /// The name of the image.
    pub(crate) name: String,
    /// For a stand-in the reason: the sources that failed before.
    pub(crate) stands_in_because: Option<String>,
    /// For a pull of a client.
    pub(crate) charge: Option<Arc<ClientCharge>>,
}

/// An image whose layers are unpacked, but not stored yet.
pub(crate) struct UnpackedImage {
    pub(crate) digest: String,
    pub(crate) audience: Audience,
    /// Topmost first.
    pub(crate) layers: Vec<Arc<Slot>>,
    pub(crate) config: ImageConfig,
    pub(crate) stand_in: Option<String>,
    pub(crate) versions: Vec<(String, String)>,
    /// Builds to record, by key; held until the layers are stored.
    pub(crate) built: Vec<(String, Arc<Build>, Arc<Slot>)>,
}

/// Cancels a blocking unpack when its caller stops waiting.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl Job {
    pub(crate) fn scratch(&self) -> Result<TempDir, Fault> {
        self.store.scratch().map_err(Fault::io("create a work directory"))
    }

    /// Checks the size of the layers that are missing, and waits for the turn of the account if a client has caused the pull.
    pub(crate) async fn begin_transfer(&self, bytes: u64) -> Result<Option<SharedPermit>, Fault> {
        let allowed = self.budget.limits.unpacked_bytes;
        if bytes > allowed {
            return Err(Fault::too_big(format!(
                "the layers to pull have {bytes} bytes; at most {allowed} are allowed"
            )));
        }
        let Some(charge) = &self.charge else { return Ok(None) };
        charge.check(bytes)?;
        let turn = charge.transfer_turn().await;
        // Other pulls of the account may have taken them meanwhile.
        charge.check(bytes)?;
        self.budget.check_reserve(bytes)?;
        Ok(Some(turn))
    }

    /// Counts bytes that were received from a registry.
    pub(crate) fn receive(&self, bytes: u64) -> Result<(), Fault> {
        self.meter.add(bytes);
        self.budget.wrote(bytes)?;
        self.charge.as_ref().map_or(Ok(()), |charge| charge.take(bytes))
    }

    /// Unpacks a file into a new work directory, below [`TREE`].
    pub(crate) async fn unpack_file(
        &self,
        path: PathBuf,
        whiteouts: Whiteouts,
    ) -> Result<(Unpacked, TempDir), Fault> {
        self.unpack_with(whiteouts, move |tree, rules| {
            let file = File::open(&path).map_err(Fault::io(format!("open {}", path.display())))?;
            unpack(file, tree, rules)
        })
        .await
    }

    /// Runs `work` on a blocking thread, a few at a time in this process, with an empty tree to fill.
    pub(crate) async fn unpack_with<W>(
        &self,
        whiteouts: Whiteouts,
        work: W,
    ) -> Result<(Unpacked, TempDir), Fault>
    where
        W: FnOnce(&std::path::Path, &Rules) -> Result<Unpacked, Fault> + Send + 'static,
    {
        let (_of_host, _of_client) = match &self.charge {
            None => {
                let permit = self.unpacks.acquire().await;
                (Some(permit.map_err(Fault::io("wait for a permit to unpack"))?), None)
            }
            Some(charge) => (None, Some(charge.unpack_turn().await)),
        };
        let scratch = self.scratch()?;
        let cancelled = Arc::new(AtomicBool::new(false));
        let _cancel = CancelOnDrop(cancelled.clone());
        let rules = Rules { whiteouts, budget: self.budget.clone(), cancelled };
        let work = move || {
            let tree = scratch.path().join(TREE);
            std::fs::create_dir(&tree).map_err(Fault::io("create a work directory"))?;
            // An archive without an entry for its root must not get the restrictive mode of the work directory.
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&tree, mode).map_err(Fault::io("create a work directory"))?;
            let unpacked = work(&tree, &rules)?;
            Ok((unpacked, scratch))
        };
        let (sender, done) = oneshot::channel();
        self.working.spawn_blocking(move || {
            // If the receiver was dropped, this removes the work directory before the task counts as ended.
            drop(sender.send(work()));
        });
        done.await.map_err(Fault::io("unpack"))?
    }

    /// Waits for blocking work that continues after a failed attempt, so that nothing is left when the failure is
    /// reported.
    pub(crate) async fn wait_for_work(&self) {
        self.working.close();
        self.working.wait().await;
    }

    /// The layers on disk that a pull may use as they are.
    pub(crate) async fn reusable_layers(&self, audience: &Audience) -> Result<HashSet<String>, Fault> {
        let (store, audience) = (self.store.clone(), audience.clone());
        let read = base::blocking(move || store.layers_for(&audience)).await;
        read.map_err(Fault::io("read the image records"))
    }

    /// Adds an unpacked tree to the layers of the operator. If the layer exists already, the tree is dropped.
    pub(crate) async fn add_layer(&self, id: &str, scratch: TempDir) -> Result<Arc<Slot>, Fault> {
        let slot = self.layers.slot(&Audience::Everyone, id);
        slot.fill(&self.store, Reuse::Allowed, async { Ok(scratch) }).await?;
        Ok(slot)
    }
}
