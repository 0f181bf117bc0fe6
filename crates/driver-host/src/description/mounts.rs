//! The mounts over the root file system of a sandbox.

use std::path::{Path, PathBuf};

use api::Isolation;
use oci_spec::OciSpecError;
use oci_spec::runtime::{Mount, MountBuilder};

use super::{AGENT_INSIDE, SysView};
use crate::backend::Start;
use crate::paths::{mount_place, resolv_conf};

/// The files of `/proc` for which lxcfs provides the sandbox's own values.
pub const LXCFS_FILES: [&str; 7] = ["cpuinfo", "diskstats", "loadavg", "meminfo", "stat", "swaps", "uptime"];

/// Pseudo-terminals of one sandbox. The buffers of one take up to 1.3 MB of the host's memory that are charged to nobody.
pub const PSEUDO_TERMINALS: u32 = 64;

/// All mounts, in order.
pub fn all(start: &Start<'_>, sys: SysView) -> Result<Vec<Mount>, OciSpecError> {
    let Start { settings, spec, isolation, .. } = *start;
    let shm = format!("size={}m", spec.limits.memory_mb / 2);
    // Bounds the number of files: empty ones take no space of the tmpfs, but kernel memory.
    let shm_files = format!("nr_inodes={}", spec.limits.memory_mb * 64);
    let terminals = format!("max={PSEUDO_TERMINALS}");
    let mut mounts = vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"])?,
        mount(
            "/dev",
            "tmpfs",
            "tmpfs",
            &["nosuid", "strictatime", "mode=755", "size=64k", "nr_inodes=1024"],
        )?,
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5", &terminals],
        )?,
        mount("/dev/shm", "tmpfs", "shm", &["nosuid", "noexec", "nodev", "mode=1777", &shm, &shm_files])?,
        mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"])?,
    ];
    if sys == SysView::Covered {
        mounts.push(mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"])?);
    }
    // gVisor's kernel has a sysfs of its own, without the host's devices.
    if sys == SysView::Covered && isolation == Isolation::Container {
        for (source, target) in rootfs::cover_mounts(&mount_place(settings)) {
            mounts.push(bind(&source, &target, &["ro", "nosuid", "nodev", "noexec"])?);
        }
    }
    mounts.push(mount(
        "/sys/fs/cgroup",
        "cgroup",
        "cgroup",
        &["nosuid", "noexec", "nodev", "relatime", "ro"],
    )?);
    mounts.push(bind(start.agent, Path::new(AGENT_INSIDE), &["ro", "nosuid", "nodev"])?);
    if settings.resolver.is_some() {
        let file = resolv_conf(settings);
        mounts.push(bind(&file, Path::new("/etc/resolv.conf"), &["ro", "nosuid", "nodev", "noexec"])?);
    }
    if isolation == Isolation::Gvisor {
        // Otherwise gVisor mounts a file system in memory over an empty /tmp. A symbolic link there could lead to the host's files;
        // no process of the sandbox runs yet that could make one now.
        let own = mount_place(settings).join("rootfs/tmp");
        if own.symlink_metadata().is_ok_and(|own| own.is_dir()) {
            mounts.push(bind(&own, Path::new("/tmp"), &["rw", "nodev"])?);
        }
        return Ok(mounts);
    }
    if let Some(lxcfs) = settings.lxcfs.as_deref().filter(|dir| is_responding(dir)) {
        for file in LXCFS_FILES {
            let source = lxcfs.join("proc").join(file);
            mounts.push(bind(&source, &Path::new("/proc").join(file), &["ro", "nosuid", "nodev", "noexec"])?);
        }
    }
    Ok(mounts)
}

/// Whether lxcfs responds. With a dead one a sandbox cannot start; without it `/proc` shows the host's values.
fn is_responding(lxcfs: &Path) -> bool {
    let is_responding = std::fs::read(lxcfs.join("proc/meminfo")).is_ok_and(|text| !text.is_empty());
    if !is_responding {
        tracing::warn!(lxcfs = %lxcfs.display(), "lxcfs does not respond; a sandbox starts without it and sees the host's values in /proc");
    }
    is_responding
}

fn mount(target: &str, kind: &str, source: &str, options: &[&str]) -> Result<Mount, OciSpecError> {
    MountBuilder::default()
        .destination(target)
        .typ(kind)
        .source(source)
        .options(options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>())
        .build()
}

fn bind(source: &Path, target: &Path, options: &[&str]) -> Result<Mount, OciSpecError> {
    MountBuilder::default()
        .destination(target)
        .typ("bind")
        .source(PathBuf::from(source))
        .options(["bind"].iter().chain(options).map(|option| (*option).to_owned()).collect::<Vec<_>>())
        .build()
}
