//! Describes the inside of a sandbox in the terms of the OCI runtime specification: mounts, capabilities, limits. Each backend
//! builds the container of this description, so all of them build the same.
//!
//! The allowed system calls are in `description/seccomp.json`; the rules of `socket` are in [`sockets`].

mod mounts;
mod sockets;

use std::path::Path;

use api::Isolation;
use driver::DriverError;
use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Capabilities, Capability, Linux, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxCpuBuilder, LinuxIdMapping,
    LinuxIdMappingBuilder, LinuxMemoryBuilder, LinuxNamespace, LinuxNamespaceBuilder, LinuxNamespaceType,
    LinuxPidsBuilder, LinuxResources, LinuxResourcesBuilder, LinuxSeccomp, Mount, PosixRlimit,
    PosixRlimitBuilder, PosixRlimitType, Process, ProcessBuilder, RootBuilder, Spec, SpecBuilder,
    UserBuilder,
};
use rootfs::IDS;
use rustix::process::{Resource, getrlimit};

use crate::backend::Start;
use crate::cgroup::{CPU_PERIOD_US, shares};
use crate::control_link;
use crate::paths::mount_place;
use crate::settings::Settings;

/// Path of the agent in the sandbox: on the sandbox's own `/dev`, which exists with any image.
pub const AGENT_INSIDE: &str = "/dev/sandbox-agent";
const OPEN_FILES: u64 = 65_536;

/// Additional capabilities of the agent, to mark commands and read the marks. It drops them in each command.
const AGENT_CAPABILITIES: [Capability; 2] = [Capability::SysAdmin, Capability::SysPtrace];
/// The capabilities of commands in their own user namespace.
const COMMAND_CAPABILITIES: [Capability; 14] = [
    Capability::AuditWrite,
    Capability::Chown,
    Capability::DacOverride,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::Kill,
    Capability::Mknod,
    Capability::NetBindService,
    Capability::NetRaw,
    Capability::Setfcap,
    Capability::Setgid,
    Capability::Setpcap,
    Capability::Setuid,
    Capability::SysChroot,
];
/// Masked files. The runtime skips paths that the kernel does not have.
const MASKED: [&str; 21] = [
    // Through these a command could make the out-of-memory killer choose the agent first.
    "/proc/1/oom_adj",
    "/proc/1/oom_score_adj",
    "/proc/1/task/1/oom_adj",
    "/proc/1/task/1/oom_score_adj",
    "/proc/acpi",
    "/proc/cmdline",
    // Statistics of every mounted disk, by name: /proc/fs/ext4/loop3, /proc/fs/jbd2/loop3-8.
    "/proc/fs",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/mdstat",
    "/proc/modules",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/timer_list",
    "/sys/firmware",
];
/// Files that show the host's disks, unless lxcfs provides the sandbox's own values.
const MASKED_WITHOUT_LXCFS: [&str; 2] = ["/proc/diskstats", "/proc/swaps"];
/// Read-only paths. Under cgroup v1 the parent directory of the hierarchies is a separate file system, which stays
/// writable despite its mount option.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/sys/fs/cgroup"];

/// How a description has `/sys`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SysView {
    /// A sysfs. What a container must not see of it is covered.
    Covered,
    /// Not at all: the backend makes it.
    LeftOut,
}

/// Describes the inside of a sandbox. The filter of system calls is left out: it is the same for all sandboxes, and long. See
/// [`seccomp`].
pub fn describe(start: &Start<'_>, sys: SysView) -> Result<Spec, DriverError> {
    compose(start, sys).map_err(|error| DriverError::failed("describe the sandbox", error))
}

fn compose(start: &Start<'_>, sys: SysView) -> Result<Spec, OciSpecError> {
    let mounts = mounts::all(start, sys)?;
    SpecBuilder::default()
        .version("1.0.2")
        .root(
            RootBuilder::default()
                .path(mount_place(start.settings).join("rootfs"))
                .readonly(false)
                .build()?,
        )
        .hostname(start.spec.id.host_name())
        .process(process(start.isolation)?)
        .linux(linux(start, &mounts)?)
        .mounts(mounts)
        .build()
}

/// The first host id of a sandbox.
pub fn uid_base(settings: &Settings, slot: u32) -> Result<u32, DriverError> {
    slot.checked_mul(IDS)
        .and_then(|offset| offset.checked_add(settings.uid_base))
        .filter(|base| base.checked_add(IDS).is_some())
        .ok_or_else(|| {
            DriverError::failed("find the sandbox's host ids", format!("slot {slot} is out of range"))
        })
}

fn process(isolation: Isolation) -> Result<Process, OciSpecError> {
    let args = match isolation {
        Isolation::Container => vec![AGENT_INSIDE.to_owned(), "--listen-fd".to_owned(), "3".to_owned()],
        Isolation::Gvisor => {
            vec![AGENT_INSIDE.to_owned(), "--connect".to_owned(), control_link::HOST_SOCKET.to_string()]
        }
    };
    let all: Capabilities = AGENT_CAPABILITIES.into_iter().chain(COMMAND_CAPABILITIES).collect();
    let capabilities = LinuxCapabilitiesBuilder::default()
        .bounding(all.clone())
        .permitted(all.clone())
        .effective(all)
        .inheritable(Capabilities::default())
        .ambient(Capabilities::default())
        .build()?;
    ProcessBuilder::default()
        .terminal(false)
        .user(UserBuilder::default().uid(0u32).gid(0u32).build()?)
        .args(args)
        .env(Vec::<String>::new())
        .cwd("/")
        .capabilities(capabilities)
        .rlimits(rlimits()?)
        // The agent sets it for each command that may not use set-user-ID programs.
        .no_new_privileges(false)
        .build()
}

/// At most the host's hard limit: the daemon may lack the capability to raise it.
fn rlimits() -> Result<Vec<PosixRlimit>, OciSpecError> {
    let open_files = getrlimit(Resource::Nofile).maximum.unwrap_or(OPEN_FILES).min(OPEN_FILES);
    [(PosixRlimitType::RlimitNofile, open_files), (PosixRlimitType::RlimitCore, 0)]
        .into_iter()
        .map(|(kind, limit)| PosixRlimitBuilder::default().typ(kind).soft(limit).hard(limit).build())
        .collect()
}

fn linux(start: &Start<'_>, mounts: &[Mount]) -> Result<Linux, OciSpecError> {
    LinuxBuilder::default()
        .namespaces(namespaces()?)
        .uid_mappings(id_mapping(start.uid_base)?)
        .gid_mappings(id_mapping(start.uid_base)?)
        .cgroups_path(start.cgroups.path_for_runtime(start.spec.id.as_str()))
        .resources(resources(start)?)
        .masked_paths(masked(mounts))
        .readonly_paths(READ_ONLY.map(str::to_owned).to_vec())
        .rootfs_propagation("private")
        .build()
}

/// The allowed system calls.
pub fn seccomp() -> Result<LinuxSeccomp, OciSpecError> {
    let mut seccomp: LinuxSeccomp = serde_json::from_str(include_str!("description/seccomp.json"))?;
    let mut syscalls = seccomp.syscalls().clone().unwrap_or_default();
    syscalls.extend(sockets::rules()?);
    seccomp.set_syscalls(Some(syscalls));
    Ok(seccomp)
}

fn masked(mounts: &[Mount]) -> Vec<String> {
    let is_mounted = |path: &str| mounts.iter().any(|mount| mount.destination() == Path::new(path));
    let without_lxcfs = MASKED_WITHOUT_LXCFS.into_iter().filter(|path| !is_mounted(path));
    MASKED.into_iter().chain(without_lxcfs).map(str::to_owned).collect()
}

fn namespaces() -> Result<Vec<LinuxNamespace>, OciSpecError> {
    [
        LinuxNamespaceType::Pid,
        LinuxNamespaceType::Network,
        LinuxNamespaceType::Ipc,
        LinuxNamespaceType::Uts,
        LinuxNamespaceType::Mount,
        LinuxNamespaceType::User,
        LinuxNamespaceType::Cgroup,
    ]
    .into_iter()
    .map(|kind| LinuxNamespaceBuilder::default().typ(kind).build())
    .collect()
}

fn id_mapping(base: u32) -> Result<Vec<LinuxIdMapping>, OciSpecError> {
    Ok(vec![LinuxIdMappingBuilder::default().container_id(0u32).host_id(base).size(IDS).build()?])
}

fn resources(start: &Start<'_>) -> Result<LinuxResources, OciSpecError> {
    let Start { settings, spec, cpus, .. } = *start;
    let bytes = i64::from(spec.limits.memory_mb) << 20;
    let mut memory = LinuxMemoryBuilder::default().limit(bytes);
    if can_limit_swap() {
        memory = memory.swap(bytes);
    }
    let quota = i64::from(spec.limits.cpu) * CPU_PERIOD_US.cast_signed();
    let cpu = LinuxCpuBuilder::default()
        .shares(shares(spec.limits.cpu))
        .quota(quota)
        .period(CPU_PERIOD_US)
        .cpus(cpus)
        .build()?;
    LinuxResourcesBuilder::default()
        .memory(memory.build()?)
        .cpu(cpu)
        .pids(LinuxPidsBuilder::default().limit(i64::from(settings.pids_max)).build()?)
        .build()
}

/// Kernels with v1 may lack swap accounting, and then refuse the limit.
fn can_limit_swap() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
        || Path::new("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists()
}
