//! Tests everything that a sandbox's root file system needs, without a sandbox. For `doctor`.

use std::fs;
use std::path::Path;

use api::Isolation;
use driver::{AtStep, DriverError, DriverStep, Limits, SandboxSpec};

use crate::disk::{self, Content, SnapshotMounts};
use crate::paths::Paths;

/// Smaller than the disk of any sandbox: it is only mounted.
const DISK_MB: u32 = 64;

/// Makes a disk below `dir` and mounts it, an id-mapped layer and an overlay over both, in a temporary mount namespace.
/// The caller removes the files in `dir`.
pub fn try_file_systems(dir: &Path, uid_base: u32) -> Result<(), DriverError> {
    let paths = Paths { data: dir.join("data"), run: dir.join("run") };
    let layer = dir.join("layer");
    for directory in [&paths.data, &paths.run, &layer] {
        fs::create_dir_all(directory).at(DriverStep::PrepareTrial)?;
    }
    fs::write(layer.join("seen"), "through the overlay").at(DriverStep::PrepareTrial)?;
    let image = disk::create_template(&dir.join("template"), DISK_MB, Content::Directories)?;
    fs::rename(image, paths.disk()).at(DriverStep::PrepareTrial)?;
    let id = "sb_doctorstrial".parse().at(DriverStep::PrepareTrial)?;
    let limits = Limits { cpu: 1, memory_mb: 1 };
    let spec = SandboxSpec {
        id,
        slot: 0,
        layers: vec![layer],
        disk_from: None,
        processes_from: None,
        limits,
        disk_mb: DISK_MB,
        isolation: Isolation::Container,
    };

    let tried = std::thread::scope(|scope| scope.spawn(|| mount_and_use(&spec, &paths, uid_base)).join());
    tried.unwrap_or_else(|_| {
        Err(DriverError::failed(DriverStep::TryFileSystems, "the thread of the trial panicked"))
    })
}

fn mount_and_use(spec: &SandboxSpec, paths: &Paths, uid_base: u32) -> Result<(), DriverError> {
    rootfs::leave_host_namespace().at(DriverStep::LeaveMountNamespace)?;
    disk::assemble(spec, paths, &SnapshotMounts::default(), &paths.run, uid_base)?;
    let seen = fs::read(paths.run.join("rootfs/seen")).at(DriverStep::ReadThroughOverlay)?;
    if seen.is_empty() {
        Err(DriverError::failed(DriverStep::ReadThroughOverlay, "an empty file"))
    } else {
        Ok(())
    }
}
