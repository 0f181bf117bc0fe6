//! What one attempt at one source works with, and what it gives. Made by [`crate::images`], used by every kind of source.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tempfile::TempDir;
use tokio::sync::{Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use crate::fault::Fault;
use crate::image::ImageConfig;
use crate::layers::{Build, LayerTable, Slot, TREE};
use crate::limits::Budget;
use crate::progress::Meter;
use crate::store::Store;
use crate::unpack::{Rules, Unpacked, Whiteouts, unpack};

/// Whether a Debian build of an earlier day will do.
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
    /// The blocking work of this attempt.
    pub(crate) working: TaskTracker,
    pub(crate) builds: Builds,
    /// The name the image is fetched for.
    pub(crate) name: String,
    /// Why it only stands in, where it does: the sources that failed before.
    pub(crate) stands_in_because: Option<String>,
}

/// An image whose layers are ready, not yet in place.
pub(crate) struct Outcome {
    pub(crate) digest: String,
    /// Topmost first.
    pub(crate) layers: Vec<Arc<Slot>>,
    pub(crate) config: ImageConfig,
    pub(crate) stand_in: Option<String>,
    pub(crate) versions: Vec<(String, String)>,
    /// Builds to remember, by key; held until the layers are in place.
    pub(crate) built: Vec<(String, Arc<Build>, Arc<Slot>)>,
}

/// Tells a blocking unpack that nobody waits for it any more.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl Job {
    pub(crate) fn scratch(&self) -> Result<TempDir, Fault> {
        self.store.scratch().map_err(Fault::io("make a work directory"))
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
        let _turn = self.unpacks.acquire().await.map_err(Fault::io("wait for a turn to unpack"))?;
        let scratch = self.scratch()?;
        let cancelled = Arc::new(AtomicBool::new(false));
        let _cancel = CancelOnDrop(cancelled.clone());
        let rules = Rules { whiteouts, budget: self.budget.clone(), cancelled };
        let work = move || {
            let tree = scratch.path().join(TREE);
            std::fs::create_dir(&tree).map_err(Fault::io("make a work directory"))?;
            // What an archive says nothing of must not keep the work directory's closed mode.
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&tree, mode).map_err(Fault::io("make a work directory"))?;
            let unpacked = work(&tree, &rules)?;
            Ok((unpacked, scratch))
        };
        let (tell, done) = oneshot::channel();
        self.working.spawn_blocking(move || {
            // If nobody waits any more, the work directory is removed here, before the task counts as ended.
            drop(tell.send(work()));
        });
        done.await.map_err(Fault::io("unpack"))?
    }

    /// Waits for work that went on after the attempt failed, so that nothing of it is left when that is told.
    pub(crate) async fn settle(&self) {
        self.working.close();
        self.working.wait().await;
    }

    /// Gives an unpacked tree its place among the layers; a tree that is there already is thrown away.
    pub(crate) async fn adopt(&self, id: &str, scratch: TempDir) -> Result<Arc<Slot>, Fault> {
        let slot = self.layers.slot(id);
        slot.fill(&self.store, async { Ok(scratch) }).await?;
        Ok(slot)
    }
}
