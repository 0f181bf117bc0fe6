//! What the container gets from the host. The launcher opens all of it before it forks: the first process then needs
//! no path of the host.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use launcher::{ContainerPlan, MountFlags, MountSource};
use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::devices;
use crate::failure::{StepFailure, failed};
use crate::mounts::{KERNEL_VIEW, attributes};

/// What the container gets from the host.
pub struct HostFiles {
    /// For each mount of the plan its detached mount, unless the file system is created inside.
    pub sources: Vec<Option<OwnedFd>>,
    pub tasks: Vec<OwnedFd>,
    pub cgroups: Vec<(PathBuf, OwnedFd)>,
    pub null: OwnedFd,
}

impl HostFiles {
    /// Opens or creates what the plan names. Runs as root on the host, before the launcher enters namespaces.
    pub fn of(plan: &ContainerPlan) -> Result<Self, StepFailure> {
        let mut sources = Vec::with_capacity(plan.mounts.len());
        for mount in &plan.mounts {
            let step = || format!("prepare {}", mount.target.display());
            sources.push(match &mount.source {
                MountSource::New { .. } | MountSource::Sys => None,
                MountSource::Devices { parameters, nodes } => Some(
                    devices::create(plan.uid_base, parameters, nodes, mount.flags).map_err(failed(step()))?,
                ),
                MountSource::Bind(path) => Some(hold_mount(path, mount.flags).map_err(failed(step()))?),
            });
        }
        let (mut tasks, mut cgroups) = (Vec::new(), Vec::new());
        for cgroup in &plan.cgroups {
            if let Some(path) = &cgroup.tasks {
                let file = File::options().write(true).open(path);
                tasks.push(file.map_err(failed(format!("open {}", path.display())))?.into());
            }
            if let Some((dir, target)) = &cgroup.visible {
                let step = || failed(format!("show {}", dir.display()));
                rootfs::prepare_cgroup(target).map_err(step())?;
                cgroups.push((target.clone(), hold_mount(dir, KERNEL_VIEW).map_err(step())?));
            }
        }
        let null = devices::open_null().map_err(failed("open the null device"))?;
        Ok(Self { sources, tasks, cgroups, null })
    }
}

/// A detached copy of a mount, or of a part of one.
fn hold_mount(path: &Path, flags: MountFlags) -> std::io::Result<OwnedFd> {
    let tree = open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    rootfs::set_attributes(&tree, attributes(flags))?;
    Ok(tree)
}
