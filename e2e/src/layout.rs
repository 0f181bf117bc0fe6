//! The directories, cgroup and user ids of a rig on the host, and their removal. Used by rigs, and by tests that run their
//! engine in another process.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::Isolation;
use driver::Sandboxes;
use driver_host::{Backend, HostDriver, Settings};
use driver_native::Native;
use driver_oci::{Gvisor, OciRuntime};
use rand::RngExt;

use crate::options::{RigOptions, SLOTS, agent, gvisor, launcher, workspace};

/// The number of different ranges of user ids.
const BLOCKS: u32 = 16;

/// The paths and names of one rig, derived from its name.
#[derive(Debug, Clone)]
pub struct RigLayout {
    pub name: String,
    pub data: PathBuf,
    pub run: PathBuf,
    pub uid_base: u32,
}

impl RigLayout {
    /// A layout with an unused name.
    pub fn unused() -> Self {
        let number: u32 = rand::rng().random_range(0..1_000_000);
        Self::with_number(format!("sandboxd-test-{}-{number}", std::process::id()), number)
    }

    /// The layout of a name that another process may have used before.
    pub fn from_name(name: &str) -> Result<Self> {
        let number = name
            .rsplit('-')
            .next()
            .unwrap_or_default()
            .parse()
            .context("the name of a rig must end in a number")?;
        Ok(Self::with_number(name.to_owned(), number))
    }

    fn with_number(name: String, number: u32) -> Self {
        Self {
            data: workspace().join("target/test-data").join(&name),
            run: Path::new("/run").join(&name),
            uid_base: 0x8000_0000 + (number % BLOCKS) * SLOTS * 65_536,
            name,
        }
    }

    /// How many user ids there are from `uid_base` on.
    pub fn user_ids(&self) -> u32 {
        SLOTS * 65_536
    }

    pub fn driver(&self, options: &RigOptions) -> Result<HostDriver> {
        std::fs::create_dir_all(&self.data)?;
        let settings = Settings {
            agent: agent()?,
            data_dir: self.data.clone(),
            run_dir: self.run.clone(),
            cgroup_parent: self.name.clone(),
            uid_base: self.uid_base,
            pids_max: 512,
            disk_rates: options.disk_rates,
            memory_max_mb: None,
            lxcfs: options.lxcfs.clone(),
            minimum_isolation: options.isolation,
            resolver: None,
        };
        let backend: Box<dyn Backend> = match (options.isolation, &options.runtime) {
            (Isolation::Container, None) => Box::new(Native::new(launcher()?)?),
            (Isolation::Container, Some(program)) => Box::new(OciRuntime::new(program.clone(), Vec::new())),
            (Isolation::Gvisor, _) => Box::new(Gvisor::new(gvisor()?, Vec::new())?),
        };
        Ok(HostDriver::new(settings, [(options.isolation, backend)].into())?)
    }

    /// Removes all its resources from the host. No engine may be running on it.
    pub async fn clear(&self, options: &RigOptions) -> Result<()> {
        if !self.data.exists() && !self.run.exists() {
            return Ok(());
        }
        let driver = self.driver(options)?;
        for id in driver.list().await? {
            driver.destroy(&id).await?;
        }
        std::fs::remove_dir_all(&self.data)?;
        std::fs::remove_dir_all(&self.run)?;
        remove_cgroup_parents(&self.name);
        Ok(())
    }
}

/// The driver keeps its parent cgroup for later sandboxes; a rig that is removed has none.
fn remove_cgroup_parents(name: &str) {
    let Ok(hierarchies) = std::fs::read_dir("/sys/fs/cgroup") else { return };
    for hierarchy in hierarchies.flatten() {
        // It does not exist in every hierarchy.
        let _ = std::fs::remove_dir(hierarchy.path().join(name));
    }
    let _ = std::fs::remove_dir(Path::new("/sys/fs/cgroup").join(name));
}

/// Removes the resources of a layout when dropped, also after a failed test.
pub struct CleanupGuard {
    layout: RigLayout,
    options: RigOptions,
}

impl CleanupGuard {
    pub fn new(layout: &RigLayout, options: &RigOptions) -> Self {
        Self { layout: layout.clone(), options: options.clone() }
    }
}

impl Drop for CleanupGuard {
    fn drop(&mut self) {
        // On a separate thread, because the caller may be inside a runtime.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else { return };
                if let Err(error) = runtime.block_on(self.layout.clear(&self.options)) {
                    eprintln!("could not clear {}: {error:#}", self.layout.name);
                }
            });
        });
    }
}
