//! Translates the description of a sandbox into the launcher's plan.

use std::path::{Path, PathBuf};

use driver::{DriverError, DriverStep};
use driver_host::{OpenLayer, Start, SysView, describe, mount_place};
use launcher::{CgroupEntry, ContainerPlan, FileSystem, Layer, Mount, MountFlags, MountSource, Node};
use oci_spec::runtime::{Linux, PosixRlimitType, Process, Spec};
use rustix::thread::CapabilitySet;

use crate::seccomp::Instruction;

const DEV: &str = "/dev";
const SYS: &str = "/sys";
/// The devices in `/dev`, with major and minor number. One of this list gives a process nothing that it does not have.
const DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
/// The links in `/dev`.
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

pub fn plan(
    start: &Start<'_>,
    layers: &[OpenLayer],
    filter: &[Instruction],
) -> Result<ContainerPlan, DriverError> {
    let spec = describe(start, SysView::LeftOut)?;
    let (process, linux) = parts(&spec)?;
    let sys = Mount { source: MountSource::Sys, target: SYS.into(), flags: MountFlags::default() };
    let mounts = spec.mounts().iter().flatten().filter_map(|mount| translate(mount).transpose());
    let mounts = mounts.chain([Ok(sys)]).collect::<Result<Vec<_>, _>>()?;
    let links = LINKS.map(|(name, target)| (Path::new(DEV).join(name), PathBuf::from(target)));
    let cgroups = start.cgroups.entries(start.spec.id.as_str()).into_iter();
    let (paths, quota) = start.cgroups.shown_quota(start.spec.limits.cpu);
    Ok(ContainerPlan {
        daemon: rustix::process::getpid().as_raw_nonzero().get(),
        place: mount_place(start.settings),
        layers: layers.iter().map(layer).collect(),
        uid_base: start.uid_base,
        host_name: spec.hostname().clone().unwrap_or_default(),
        cgroups: cgroups.map(|entry| CgroupEntry { tasks: entry.tasks, visible: entry.visible }).collect(),
        mounts,
        links: links.to_vec(),
        masked: to_paths(linux.masked_paths().as_ref()),
        replaced: paths.into_iter().map(|path| (path, quota.clone())).collect(),
        read_only: to_paths(linux.readonly_paths().as_ref()),
        limits: limits(process)?,
        network_settings: network_settings(linux)?,
        capabilities: capabilities(process)?,
        filter: filter.to_vec(),
        command: process.args().clone().unwrap_or_default(),
    })
}

fn layer(open: &OpenLayer) -> Layer {
    match open {
        OpenLayer::Directory(path) => Layer::Directory(path.clone()),
        OpenLayer::Snapshot(_) => Layer::Snapshot,
    }
}

fn unsupported(what: impl std::fmt::Display) -> DriverError {
    DriverError::failed(DriverStep::Describe, format!("{what} is not supported"))
}

fn parts(spec: &Spec) -> Result<(&Process, &Linux), DriverError> {
    match (spec.process(), spec.linux()) {
        (Some(process), Some(linux)) => Ok((process, linux)),
        _ => Err(unsupported("a description without a process")),
    }
}

fn to_paths(list: Option<&Vec<String>>) -> Vec<PathBuf> {
    list.into_iter().flatten().map(PathBuf::from).collect()
}

fn node((name, major, minor): (&str, u32, u32)) -> Node {
    Node { name: name.to_owned(), major, minor }
}

/// `None` for the cgroups, which the plan lists separately.
fn translate(mount: &oci_spec::runtime::Mount) -> Result<Option<Mount>, DriverError> {
    let target = mount.destination().clone();
    let source = mount.source().clone().unwrap_or_default();
    let (flags, parameters) = split(mount.options().iter().flatten());
    let name = source.display().to_string();
    let new = |kind| MountSource::New { kind, name: name.clone(), parameters: parameters.clone() };
    let source = match mount.typ().as_deref() {
        Some("cgroup") => return Ok(None),
        Some("bind") => MountSource::Bind(source),
        Some("tmpfs") if target == Path::new(DEV) => {
            let parameters = parameters.into_iter().filter(|(name, _)| name != "mode").collect();
            MountSource::Devices { parameters, nodes: DEVICES.map(node).to_vec() }
        }
        Some("tmpfs") => new(FileSystem::Tmpfs),
        Some("proc") => new(FileSystem::Proc),
        Some("devpts") => new(FileSystem::Devpts),
        Some("mqueue") => new(FileSystem::Mqueue),
        other => return Err(unsupported(format_args!("a mount of the type {other:?}"))),
    };
    Ok(Some(Mount { source, target, flags }))
}

/// The flags of a mount, and the parameters of its file system.
fn split<'a>(options: impl Iterator<Item = &'a String>) -> (MountFlags, Vec<(String, Option<String>)>) {
    let (mut flags, mut parameters) = (MountFlags::default(), Vec::new());
    for option in options {
        match option.as_str() {
            "ro" => flags.read_only = true,
            "nosuid" => flags.no_suid = true,
            "nodev" => flags.no_dev = true,
            "noexec" => flags.no_exec = true,
            "strictatime" => flags.strict_atime = true,
            "rw" | "bind" | "relatime" => {}
            other => parameters.push(match other.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (other.to_owned(), None),
            }),
        }
    }
    (flags, parameters)
}

fn limits(process: &Process) -> Result<Vec<(u32, u64)>, DriverError> {
    let number = |kind: PosixRlimitType| match kind {
        PosixRlimitType::RlimitNofile => Ok(libc::RLIMIT_NOFILE),
        PosixRlimitType::RlimitCore => Ok(libc::RLIMIT_CORE),
        PosixRlimitType::RlimitSigpending => Ok(libc::RLIMIT_SIGPENDING),
        PosixRlimitType::RlimitMsgqueue => Ok(libc::RLIMIT_MSGQUEUE),
        PosixRlimitType::RlimitMemlock => Ok(libc::RLIMIT_MEMLOCK),
        other => Err(unsupported(format_args!("the limit {other:?}"))),
    };
    let limits = process.rlimits().iter().flatten();
    limits.map(|limit| Ok((number(limit.typ())?, limit.hard()))).collect()
}

/// The files of settings such as `net.ipv4.tcp_rmem`. Others would change the whole host.
fn network_settings(linux: &Linux) -> Result<Vec<(PathBuf, String)>, DriverError> {
    let settings = linux.sysctl().iter().flatten();
    settings
        .map(|(name, value)| match name.strip_prefix("net.") {
            Some(rest) => Ok((Path::new("/proc/sys/net").join(rest.replace('.', "/")), value.clone())),
            None => Err(unsupported(format_args!("the kernel setting {name}"))),
        })
        .collect()
}

fn capabilities(process: &Process) -> Result<u64, DriverError> {
    let wanted = process.capabilities().as_ref().and_then(|sets| sets.bounding().clone()).unwrap_or_default();
    wanted.iter().try_fold(0, |bits, capability| {
        let name = capability.to_string();
        let name = name.strip_prefix("CAP_").unwrap_or(&name);
        match CapabilitySet::from_name(name) {
            Some(set) => Ok(bits | set.bits()),
            None => Err(unsupported(format_args!("the capability {name}"))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_flags_or_parameters() {
        let options = ["nosuid", "ro", "newinstance", "mode=0620", "gid=5", "relatime"].map(str::to_owned);
        let (flags, parameters) = split(options.iter());
        assert_eq!(flags, MountFlags { read_only: true, no_suid: true, ..MountFlags::default() });
        let expected = [("newinstance", None), ("mode", Some("0620")), ("gid", Some("5"))];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.map(str::to_owned)));
        assert_eq!(parameters, expected);
    }
}
